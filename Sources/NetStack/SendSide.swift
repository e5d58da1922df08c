/// What one connection sends: the buffer, the peer's window, and what is on its way.
struct SendSide: Sendable {
    /// Why the timer runs.
    enum Timer: Sendable {
        case none
        /// Segments may be lost by then (RFC 8985, 6.2).
        case reordering
        /// The last segments may be lost: send one that makes the peer answer (RFC 8985, 7).
        case tail
        /// RFC 6298.
        case retransmission
        /// The peer's window is closed, or too small (RFC 9293, 3.8.6.1).
        case persist
    }

    /// Payload of the largest segment that we offer to take, and never send more than: 1,280 less both headers.
    static let mostSegmentBytes = 1_220

    var ring = ByteRing()
    /// The number of the ring's first byte.
    var base = SequenceNumber(0)
    var initial = SequenceNumber(0)
    /// The first number that isn't acknowledged, and the first that wasn't sent.
    var unacknowledged = SequenceNumber(0)
    var next = SequenceNumber(0)

    /// The peer's window, and the widest that it had.
    var window = 0
    var widestWindow = 0
    var shift: UInt8 = 0
    /// Sequence and acknowledgment of the segment that set the window (RFC 9293's SND.WL1 and SND.WL2).
    var windowSequence = SequenceNumber(0)
    var windowAcknowledgment = SequenceNumber(0)

    /// Payload of a full segment, without options but the timestamps.
    var mss = SendSide.mostSegmentBytes
    var segments = SentSegments()
    var rtt = RoundTripTime()
    var congestion = CongestionControl(mss: SendSide.mostSegmentBytes)
    var loss = LossDetection()
    /// The congestion window is what keeps us from sending more.
    var isLimited = false
    /// A sample of the round trip is taken of what is sent from here on.
    var roundEnd = SequenceNumber(0)
    var lastSentAt: Microseconds = 0

    /// The writer ended.
    var finQueued = false
    var finSent = false
    /// A write wasn't taken whole.
    var wantsWritable = false
    var limit: Int

    var timer = Timer.none
    var deadline: Microseconds = .never
    /// Retransmissions and probes since the peer was last heard.
    var unanswered = 0
    var mustProbe = false
    /// The next segment goes out even if it is small.
    var mayBeSmall = false
    var mustProbeTail = false
    /// The end of what was in flight when the tail was probed, until that is decided.
    var tailProbe: (end: SequenceNumber, isRetransmission: Bool)?
    /// The timestamp of the first retransmission since a loss, and the segment: an older echo for it shows that
    /// nothing was lost (RFC 3522).
    var firstRepair: (stamp: UInt32, end: SequenceNumber)?
    /// Acknowledgments that change nothing, from a peer without SACK.
    var duplicates = 0

    init(limit: Int) { self.limit = limit }

    mutating func begin(at sequence: SequenceNumber) {
        (initial, unacknowledged, next) = (sequence, sequence, sequence)
        base = sequence + 1
        roundEnd = sequence
    }

    /// Both sides' options are known.
    mutating func agree(mss: Int) {
        self.mss = mss
        congestion = CongestionControl(mss: mss)
    }

    /// Bytes of the buffer that were not sent.
    var unsent: Int { next < base ? ring.count : ring.count - (next - base) + (finSent ? 1 : 0) }
    var hasUnsent: Bool { unsent > 0 || finQueued && !finSent }
    /// Bytes that the peer's window still takes.
    var windowRoom: Int { window - (next - unacknowledged) }

    /// Bytes that are thought to be on their way. Without SACK each duplicate acknowledgment tells of one that left.
    var inFlight: Int { max(0, segments.inFlight - duplicates * mss) }

    /// Payload of the next new segment; nil when none may be sent.
    func newPayload(most: Int) -> Int? {
        guard hasUnsent else { return nil }
        let count = min(unsent, most, max(0, windowRoom))
        if count == 0 { return unsent == 0 && windowRoom > 0 ? 0 : nil }
        // Silly windows (RFC 9293, 3.8.6.2.1); no Nagle.
        guard count == unsent || count >= min(mss, most) || count >= widestWindow / 2 || mayBeSmall else { return nil }
        return count
    }

    func fits(_ bytes: Int) -> Bool { inFlight == 0 || inFlight + bytes <= congestion.window }

    // MARK: The timer

    mutating func stopTimer() { (timer, deadline) = (.none, .never) }

    mutating func start(_ timer: Timer, at deadline: Microseconds) { (self.timer, self.deadline) = (timer, deadline) }

    /// Starts the timer that what is in flight needs. Segments that wait to be sent again need none.
    /// - Parameter canProbe: the peer acknowledges selectively, and the handshake is over.
    mutating func restartTimer(now: Microseconds, canProbe: Bool) {
        guard segments.inFlight > 0 else {
            if segments.isEmpty, hasUnsent, newPayload(most: mss) == nil {
                if timer != .persist { start(.persist, at: now + rtt.timeout) }
            } else {
                stopTimer()
            }
            return
        }
        let timeout = rtt.timeout
        guard canProbe, congestion.isOpen, tailProbe == nil, rtt.backoff == 0, let smoothed = rtt.smoothed else {
            return start(.retransmission, at: now + timeout)
        }
        var probe = max(10_000, 2 * smoothed)
        // The peer may delay the acknowledgment of a single segment.
        if segments.count == 1 { probe += 200_000 }
        if probe < timeout { start(.tail, at: now + probe) } else { start(.retransmission, at: now + timeout) }
    }
}
