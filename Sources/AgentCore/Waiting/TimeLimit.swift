/// Runs the body, which must end when it is cancelled: at the limit, and when the calling task is cancelled, it is
/// cancelled and waited for.
/// - Throws: the error when the limit is reached; what the body throws.
package func withTimeLimit<T: Sendable>(
    _ limit: Duration, _ clock: AgentClock, _ error: @autoclosure () -> any Error,
    _ body: @escaping @Sendable () async throws -> T
) async throws -> T {
    let result = try await withThrowingTaskGroup(of: T?.self) { group in
        group.addTask { try await body() }
        group.addTask {
            try await clock.sleep(limit)
            return nil
        }
        defer { group.cancelAll() }
        return try await group.next() ?? nil
    }
    guard let result else { throw error() }
    return result
}

/// Waits with a time limit for work that may ignore its cancellation: at the limit the work is cancelled and left
/// behind, so that the caller never hangs with it.
package struct TimeLimiter: Sendable {
    package let clock: AgentClock
    /// Runs the work; nil is the global pool.
    package let executor: (any TaskExecutor)?

    package init(clock: AgentClock, executor: (any TaskExecutor)?) {
        self.clock = clock
        self.executor = executor
    }

    /// The cancellation of the calling task ends the wait; the work is cancelled and left behind then, too.
    /// - Parameter late: gets a result that came after the wait had ended.
    /// - Returns: nil at the limit.
    /// - Throws: `CancellationError` as soon as the calling task is cancelled; what the body throws.
    package func runUnlessCancelled<T: Sendable>(
        atMost limit: Duration, late: (@Sendable (T) async -> Void)? = nil,
        _ body: @escaping @Sendable () async throws -> T
    ) async throws -> T? {
        let outcome = Promise<Result<T, any Error>?>()
        let work = Task(executorPreference: executor) {
            let result: Result<T, any Error>
            do { result = .success(try await body()) } catch { result = .failure(error) }
            if !outcome.fulfill(result), case .success(let value) = result { await late?(value) }
        }
        let timer = Task(executorPreference: executor) { [clock] in
            if (try? await clock.sleep(limit)) != nil { outcome.fulfill(nil) }
        }
        defer {
            work.cancel()
            timer.cancel()
        }
        return try await outcome.value(ifCancelled: .failure(CancellationError()))?.get()
    }

    /// The cancellation of the calling task changes nothing.
    /// - Returns: nil at the limit.
    package func runIgnoringCancellation<T: Sendable>(
        atMost limit: Duration, _ body: @escaping @Sendable () async -> T
    ) async -> T? {
        // A task of its own does not know of the caller's cancellation.
        let run = Task(executorPreference: executor) { try await runUnlessCancelled(atMost: limit, body) }
        return try? await run.value
    }

    /// Sleeps, also in a cancelled task.
    package func pauseIgnoringCancellation(_ duration: Duration) async {
        await Task(executorPreference: executor) { [clock] in try? await clock.sleep(duration) }.value
    }
}
