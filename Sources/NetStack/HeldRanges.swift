/// Which data behind a gap has come: ranges in order that neither touch nor overlap. The data itself lies in the
/// receive buffer already.
struct HeldRanges: Sendable {
    private struct Held: Sendable {
        var range: SequenceRange
        /// Grows with each segment that came, to report the latest first (RFC 2018, 4).
        var touched: UInt32
    }

    private var held: [Held] = []
    private var touches: UInt32 = 0
    private(set) var bytes = 0

    var isEmpty: Bool { held.isEmpty }
    var count: Int { held.count }
    /// Where the last range ends.
    var end: SequenceNumber? { held.last?.range.end }

    mutating func release() { self = HeldRanges() }

    /// The union of a segment with the ranges that it touches, and where those are.
    private func union(_ range: SequenceRange) -> (places: Range<Int>, range: SequenceRange) {
        var first = held.count
        // Segments mostly belong to the end.
        while first > 0, held[first - 1].range.end >= range.start { first -= 1 }
        var (last, union) = (first, range)
        while last < held.count, held[last].range.start <= union.end {
            union.start = .earlier(union.start, held[last].range.start)
            union.end = .later(union.end, held[last].range.end)
            last += 1
        }
        return (first..<last, union)
    }

    /// Bytes that the segment would add, and ranges (0, 1, or less than 0).
    func growth(_ range: SequenceRange) -> (bytes: Int, ranges: Int) {
        let (places, union) = union(range)
        return (union.count - held[places].reduce(0) { $0 + $1.range.count }, 1 - places.count)
    }

    mutating func insert(_ range: SequenceRange) {
        let (places, union) = union(range)
        bytes += union.count - held[places].reduce(0) { $0 + $1.range.count }
        touches &+= 1
        held.replaceSubrange(places, with: CollectionOfOne(Held(range: union, touched: touches)))
    }

    /// Takes the ranges that data up to `next` reaches.
    /// - Returns: up to where data is complete now.
    mutating func take(from next: SequenceNumber) -> SequenceNumber {
        var (next, count) = (next, 0)
        while count < held.count, held[count].range.start <= next {
            next = .later(next, held[count].range.end)
            bytes -= held[count].range.count
            count += 1
        }
        if count > 0 { held.removeFirst(count) }
        return next
    }

    /// The ranges for an acknowledgment, the one that changed last first.
    func blocks(after duplicate: SequenceRange?, most: Int) -> SACKBlocks {
        var blocks = SACKBlocks()
        if let duplicate { blocks.append(duplicate) }
        var limit: UInt32 = .max
        while blocks.count < most {
            var best: Held?
            for held in held where held.touched < limit && held.touched > best?.touched ?? 0 { best = held }
            guard let best else { break }
            blocks.append(best.range)
            limit = best.touched
        }
        return blocks
    }
}
