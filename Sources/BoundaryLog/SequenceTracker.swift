/// Finds gaps in the sequence numbers of boundary's sessions: logs that boundary numbered and that never arrived.
package struct SequenceTracker: Sendable {
    private struct Session {
        var next: UInt64
        var lastUsed: UInt64
    }

    private var sessions: [String: Session] = [:]
    private var uses: UInt64 = 0
    private let capacity: Int

    package init(capacity: Int = BoundaryLimits.sessions) { self.capacity = capacity }

    package var count: Int { sessions.count }

    /// Records a batch of the session.
    /// - Returns: the gaps before it and in it. The first batch of a session may start at any number.
    package mutating func note(_ session: String, _ run: SequenceRun) -> Int {
        guard let first = run.first, !session.isEmpty else { return 0 }
        uses += 1
        if let known = sessions[session] {
            sessions[session] = Session(next: max(known.next, run.next), lastUsed: uses)
            return run.gaps + (first > known.next ? 1 : 0)
        }
        if sessions.count >= capacity {
            // Half at once, so that the sort is amortized over many new sessions.
            let order = sessions.values.map(\.lastUsed).sorted()
            let middle = order[order.count / 2]
            sessions = sessions.filter { $0.value.lastUsed > middle }
        }
        sessions[session] = Session(next: run.next, lastUsed: uses)
        return run.gaps
    }
}
