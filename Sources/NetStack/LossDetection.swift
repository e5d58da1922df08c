/// Which segments are lost, by the time that others took: RACK (RFC 8985, 6).
struct LossDetection: Sendable {
    private static let mostMultiplier: Microseconds = 16
    /// Recoveries for which a wider reordering window lasts.
    private static let persistence = 16

    /// The segment sent last of those that arrived.
    private(set) var sentAt: Microseconds = .min
    private var end = SequenceNumber(0)
    private(set) var roundTrip: Microseconds = 0
    /// The highest number that arrived.
    private var highest: SequenceNumber?
    private var sawReordering = false
    private var multiplier: Microseconds = 1
    private var recoveriesLeft = 0
    /// A multiplier grows once a round trip.
    private var roundEnd: SequenceNumber?

    /// A segment arrived, by an acknowledgment that came now.
    mutating func arrived(
        _ segment: SentSegments.Segment, now: Microseconds, leastRoundTrip: Microseconds, echoIsOlder: Bool
    ) {
        if let highest {
            if segment.end < highest {
                if !segment.isRetransmitted { sawReordering = true }
            } else {
                self.highest = segment.end
            }
        } else {
            highest = segment.end
        }
        // It's the first sending that arrived, not the second.
        if segment.isRetransmitted, now - segment.sentAt < leastRoundTrip || echoIsOlder { return }
        if segment.sentAt > sentAt || segment.sentAt == sentAt && segment.end > end {
            (sentAt, end, roundTrip) = (segment.sentAt, segment.end, now - segment.sentAt)
        }
    }

    /// The peer had data twice: what seemed lost was late.
    mutating func sawDuplicate(acknowledged: SequenceNumber, next: SequenceNumber) {
        if let roundEnd, acknowledged < roundEnd { return }
        roundEnd = next
        multiplier = min(multiplier + 1, Self.mostMultiplier)
        recoveriesLeft = Self.persistence
    }

    mutating func recovered() {
        guard recoveriesLeft > 0 else { return }
        recoveriesLeft -= 1
        if recoveriesLeft == 0 { multiplier = 1 }
    }

    /// Marks segments lost.
    /// - Returns: when more may be lost, if nothing comes before.
    mutating func detect(
        _ segments: inout SentSegments, isRepairing: Bool, rtt: RoundTripTime, now: Microseconds
    ) -> Microseconds {
        let window: Microseconds
        if !sawReordering, isRepairing || segments.sackedCount >= 3 {
            window = 0
        } else {
            window = min(multiplier * rtt.minimum / 4, rtt.smoothed ?? 0)
        }
        while segments.earliest >= 0 {
            let id = segments.earliest
            let segment = segments[id]
            guard segment.sentAt < sentAt || segment.sentAt == sentAt && segment.end < end else { break }
            let due = segment.sentAt + roundTrip + window
            if due > now { return due }
            segments.markLost(id)
        }
        return .never
    }
}
