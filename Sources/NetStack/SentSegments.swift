/// What was sent and isn't acknowledged, segment by segment: the scoreboard of RFC 2018 and RFC 8985.
///
/// Segments lie in a ring in the order of their sequence numbers, under ids that count up. Those that are neither
/// acknowledged selectively nor thought lost are linked in the order in which they were last sent, so that looking for
/// lost ones costs as much as it finds.
struct SentSegments: Sendable {
    struct Segment: Sendable {
        var start: SequenceNumber
        /// In sequence space; SYN and FIN count one.
        var length: UInt16 = 0
        var isSYN = false
        var isFIN = false
        var isSacked = false
        var isLost = false
        var isRetransmitted = false
        var sentAt: Microseconds = 0
        /// Ids of the neighbours in the order of sending; -1 at the ends.
        var earlier = -1
        var later = -1

        var end: SequenceNumber { start + Int(length) }
    }

    private var ring: [Segment] = []
    /// The id of the first segment, and the one past the last.
    private(set) var first = 0
    private(set) var end = 0
    /// The one sent longest ago, and the last, of those that are in flight.
    private(set) var earliest = -1
    private var latest = -1
    /// Where to look for a lost segment.
    private var lostHint = 0
    private(set) var bytes = 0
    private(set) var sackedBytes = 0
    private(set) var lostBytes = 0
    private(set) var sackedCount = 0
    /// Blocks that were taken already: nothing in them is looked at again.
    private var seen: InlineArray<4, SequenceRange> = .init(
        repeating: SequenceRange(start: SequenceNumber(0), end: SequenceNumber(0)))
    private var nextSeen = 0

    var count: Int { end - first }
    var isEmpty: Bool { first == end }
    /// Bytes that are thought to be on their way (the "pipe" of RFC 6675).
    var inFlight: Int { bytes - sackedBytes - lostBytes }

    subscript(id: Int) -> Segment {
        get { ring[id & (ring.count - 1)] }
        _modify { yield &ring[id & (ring.count - 1)] }
    }

    var lastID: Int { end - 1 }

    /// Gives the memory back, when there is nothing in it.
    mutating func release() {
        guard isEmpty else { return }
        ring = []
        (first, end, lostHint) = (0, 0, 0)
        forgetSeen()
    }

    /// Adds a segment at the end, sent now.
    mutating func append(_ segment: Segment) {
        if count == ring.count { grow() }
        let id = end
        end += 1
        bytes += Int(segment.length)
        self[id] = segment
        link(id)
    }

    private mutating func grow() {
        var larger = [Segment](repeating: Segment(start: SequenceNumber(0)), count: max(16, ring.count * 2))
        for id in first..<end { larger[id & (larger.count - 1)] = self[id] }
        ring = larger
    }

    // MARK: The order of sending

    private mutating func link(_ id: Int) {
        self[id].earlier = latest
        self[id].later = -1
        if latest >= 0 { self[latest].later = id } else { earliest = id }
        latest = id
    }

    private mutating func unlink(_ id: Int) {
        let (earlier, later) = (self[id].earlier, self[id].later)
        if earlier >= 0 { self[earlier].later = later } else { earliest = later }
        if later >= 0 { self[later].earlier = earlier } else { latest = earlier }
    }

    // MARK: Loss

    mutating func markLost(_ id: Int) {
        guard !self[id].isLost, !self[id].isSacked else { return }
        unlink(id)
        self[id].isLost = true
        lostBytes += Int(self[id].length)
        lostHint = min(lostHint, id)
    }

    /// After a timeout all that isn't acknowledged counts as lost. When the first segment was acknowledged selectively
    /// the peer has dropped data, and no such acknowledgment holds (RFC 2018, 8).
    mutating func markAllLost() {
        guard !isEmpty else { return }
        if self[first].isSacked {
            for id in first..<end where self[id].isSacked {
                self[id].isSacked = false
                link(id)
            }
            (sackedBytes, sackedCount) = (0, 0)
            forgetSeen()
        }
        while earliest >= 0 { markLost(earliest) }
    }

    /// Takes back that segments are lost: they are on their way after all.
    mutating func undoLost() {
        while let id = firstLost() { markSent(id, at: self[id].sentAt, isRetransmission: false) }
    }

    mutating func firstLost() -> Int? {
        guard lostBytes > 0 else { return nil }
        lostHint = max(lostHint, first)
        while lostHint < end {
            if self[lostHint].isLost { return lostHint }
            lostHint += 1
        }
        return nil
    }

    /// The segment was sent again.
    mutating func markSent(_ id: Int, at time: Microseconds, isRetransmission: Bool = true) {
        if self[id].isLost {
            self[id].isLost = false
            lostBytes -= Int(self[id].length)
        } else if !self[id].isSacked {
            unlink(id)
        } else {
            return
        }
        self[id].sentAt = time
        if isRetransmission { self[id].isRetransmitted = true }
        link(id)
    }

    // MARK: Acknowledgment

    /// Takes the first segment away when it is acknowledged up to here, or cuts off what is.
    /// - Returns: the segment as it was; nil when nothing of it is acknowledged.
    mutating func popFirst(upTo acknowledged: SequenceNumber) -> Segment? {
        guard !isEmpty else { return nil }
        let segment = self[first]
        let covered = min(Int(segment.length), acknowledged - segment.start)
        guard covered > 0 else { return nil }
        bytes -= covered
        if segment.isSacked { sackedBytes -= covered }
        if segment.isLost { lostBytes -= covered }
        if covered < Int(segment.length) {
            self[first].start += covered
            self[first].length -= UInt16(covered)
            return nil
        }
        if segment.isSacked { sackedCount -= 1 } else if !segment.isLost { unlink(first) }
        first += 1
        return segment
    }

    /// The first segment that ends behind this number.
    private func firstEnding(after number: SequenceNumber) -> Int {
        var (low, high) = (first, end)
        while low < high {
            let middle = (low + high) / 2
            if self[middle].end > number { high = middle } else { low = middle + 1 }
        }
        return low
    }

    /// Marks the segments that lie whole in the block.
    /// - Parameter found: gets each that was not marked before, as it was.
    mutating func markSacked(_ block: SequenceRange, found: (Segment) -> Void) {
        var start = block.start
        for index in seen.indices where seen[index].start <= start && start < seen[index].end {
            start = seen[index].end
        }
        guard start < block.end, !isEmpty else { return }
        var id = firstEnding(after: start)
        while id < end, self[id].end <= block.end {
            let segment = self[id]
            if !segment.isSacked, segment.start >= block.start {
                found(segment)
                if segment.isLost { lostBytes -= Int(segment.length) } else { unlink(id) }
                self[id].isLost = false
                self[id].isSacked = true
                sackedBytes += Int(segment.length)
                sackedCount += 1
            }
            id += 1
        }
        remember(block)
    }

    private mutating func remember(_ block: SequenceRange) {
        for index in seen.indices where block.contains(seen[index]) {
            seen[index] = block
            return
        }
        seen[nextSeen] = block
        nextSeen = (nextSeen + 1) & 3
    }

    private mutating func forgetSeen() {
        seen = .init(repeating: SequenceRange(start: SequenceNumber(0), end: SequenceNumber(0)))
    }
}
