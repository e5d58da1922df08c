import Synchronization

/// Lets a number of tasks work at once; the others wait in the order in which they came. A task may take more than
/// one turn, so that turns may be bytes.
package final class TurnQueue: Sendable {
    private typealias Turn = Promise<Result<Void, any Error>>

    private struct State {
        var free: Int
        var waiting: [(turn: Turn, count: Int)] = []
        /// Why no task gets a turn any more.
        var end: (any Error)?
    }

    private let state: Mutex<State>
    private let limit: Int
    private let full: @Sendable () -> any Error

    /// - Parameters:
    ///   - atOnce: how many tasks may have a turn.
    ///   - limit: how many more may wait.
    ///   - full: the error for a further one.
    package init(
        atOnce: Int = 1, limit: Int = .max, full: @escaping @Sendable () -> any Error = { CancellationError() }
    ) {
        state = Mutex(State(free: atOnce))
        self.limit = limit
        self.full = full
    }

    /// Returns when it is the caller's turn, who gives it back with ``give(_:)``.
    /// - Parameters:
    ///   - count: how many turns, all at once; not more than there are.
    ///   - first: before all who wait, and whatever the limit.
    /// - Throws: `CancellationError` as soon as the calling task is cancelled, the error for too many, and that of
    ///   ``end(_:)``; there is no turn to give back then.
    package func take(_ count: Int = 1, first: Bool = false) async throws {
        try Task.checkCancellation()
        let turn = Turn()
        state.withLock { state in
            if let end = state.end {
                turn.fulfill(.failure(end))
            } else if state.free >= count, state.waiting.isEmpty || first {
                state.free -= count
                turn.fulfill(.success(()))
            } else if first {
                state.waiting.insert((turn, count), at: 0)
            } else if state.waiting.count < limit {
                state.waiting.append((turn, count))
            } else {
                turn.fulfill(.failure(full()))
            }
        }
        do {
            try await turn.value(ifCancelled: .failure(CancellationError())).get()
        } catch {
            state.withLock { $0.waiting.removeAll { $0.turn === turn } }
            // Those behind it may need fewer.
            give(0)
            throw error
        }
    }

    package func give(_ count: Int = 1) {
        state.withLock { $0.free += count }
        while let next = takeNext() {
            // It may have been cancelled.
            if !next.turn.fulfill(.success(())) { state.withLock { $0.free += next.count } }
        }
    }

    private func takeNext() -> (turn: Turn, count: Int)? {
        state.withLock { state in
            guard let next = state.waiting.first, next.count <= state.free else { return nil }
            state.free -= next.count
            return state.waiting.removeFirst()
        }
    }

    /// Tasks that wait and those that come get the error; the one whose turn it is goes on.
    package func end(_ error: any Error) {
        let waiting = state.withLock { state in
            state.end = state.end ?? error
            defer { state.waiting = [] }
            return state.waiting
        }
        for (turn, _) in waiting { turn.fulfill(.failure(error)) }
    }

    /// How many tasks wait.
    package var waiting: Int { state.withLock { $0.waiting.count } }
}
