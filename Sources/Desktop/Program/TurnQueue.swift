import DequeModule
import Synchronization

/// Lets one after the other in, in the order in which they came.
final class TurnQueue: Sendable {
    private struct Waiter {
        var id: UInt64
        var continuation: CheckedContinuation<Void, any Error>
    }

    private struct State {
        var isTaken = false
        var waiters = Deque<Waiter>()
        var nextID: UInt64 = 0
        /// Why nobody is let in any more.
        var end: (any Error)?
    }

    private let state = Mutex(State())
    private let limit: Int
    private let full: @Sendable () -> any Error

    /// - Parameters:
    ///   - limit: how many may wait; whoever comes first of all does not count.
    ///   - full: the error for a further one.
    init(limit: Int, full: @escaping @Sendable () -> any Error) {
        self.limit = limit
        self.full = full
    }

    /// Returns when it is the caller's turn, who gives it back with ``give()``.
    /// - Parameter first: before all who wait, and whatever the limit.
    /// - Throws: `CancellationError`, the error for too many, and that of ``end(_:)``.
    func take(first: Bool = false) async throws {
        let id = state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let outcome: Result<Void, any Error>? = state.withLock { state in
                    if let end = state.end { return .failure(end) }
                    if Task.isCancelled { return .failure(CancellationError()) }
                    guard state.isTaken else {
                        state.isTaken = true
                        return .success(())
                    }
                    let waiter = Waiter(id: id, continuation: continuation)
                    if first {
                        state.waiters.prepend(waiter)
                    } else if state.waiters.count < limit {
                        state.waiters.append(waiter)
                    } else {
                        return .failure(full())
                    }
                    return nil
                }
                if let outcome { continuation.resume(with: outcome) }
            }
        } onCancel: {
            let waiter = state.withLock { state -> Waiter? in
                guard let index = state.waiters.firstIndex(where: { $0.id == id }) else { return nil }
                return state.waiters.remove(at: index)
            }
            waiter?.continuation.resume(throwing: CancellationError())
        }
    }

    func give() {
        let next = state.withLock { state in
            let next = state.waiters.popFirst()
            state.isTaken = next != nil
            return next
        }
        next?.continuation.resume()
    }

    /// Whoever waits and whoever comes gets the error; the one whose turn it is goes on.
    func end(_ error: any Error) {
        let waiters = state.withLock { state in
            state.end = state.end ?? error
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter.continuation.resume(throwing: error) }
    }

    /// How many wait.
    var waiting: Int { state.withLock { $0.waiters.count } }
}
