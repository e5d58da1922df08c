import Synchronization

/// A locked value that tasks can wait for a condition of. It is the base of the waiting kit: what else in it
/// waits does so with one of these.
package final class Watched<Value: Sendable>: Sendable {
    private struct State {
        var value: Value
        var next: UInt64 = 0
        var waiters: [(id: UInt64, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let state: Mutex<State>

    package init(_ value: Value) { state = Mutex(State(value: value)) }

    package var value: Value { state.withLock { $0.value } }

    /// Reads without a copy of the whole.
    package func read<T: Sendable>(_ body: (Value) -> T) -> T { state.withLock { body($0.value) } }

    /// Changes the value and wakes every task that waits, so that each looks again.
    @discardableResult package func update<T: Sendable>(_ body: (inout Value) -> T) -> T {
        let (result, woken) = state.withLock { state in
            let result = body(&state.value)
            defer { state.waiters = [] }
            return (result, state.waiters)
        }
        for waiter in woken { waiter.continuation.resume() }
        return result
    }

    /// Waits until `pick` finds what it looks for. It is called under the lock.
    /// - Throws: `CancellationError` as soon as the calling task is cancelled.
    package func first<T: Sendable>(_ pick: (Value) -> T?) async throws -> T { try await take { pick($0) } }

    /// As ``first(_:)``, but `pick` may take what it finds out of the value. That wakes no other task.
    package func take<T: Sendable>(_ pick: (inout Value) -> T?) async throws -> T {
        while true {
            try Task.checkCancellation()
            let id = state.withLock { state in
                state.next += 1
                return state.next
            }
            let found = await withTaskCancellationHandler {
                await look(pick, id)
            } onCancel: {
                let waiter = state.withLock { state in
                    state.waiters.firstIndex { $0.id == id }.map { state.waiters.remove(at: $0).continuation }
                }
                waiter?.resume()
            }
            if let found { return found }
        }
    }

    /// As ``take(_:)``, but the cancellation of the calling task does not end the wait.
    package func takeIgnoringCancellation<T: Sendable>(_ pick: (inout Value) -> T?) async -> T {
        while true {
            if let found = await look(pick, nil) { return found }
        }
    }

    /// Waits until the condition, which is called under the lock, holds. The cancellation of the calling task
    /// does not end the wait.
    package func waitIgnoringCancellation(until condition: (Value) -> Bool) async {
        await takeIgnoringCancellation { condition($0) ? () : nil }
    }

    /// Looks once; where nothing is found, returns after the next change.
    /// - Parameter id: by which a cancellation finds the wait; nil for one that cancellation does not end.
    private func look<T: Sendable>(_ pick: (inout Value) -> T?, _ id: UInt64?) async -> T? {
        var found: T?
        await withCheckedContinuation { continuation in
            let isOver = state.withLock { state in
                found = pick(&state.value)
                // A cancellation before this point has found no waiter to wake.
                if found != nil || id != nil && Task.isCancelled { return true }
                state.waiters.append((id ?? 0, continuation))
                return false
            }
            if isOver { continuation.resume() }
        }
        return found
    }
}
