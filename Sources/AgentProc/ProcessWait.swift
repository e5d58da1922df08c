import AgentCore

extension ManagedProcess {
    /// Returns at the exit, when the time is over, or when the handler that `register` was given is
    /// called; whichever is first. It costs a promise and a timer, no thread.
    /// - Parameter evenAtShutdown: wait although shutdown has begun.
    func wait(
        atMost timeout: Duration, clock: AgentClock, executor: any TaskExecutor, evenAtShutdown: Bool = false,
        onCancel register: (@escaping @Sendable () -> Void) -> Void = { _ in }
    ) async {
        let over = Promise<Void>()
        guard timeout > .zero, addWaiter(over, evenAtShutdown: evenAtShutdown) else { return }
        let timer = Task(executorPreference: executor) {
            if (try? await clock.sleep(timeout)) != nil { over.fulfill() }
        }
        register { over.fulfill() }
        await over.valueIgnoringCancellation
        timer.cancel()
        removeWaiter(over)
    }
}
