/// Finds holes in the sequence numbers of boundary's sessions: logs that boundary numbered and that
/// never came.
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

    /// Notes a batch of the session.
    /// - Returns: the holes before and in it. What comes first of a session may have any number.
    package mutating func note(_ session: String, _ run: SequenceRun) -> Int {
        guard let first = run.first, !session.isEmpty else { return 0 }
        uses += 1
        if let known = sessions[session] {
            sessions[session] = Session(next: max(known.next, run.next), lastUsed: uses)
            return run.gaps + (first > known.next ? 1 : 0)
        }
        if sessions.count >= capacity {
            // Half at once, so that a flood of new sessions costs little each.
            let order = sessions.values.map(\.lastUsed).sorted()
            let middle = order[order.count / 2]
            sessions = sessions.filter { $0.value.lastUsed > middle }
        }
        sessions[session] = Session(next: run.next, lastUsed: uses)
        return run.gaps
    }
}
