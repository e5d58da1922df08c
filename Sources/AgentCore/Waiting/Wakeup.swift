import Synchronization

/// Wakes one task that waits; a signal that nobody waits for is kept for the next wait.
package final class Wakeup: Sendable {
    private struct State {
        var isSignalled = false
        var waiter: (id: UInt64, continuation: CheckedContinuation<Void, any Error>)?
        var next: UInt64 = 0
        var cancelled: UInt64 = 0
    }

    private let state = Mutex(State())

    package init() {}

    package func signal() {
        let waiter = state.withLock { state in
            defer { state.waiter = nil }
            if state.waiter == nil { state.isSignalled = true }
            return state.waiter
        }
        waiter?.continuation.resume()
    }

    /// Takes a kept signal back.
    package func clear() { state.withLock { $0.isSignalled = false } }

    /// - Throws: `CancellationError` when the task is cancelled, or another one begins to wait.
    package func wait() async throws {
        let id = state.withLock { state in
            state.next += 1
            return state.next
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                let (mine, old): (Result<Void, any Error>?, CheckedContinuation<Void, any Error>?) =
                    state.withLock { state in
                        if state.cancelled == id || Task.isCancelled { return (.failure(CancellationError()), nil) }
                        if state.isSignalled {
                            state.isSignalled = false
                            return (.success(()), nil)
                        }
                        defer { state.waiter = (id, continuation) }
                        return (nil, state.waiter?.continuation)
                    }
                old?.resume(throwing: CancellationError())
                if let mine { continuation.resume(with: mine) }
            }
        } onCancel: {
            let waiter = state.withLock { state -> CheckedContinuation<Void, any Error>? in
                state.cancelled = max(state.cancelled, id)
                guard let waiter = state.waiter, waiter.id == id else { return nil }
                state.waiter = nil
                return waiter.continuation
            }
            waiter?.resume(throwing: CancellationError())
        }
    }

    /// Waits for a signal, but not longer than this.
    package func wait(atMost limit: Duration, _ clock: AgentClock) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await clock.sleep(limit) }
            group.addTask { try await self.wait() }
            try await group.next()
            group.cancelAll()
        }
    }
}
