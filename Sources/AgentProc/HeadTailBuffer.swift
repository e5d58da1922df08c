import NIOCore

/// Keeps the first and the last bytes of a stream of any length in fixed memory.
///
/// The tail is a ring. Memory is taken as output comes, at most ``headCapacity`` +
/// ``tailCapacity`` bytes.
public struct HeadTailBuffer: Sendable {
    public let headCapacity: Int
    public let tailCapacity: Int
    /// Bytes ever appended.
    public private(set) var total = 0
    private var head: [UInt8] = []
    private var ring: [UInt8] = []
    /// Where the next byte goes once the ring is full; also where the oldest byte is.
    private var cursor = 0

    public init(headCapacity: Int = ProcLimits.headBytes, tailCapacity: Int = ProcLimits.tailBytes) {
        self.headCapacity = headCapacity
        self.tailCapacity = tailCapacity
    }

    /// Bytes that were appended and are no longer here.
    public var omitted: Int { max(0, total - headCapacity - tailCapacity) }

    public mutating func append(_ bytes: UnsafeRawBufferPointer) {
        total += bytes.count
        var rest = bytes[...]
        if head.count < headCapacity {
            let taken = rest.prefix(headCapacity - head.count)
            // An array that grows by itself may get twice as large.
            if head.capacity < headCapacity, head.count + taken.count > headCapacity / 2 {
                head.reserveCapacity(headCapacity)
            }
            head.append(contentsOf: taken)
            rest = rest.dropFirst(taken.count)
        }
        guard !rest.isEmpty, tailCapacity > 0 else { return }
        if rest.count >= tailCapacity {
            ring.removeAll(keepingCapacity: true)
            ring.append(contentsOf: rest.suffix(tailCapacity))
            cursor = 0
            return
        }
        let fits = rest.prefix(tailCapacity - ring.count)
        if !fits.isEmpty {
            if ring.capacity < tailCapacity, ring.count + fits.count > tailCapacity / 2 {
                ring.reserveCapacity(tailCapacity)
            }
            ring.append(contentsOf: fits)
            rest = rest.dropFirst(fits.count)
        }
        while !rest.isEmpty {
            let run = rest.prefix(tailCapacity - cursor)
            ring.withUnsafeMutableBytes { $0[cursor..<(cursor + run.count)].copyBytes(from: run) }
            cursor = (cursor + run.count) % tailCapacity
            rest = rest.dropFirst(run.count)
        }
    }

    /// The first bytes.
    public var headBytes: [UInt8] { head }

    /// The last bytes that are not in the head, in order.
    public var tailBytes: [UInt8] {
        guard ring.count == tailCapacity, cursor > 0 else { return ring }
        return Array(ring[cursor...]) + ring[..<cursor]
    }

    /// Where what is kept of the end begins.
    public var tailStart: Int { total - ring.count }

    /// Bytes from the offset on, as far as they are kept without a gap.
    /// - Returns: nil when the byte at the offset is not kept.
    func bytes(from offset: Int, atMost count: Int) -> ByteBuffer? {
        guard offset >= 0, offset < total, count > 0 else { return nil }
        if offset < head.count { return ByteBuffer(bytes: head[offset...].prefix(count)) }
        guard offset >= tailStart else { return nil }
        var start = offset - tailStart
        if ring.count == tailCapacity { start += cursor }
        var result = ByteBuffer()
        let wanted = min(count, total - offset)
        result.reserveCapacity(wanted)
        if start >= ring.count { start -= ring.count }
        let first = ring[start...].prefix(wanted)
        result.writeBytes(first)
        result.writeBytes(ring.prefix(wanted - first.count))
        return result
    }
}
