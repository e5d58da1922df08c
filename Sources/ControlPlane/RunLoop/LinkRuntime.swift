import AgentCore
import ControlPlaneAPI
import Logging

/// What the run loop and its routines get from outside: time, chance, a place to run, the log.
package struct LinkRuntime: Sendable {
    package var clock: AgentClock
    /// The time of day, for timestamps.
    package var wall: @Sendable () -> WallTime
    /// A number evenly from 0 to 1, for the jitter of waits.
    package var random: @Sendable () -> Double
    /// Where tasks that outlive their caller run; nil means the global pool.
    package var executor: (any TaskExecutor)?
    package var logger: Logger

    package init(
        clock: AgentClock, wall: @escaping @Sendable () -> WallTime = WallTime.now,
        random: @escaping @Sendable () -> Double = { .random(in: 0...1) }, executor: (any TaskExecutor)? = nil,
        logger: Logger
    ) {
        (self.clock, self.wall, self.random, self.executor, self.logger) = (clock, wall, random, executor, logger)
    }

    /// Runs the body on a task of its own and waits at most so long for it; then the body is cancelled and left
    /// behind. See `TimeLimiter.runUnlessCancelled`.
    /// - Parameter late: gets a result that came after the wait had ended.
    /// - Throws: ``ControlPlaneError`` `.timeout` that names `what`; `CancellationError` as soon as the
    ///   calling task is cancelled; what the body throws.
    package func within<T: Sendable>(
        _ limit: Duration, _ what: String, late: (@Sendable (T) async -> Void)? = nil,
        _ body: @escaping @Sendable () async throws -> T
    ) async throws -> T {
        let limiter = TimeLimiter(clock: clock, executor: executor)
        guard let result = try await limiter.runUnlessCancelled(atMost: limit, late: late, body) else {
            throw ControlPlaneError(.timeout, "\(what) took longer than \(limit.inSeconds) s")
        }
        return result
    }
}

extension LinkRuntime {
    /// Runs the body to its end even if the calling task is cancelled.
    func shielded(_ body: @escaping @Sendable () async -> Void) async {
        await Task(executorPreference: executor, operation: body).value
    }
}
