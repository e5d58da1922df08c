import IPAddresses

/// Puts fragments of IPv6 packets together (RFC 8200, 4.5). Fragments that overlap end their packet, those to come
/// included (RFC 5722); a packet in a single fragment waits for no other (RFC 6946).
///
/// Memory: ``NetStackLimits/fragmentedPackets`` of at most 64 KiB each.
struct Reassembly: Sendable {
    fileprivate struct Key: Hashable, Sendable {
        var source: IPAddress
        var destination: IPAddress
        var identification: UInt32
    }

    fileprivate struct Packet: Sendable {
        var key: Key
        var expires: Microseconds
        /// From the fragment at offset 0.
        var nextHeader: UInt8?
        /// Of the whole, once the last fragment has come.
        var count: Int?
        var bytes: [UInt8] = []
        /// What has come: sorted, and apart from one another.
        var ranges: [Range<Int>] = []
        /// It can no longer become whole; its further fragments are dropped until it expires.
        var isRefused = false

        var isWhole: Bool { nextHeader != nil && ranges.count == 1 && count.map { ranges[0] == 0..<$0 } ?? false }
    }

    static let headerBytes = 8
    private static let mostBytes = 65_535

    /// In the order of their first fragments, and so of their end.
    private var packets: [Packet] = []

    var count: Int { packets.count }
    /// When ``expire(now:)`` has to be called.
    var deadline: Microseconds { packets.first?.expires ?? .never }

    /// Drops what has not become whole in time.
    mutating func expire(now: Microseconds, counters: inout NetStackCounters) {
        while let first = packets.first, first.expires <= now {
            if !first.isRefused { counters.drop(.fragmentTimeout) }
            packets.removeFirst()
        }
    }

    /// Adds a fragment.
    /// - Parameter packet: its payload begins with a fragment header.
    /// - Returns: the whole packet's next header and what follows it, once all of it is there.
    mutating func receive(
        _ packet: IPv6Packet, limits: NetStackLimits, now: Microseconds, counters: inout NetStackCounters
    ) -> (nextHeader: UInt8, bytes: [UInt8])? {
        guard packet.payload.count >= Self.headerBytes else {
            counters.drop(.malformed)
            return nil
        }
        let place = packet.payload.number(at: 2, as: UInt16.self)
        let (offset, isLast) = (Int(place & 0xfff8), place & 1 == 0)
        let bytes = UnsafeRawBufferPointer(rebasing: packet.payload[Self.headerBytes...])
        let nextHeader = packet.payload[0]
        if offset == 0, isLast { return (nextHeader, Array(bytes)) }
        guard !bytes.isEmpty, isLast || bytes.count % 8 == 0, offset + bytes.count <= Self.mostBytes else {
            counters.drop(.badFragment)
            return nil
        }
        let key = Key(
            source: packet.source, destination: packet.destination, identification: packet.payload.number(at: 4))
        let index = packets.firstIndex { $0.key == key } ?? begin(key, limits, now: now, &counters)
        guard packets[index].add(bytes, at: offset, isLast: isLast, nextHeader, limits) else {
            counters.drop(.badFragment)
            return nil
        }
        guard packets[index].isWhole, let first = packets[index].nextHeader else { return nil }
        return (first, packets.remove(at: index).bytes)
    }

    /// Begins a packet; its sender's oldest makes room where it has too many, else the oldest of all.
    private mutating func begin(
        _ key: Key, _ limits: NetStackLimits, now: Microseconds, _ counters: inout NetStackCounters
    ) -> Int {
        let ofSender = packets.lazy.filter { $0.key.source == key.source }.count
        var oldest: Int?
        if ofSender >= limits.fragmentedPacketsPerPeer {
            oldest = packets.firstIndex { $0.key.source == key.source }
        } else if packets.count >= limits.fragmentedPackets {
            oldest = packets.indices.first
        }
        if let oldest {
            packets.remove(at: oldest)
            counters.drop(.fragmentLimit)
        }
        packets.append(Packet(key: key, expires: now + Microseconds(limits.fragmentLife)))
        return packets.count - 1
    }
}

extension Reassembly.Packet {
    /// - Returns: false when the fragment, or its packet with it, is dropped.
    fileprivate mutating func add(
        _ fragment: UnsafeRawBufferPointer, at offset: Int, isLast: Bool, _ next: UInt8, _ limits: NetStackLimits
    ) -> Bool {
        guard !isRefused else { return false }
        let range = offset..<offset + fragment.count
        let end = isLast ? range.upperBound : count
        // After the last fragment there is nothing, and it is where it was.
        let isBeyond = end.map { end in end < range.upperBound || (ranges.last?.upperBound ?? 0) > end } ?? false
        let moves = isLast && count.map { $0 != range.upperBound } ?? false
        if isBeyond || moves { return refuse() }
        if let known = ranges.first(where: { $0.overlaps(range) }) {
            // The same bytes once more are no overlap: networks repeat packets.
            let isRepeated =
                known.lowerBound <= range.lowerBound && known.upperBound >= range.upperBound
                && bytes[range].elementsEqual(fragment)
            return isRepeated || refuse()
        }
        guard ranges.count < limits.fragmentRanges || ranges.contains(where: { $0.upperBound == offset }) else {
            return refuse()
        }
        if isLast { count = range.upperBound }
        if offset == 0 { nextHeader = next }
        if bytes.count < range.upperBound {
            bytes.append(contentsOf: repeatElement(0, count: range.upperBound - bytes.count))
        }
        bytes.withUnsafeMutableBytes {
            UnsafeMutableRawBufferPointer(rebasing: $0[range]).copyMemory(from: fragment)
        }
        insert(range)
        return true
    }

    /// No fragment of it makes it whole any more: it keeps its place until it expires, without its bytes.
    private mutating func refuse() -> Bool {
        isRefused = true
        (bytes, ranges) = ([], [])
        return false
    }

    private mutating func insert(_ range: Range<Int>) {
        let index = ranges.firstIndex { $0.lowerBound > range.lowerBound } ?? ranges.count
        ranges.insert(range, at: index)
        if index + 1 < ranges.count, ranges[index].upperBound == ranges[index + 1].lowerBound {
            ranges[index] = ranges[index].lowerBound..<ranges.remove(at: index + 1).upperBound
        }
        if index > 0, ranges[index - 1].upperBound == ranges[index].lowerBound {
            ranges[index - 1] = ranges[index - 1].lowerBound..<ranges.remove(at: index).upperBound
        }
    }
}
