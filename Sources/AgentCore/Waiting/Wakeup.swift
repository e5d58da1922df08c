/// Wakes one task that waits; a signal for which none waits is kept for the next wait.
package final class Wakeup: Sendable {
    private struct State {
        var isSignalled = false
        /// Of the task that began to wait last.
        var turn = 0
    }

    private let state = Watched(State())

    package init() {}

    package func signal() { state.update { $0.isSignalled = true } }

    /// Takes a kept signal back.
    package func clear() { state.update { $0.isSignalled = false } }

    /// - Throws: `CancellationError` when the task is cancelled, or another one begins to wait.
    package func wait() async throws {
        let turn = state.update { state in
            state.turn += 1
            return state.turn
        }
        let isOurs = try await state.take { state -> Bool? in
            guard state.turn == turn else { return false }
            guard state.isSignalled else { return nil }
            state.isSignalled = false
            return true
        }
        if !isOurs { throw CancellationError() }
    }

    /// Waits for a signal, but not longer than this.
    /// - Returns: whether there was a signal; false when the time is up.
    /// - Throws: as ``wait()``.
    @discardableResult
    package func wait(atMost limit: Duration, _ clock: AgentClock) async throws -> Bool {
        try await withThrowingTaskGroup(of: Bool.self) { group in
            group.addTask {
                try await clock.sleep(limit)
                return false
            }
            group.addTask {
                try await self.wait()
                return true
            }
            defer { group.cancelAll() }
            return try await group.next() ?? false
        }
    }
}
