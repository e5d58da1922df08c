import AgentCore
import ControlPlaneAPI
import Logging
import Synchronization

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

    /// Runs the body on a task of its own and waits at most so long for it.
    ///
    /// What does not heed its cancellation is left behind, so that nothing hangs with it.
    /// - Parameter late: gets a result that came when nobody waited any more.
    /// - Throws: ``ControlPlaneError`` `.timeout` that names `what`; `CancellationError` as soon as the
    ///   calling task is cancelled; what the body throws.
    package func within<T: Sendable>(
        _ limit: Duration, _ what: String, late: (@Sendable (T) async -> Void)? = nil,
        _ body: @escaping @Sendable () async throws -> T
    ) async throws -> T {
        let race = Race<T>()
        let work = Task(executorPreference: executor) {
            let result: Result<T, any Error>
            do { result = .success(try await body()) } catch { result = .failure(error) }
            if !race.finish(result), case .success(let value) = result { await late?(value) }
        }
        let timer = Task(executorPreference: executor) { [clock] in
            do { try await clock.sleep(limit) } catch { return }
            race.finish(.failure(ControlPlaneError(.timeout, "\(what) took longer than \(limit.inSeconds) s")))
        }
        defer {
            work.cancel()
            timer.cancel()
        }
        return try await withTaskCancellationHandler {
            try await race.result()
        } onCancel: {
            race.finish(.failure(CancellationError()))
        }
    }
}

extension LinkRuntime {
    /// Runs the body to its end even if the calling task is cancelled.
    func shielded(_ body: @escaping @Sendable () async -> Void) async {
        await Task(executorPreference: executor, operation: body).value
    }
}

/// The first of several results, and the one task that waits for it.
private final class Race<T: Sendable>: Sendable {
    private struct State {
        var result: Result<T, any Error>?
        var continuation: CheckedContinuation<T, any Error>?
    }

    private let state = Mutex(State())

    /// - Returns: whether this result came first.
    @discardableResult func finish(_ result: Result<T, any Error>) -> Bool {
        let (first, continuation) = state.withLock { state in
            guard state.result == nil else { return (false, CheckedContinuation<T, any Error>?.none) }
            state.result = result
            defer { state.continuation = nil }
            return (true, state.continuation)
        }
        continuation?.resume(with: result)
        return first
    }

    func result() async throws -> T {
        try await withCheckedThrowingContinuation { continuation in
            let result = state.withLock { state in
                if state.result == nil { state.continuation = continuation }
                return state.result
            }
            if let result { continuation.resume(with: result) }
        }
    }
}
