import DequeModule

/// Connections that are over, for as long as segments of theirs may be under way (RFC 9293, 3.6.1): apart from the
/// others, since they are many and need little.
struct TimeWaitTable: Sendable {
    struct Entry: Sendable {
        var sendNext: SequenceNumber
        var receiveNext: SequenceNumber
        var usesTimestamps: Bool
        var recentStamp: UInt32
        var stampOffset: UInt32
        var expires: Microseconds
        fileprivate var serial: UInt64 = 0

        init(_ connection: Connection, expires: Microseconds) {
            sendNext = connection.send.next
            receiveNext = connection.receive.next
            usesTimestamps = connection.usesTimestamps
            recentStamp = connection.recentStamp
            stampOffset = connection.stampOffset
            self.expires = expires
        }

        func header(now: Microseconds) -> TCPHeader {
            var header = TCPHeader(sequence: sendNext, flags: .ack)
            header.acknowledgment = receiveNext
            header.window = .max
            if usesTimestamps {
                header.timestamps = .init(value: Connection.stamp(now, offset: stampOffset), echo: recentStamp)
            }
            return header
        }
    }

    private var entries: [FlowKey: Entry] = [:]
    private var queue: Deque<(key: FlowKey, due: Microseconds, serial: UInt64)> = []
    private var serial: UInt64 = 0

    var count: Int { entries.count }
    var deadline: Microseconds { queue.first?.due ?? .never }

    subscript(key: FlowKey) -> Entry? { entries[key] }

    /// - Returns: how many made room.
    mutating func insert(_ key: FlowKey, _ entry: Entry, most: Int) -> Int {
        guard most > 0 else { return 0 }
        var removed = 0
        while queue.count >= most, let oldest = queue.popFirst() {
            if entries[oldest.key]?.serial == oldest.serial {
                entries[oldest.key] = nil
                removed += 1
            }
        }
        serial += 1
        var entry = entry
        entry.serial = serial
        entries[key] = entry
        queue.append((key, entry.expires, serial))
        return removed
    }

    mutating func remove(_ key: FlowKey) { entries[key] = nil }

    mutating func removeAll(where isGone: (FlowKey) -> Bool) {
        for key in entries.keys.filter(isGone) { entries[key] = nil }
    }

    /// The peer's FIN came again: the wait begins anew.
    mutating func extend(_ key: FlowKey, to time: Microseconds) { entries[key]?.expires = time }

    mutating func expire(now: Microseconds) {
        while let first = queue.first, first.due <= now {
            queue.removeFirst()
            guard let entry = entries[first.key], entry.serial == first.serial else { continue }
            if entry.expires <= now {
                entries[first.key] = nil
            } else {
                queue.append((first.key, entry.expires, first.serial))
            }
        }
    }
}
