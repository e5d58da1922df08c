/// What one connection receives: reassembly, the window, and which acknowledgments are due.
struct ReceiveSide: Sendable {
    /// The shift that we offer: the receive limit fits, and the reference offers the same.
    static let scale: UInt8 = 7
    /// An acknowledgment is delayed at most so long (docs/contracts/tailnet.md#tcp).
    static let acknowledgmentDelay: Microseconds = 40_000
    /// A pause of the peer after which its window may be small again (its retransmission timeout is not shorter).
    private static let pause: Microseconds = 1_000_000
    /// The reader keeps up when it takes half a window in this time.
    private static let growthTime: Microseconds = 1_000_000

    var ring = ByteRing()
    var held = HeldRanges()
    /// The number that is expected next.
    var next = SequenceNumber(0)
    /// The end of the widest window that the peer was told of: what lies before it is taken.
    private(set) var edge = SequenceNumber(0)
    /// 0 unless both sides scale.
    var shift: UInt8 = 0
    /// Bytes that may wait for the reader.
    private(set) var limit: Int
    /// Where the peer's FIN stands.
    private(set) var finSequence: SequenceNumber?
    /// The FIN was reached: the peer sends no more.
    private(set) var hasEnded = false
    /// An acknowledgment must go out with the next packet.
    var mustAcknowledge = false
    /// When a delayed acknowledgment is due.
    var delayedUntil: Microseconds = .never
    private var unacknowledgedBytes = 0
    /// Segments since the last reason for quick acknowledgments.
    private var segmentsInOrder = 0
    private var receivedAt: Microseconds = 0
    /// The largest payload that came: the peer's full segment.
    private var largest = 1
    /// Data that came twice, to be told (RFC 2883).
    var duplicate: SequenceRange?
    /// What the last acknowledgment said.
    private(set) var acknowledged = SequenceNumber(0)
    private var readSinceGrowth = 0
    private var growthStart: Microseconds = 0

    init(limit: Int) { self.limit = limit }

    /// The peer's SYN came.
    mutating func begin(after sequence: SequenceNumber) {
        next = sequence + 1
        (edge, acknowledged) = (next, next)
    }

    // MARK: The window

    /// Bytes that a window may offer: what is free, and what there is memory for.
    private func free(_ budget: BufferBudget) -> Int {
        min(limit, ring.capacity + max(0, budget.room(capacity: ring.capacity))) - ring.count
    }

    /// The window for a segment that is sent now; the header's field is this, shifted. It grows by a segment at least
    /// (RFC 9293, 3.8.6.2.2), and its end never moves back.
    mutating func offer(mss: Int, budget: BufferBudget, shift: UInt8) -> UInt16 {
        let free = max(0, free(budget))
        let offered = edge - next
        let granule = 1 << Int(shift)
        var window = max(0, offered)
        if free - window >= min(mss, limit / 2) { window = free } else { window += granule - 1 }
        let field = min(Int(UInt16.max), min(window, max(free, offered)) >> Int(shift))
        edge = .later(edge, next + field << Int(shift))
        return UInt16(field)
    }

    /// Whether the peer has to hear that there is room again.
    func shouldUpdateWindow(mss: Int, budget: BufferBudget) -> Bool {
        let offered = max(0, edge - next)
        let gain = free(budget) - offered
        return gain >= min(limit / 2, 2 * mss) && (gain >= offered || gain >= limit / 2)
    }

    /// The reader took bytes: the window grows when it keeps up.
    mutating func noteRead(_ bytes: Int, now: Microseconds, limits: NetStackLimits, budget: BufferBudget) {
        if now - growthStart > Self.growthTime { (growthStart, readSinceGrowth) = (now, 0) }
        readSinceGrowth += bytes
        guard readSinceGrowth >= limit / 2, limit < limits.receiveBytes, ring.count < limit / 2, budget.isAmple else {
            return
        }
        limit = min(2 * limit, limits.receiveBytes)
        (growthStart, readSinceGrowth) = (now, 0)
    }

    // MARK: Segments

    /// RFC 9293, 3.4: whether a part of the segment lies in the window. One that begins with what is expected is
    /// taken for its acknowledgment even when the window is closed, and so is one without data at the window's very end:
    /// that is where a peer stands that has filled the window, some of which was lost.
    func accepts(_ sequence: SequenceNumber, length: Int) -> Bool {
        if sequence == next { return true }
        if length == 0 { return sequence > next && sequence <= edge }
        return sequence < edge && sequence + length > next
    }

    /// Takes the data of an acceptable segment.
    /// - Returns: why a part of it was dropped.
    mutating func take(
        _ segment: TCPSegment, now: Microseconds, mss: Int, limits: NetStackLimits, budget: inout BufferBudget
    ) -> DropReason? {
        var (sequence, payload) = (segment.sequence, segment.payload)
        let end = sequence + payload.count
        let early = next - sequence
        // A repetition, a hole or a pause: the peer begins with a small window.
        if early != 0 || now - receivedAt > Self.pause { segmentsInOrder = 0 }
        receivedAt = now
        if early > 0 {
            if !payload.isEmpty { duplicate = SequenceRange(start: sequence, end: .earlier(end, next)) }
            mustAcknowledge = true
            payload = UnsafeRawBufferPointer(rebasing: payload.dropFirst(early))
            sequence = next
        }
        let room = max(0, edge - sequence)
        if payload.count > room {
            payload = UnsafeRawBufferPointer(rebasing: payload.prefix(room))
            mustAcknowledge = true
        } else if segment.flags.contains(.fin), finSequence == nil, end >= next {
            finSequence = end
        }
        if let finSequence, sequence + payload.count > finSequence {
            payload = UnsafeRawBufferPointer(rebasing: payload.prefix(max(0, finSequence - sequence)))
        }
        var reason: DropReason?
        if !payload.isEmpty {
            reason =
                sequence == next
                ? takeInOrder(payload, now: now, mss: mss, limits: limits, budget: &budget)
                : takeOutOfOrder(payload, at: sequence, limits: limits, budget: &budget)
        }
        if next == finSequence, !hasEnded {
            next += 1
            hasEnded = true
            mustAcknowledge = true
        } else if segment.flags.contains(.fin) {
            mustAcknowledge = true
        }
        return reason
    }

    private mutating func takeInOrder(
        _ payload: UnsafeRawBufferPointer, now: Microseconds, mss: Int, limits: NetStackLimits,
        budget: inout BufferBudget
    ) -> DropReason? {
        guard budget.grow(&ring, for: ring.count + payload.count, limit: ringLimit),
            ring.write(payload, at: ring.count)
        else {
            mustAcknowledge = true
            return .bufferLimit
        }
        let old = next
        next += payload.count
        if !held.isEmpty {
            // A gap is filled, or begins later: the peer must hear (RFC 5681, 4.2).
            mustAcknowledge = true
            next = held.take(from: next)
        }
        ring.extend(by: next - old)
        unacknowledgedBytes += payload.count
        largest = max(largest, min(mss, payload.count))
        segmentsInOrder += 1
        if unacknowledgedBytes >= 2 * largest || segmentsInOrder <= limits.quickAcknowledgments {
            mustAcknowledge = true
        } else if delayedUntil == .never {
            delayedUntil = now + Self.acknowledgmentDelay
        }
        return nil
    }

    /// What the buffer grows to: a window may end a granule later than the limit.
    private var ringLimit: Int { limit + 1 << Int(Self.scale) }

    private mutating func takeOutOfOrder(
        _ payload: UnsafeRawBufferPointer, at sequence: SequenceNumber, limits: NetStackLimits,
        budget: inout BufferBudget
    ) -> DropReason? {
        mustAcknowledge = true
        let range = SequenceRange(start: sequence, end: sequence + payload.count)
        let growth = held.growth(range)
        // What is held lies inside the window, which is bounded itself; only where memory is scarce may holes keep less.
        let mostBytes =
            budget.isAmple ? Int.max : limits.outOfOrderBytesPerMiB * ((limit + (1 << 20) - 1) >> 20)
        guard held.bytes + growth.bytes <= mostBytes, held.count + growth.ranges <= limits.outOfOrderRanges else {
            return .outOfOrderLimit
        }
        if growth.bytes == 0 { duplicate = range }
        let offset = ring.count + (sequence - next)
        guard budget.grow(&ring, for: offset + payload.count, limit: ringLimit), ring.write(payload, at: offset) else {
            return .bufferLimit
        }
        held.insert(range)
        return nil
    }

    /// An acknowledgment goes out.
    mutating func noteAcknowledged() {
        acknowledged = next
        mustAcknowledge = false
        delayedUntil = .never
        unacknowledgedBytes = 0
        duplicate = nil
    }
}
