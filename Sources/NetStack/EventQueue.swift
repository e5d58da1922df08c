import DequeModule

/// Events that wait for the driver. Those of a connection are few, since the same isn't said twice before the driver
/// acted on it; bytes of datagrams are counted.
struct EventQueue: Sendable {
    private var events: Deque<NetStackEvent> = []
    private(set) var datagramBytes = 0

    var count: Int { events.count }

    mutating func append(_ event: NetStackEvent) {
        if case .datagram(_, _, let payload) = event { datagramBytes += Self.cost(payload.readableBytes) }
        events.append(event)
    }

    mutating func popFirst() -> NetStackEvent? {
        let event = events.popFirst()
        if case .datagram(_, _, let payload) = event { datagramBytes -= Self.cost(payload.readableBytes) }
        return event
    }

    /// What a datagram takes in memory, roughly: an empty one isn't free.
    static func cost(_ bytes: Int) -> Int { bytes + 128 }
}
