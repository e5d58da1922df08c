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
    /// - Throws: as ``wait()``.
    package func wait(atMost limit: Duration, _ clock: AgentClock) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await clock.sleep(limit) }
            group.addTask { try await self.wait() }
            try await group.next()
            group.cancelAll()
        }
    }
}
