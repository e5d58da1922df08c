import Synchronization

/// A value that tasks can wait for a condition of.
package final class Watched<Value: Sendable>: Sendable {
    private struct State {
        var value: Value
        var next: UInt64 = 0
        var waiters: [UInt64: CheckedContinuation<Void, Never>] = [:]
    }

    private let state: Mutex<State>

    package init(_ value: Value) { state = Mutex(State(value: value)) }

    package var value: Value { state.withLock { $0.value } }

    /// Reads without a copy of the whole.
    package func read<T: Sendable>(_ body: (Value) -> T) -> T { state.withLock { body($0.value) } }

    /// Changes the value and wakes everybody who waits.
    @discardableResult package func update<T: Sendable>(_ body: (inout Value) -> T) -> T {
        let (result, woken) = state.withLock { state in
            let result = body(&state.value)
            defer { state.waiters = [:] }
            return (result, Array(state.waiters.values))
        }
        for waiter in woken { waiter.resume() }
        return result
    }

    /// Waits until `pick` finds what it looks for. It is called under the lock.
    /// - Throws: `CancellationError`.
    package func first<T: Sendable>(_ pick: (Value) -> T?) async throws -> T {
        while true {
            try Task.checkCancellation()
            let id = state.withLock { state in
                state.next += 1
                return state.next
            }
            var found: T?
            await withTaskCancellationHandler {
                await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
                    let goOn = state.withLock { state in
                        found = pick(state.value)
                        // A cancellation before this point has found no waiter to wake.
                        if found != nil || Task.isCancelled { return true }
                        state.waiters[id] = continuation
                        return false
                    }
                    if goOn { continuation.resume() }
                }
            } onCancel: {
                let waiter = state.withLock { $0.waiters.removeValue(forKey: id) }
                waiter?.resume()
            }
            if let found { return found }
        }
    }
}
