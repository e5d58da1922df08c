import DequeModule
import IPAddresses
import NIOCore

/// IPv6, TCP, UDP, ICMPv6 echo and TSMP of the tailnet node, as a value without I/O (docs/contracts/tailnet.md#ip,
/// docs/contracts/tailnet.md#tcp; RFC 8200, 9293, 7323, 2018, 6298, 8985, 9438, 5961).
///
/// The driver hands in each packet that the tunnel opened (``receive(_:now:)``), performs what ``nextEvent()`` tells,
/// and takes packets to be sent one by one (``nextPacket(into:now:)``) for as long as the path takes them. After each
/// of these it looks at ``nextDeadline``, and calls ``advance(now:)`` at that time.
///
/// `now` is a monotonic time since some origin; one that goes back counts as standing still.
package struct NetStack: Sendable {
    /// Where packets are for us.
    package var addresses: [IPAddress]
    var context: StackContext
    var connections: [Connection] = []
    var freeSlots: [UInt32] = []
    var lookup: [FlowKey: UInt32] = [:]
    /// The connection that was looked up last.
    var lastFound: (key: FlowKey, slot: Int)?
    var peers = PeerCounts()
    var timeWaits = TimeWaitTable()
    var timers = TimerHeap()
    var udp = UDPFlows()
    var reassembly = Reassembly()
    /// What is on its way in fragments, and the number of the next.
    var fragments: Fragments?
    var nextIdentification: UInt32
    var flows = FlowCounter()
    var answers: Deque<Answer> = []
    var answerBytes = 0
    var unreachables = (second: Microseconds(0), count: 0)
    /// Connections that owe an acknowledgment, and those that have data, in the order of their turns.
    var acknowledging: Deque<UInt32> = []
    var sending: Deque<UInt32> = []
    var nextPort: UInt16
    private var latest: Microseconds = 0

    /// - Parameter addresses: ours; packets to others are dropped.
    /// - Parameter random: for the keys that initial sequence numbers are made with; must be a secure generator outside
    ///   of tests.
    package init(
        addresses: [IPAddress], limits: NetStackLimits = NetStackLimits(),
        random: inout some RandomNumberGenerator
    ) {
        self.addresses = addresses
        let hash = FlowHash(random: &random)
        context = StackContext(limits: limits, budget: BufferBudget(limit: limits.bufferBytes), hash: hash)
        nextPort = UInt16.random(in: .min ... .max, using: &random)
        nextIdentification = UInt32.random(in: .min ... .max, using: &random)
    }

    package var limits: NetStackLimits { context.limits }
    package var counters: NetStackCounters { context.counters }

    /// What happened, in order. Drain after each call.
    package mutating func nextEvent() -> NetStackEvent? { context.events.popFirst() }

    // MARK: Figures

    /// Connections, half-open ones among them.
    package var connectionCount: Int { peers.all.connections }
    package var halfOpenCount: Int { peers.all.halfOpen }
    package var udpFlowCount: Int { peers.all.flows }
    package var timeWaitCount: Int { timeWaits.count }
    /// Bytes that TCP buffers have, used or not.
    package var bufferBytes: Int { context.budget.used }
    /// The same for one address of a peer.
    package func counts(of peer: IPAddress) -> (connections: Int, halfOpen: Int, udpFlows: Int) {
        let counts = peers[peer]
        return (counts.connections, counts.halfOpen, counts.flows)
    }

    /// The packets and flows since this was last called.
    package mutating func takeStatistics() -> FlowStatistics { flows.take() }

    // MARK: Time

    /// When ``advance(now:)`` has to be called; nil when nothing waits for time.
    package var nextDeadline: Duration? {
        let first = min(timers.first, timeWaits.deadline, udp.deadline, reassembly.deadline)
        return first == .never ? nil : .stack(first)
    }

    /// Does what is due.
    package mutating func advance(now: Duration) {
        let now = clock(now)
        while let slot = timers.popDue(now) {
            guard slot < connections.count, connections[slot].state != .free else { continue }
            connections[slot].advance(now: now, context: &context)
            settle(slot, now: now)
        }
        timeWaits.expire(now: now)
        reassembly.expire(now: now, counters: &context.counters)
        while let key = udp.popIdle(now) {
            peers.add(-1, \.flows, of: key.remote.address)
            context.events.append(.flowEnded(local: key.local, remote: key.remote))
        }
    }

    /// Time doesn't go back.
    mutating func clock(_ now: Duration) -> Microseconds {
        latest = max(latest, Microseconds(now))
        return latest
    }

    // MARK: Packets

    /// Takes a packet that a peer sent. Its source is a peer's: the driver has checked that.
    package mutating func receive(_ packet: UnsafeRawBufferPointer, now: Duration) {
        let now = clock(now)
        guard let packet = IPv6Packet(packet) else { return context.counters.drop(.malformed) }
        guard addresses.contains(packet.destination) else { return context.counters.drop(.notForUs) }
        let source = packet.source
        guard !source.isMulticast, !source.isUnspecified, !addresses.contains(source) else {
            return context.counters.drop(.badSource)
        }
        flows.received(IPv6Packet.headerBytes + packet.payload.count)
        guard packet.nextHeader == IPv6Packet.fragmentHeader else { return receiveWhole(packet, now: now) }
        guard
            let whole = reassembly.receive(
                packet, limits: context.limits, now: now, counters: &context.counters)
        else { return }
        whole.bytes.withUnsafeBytes { bytes in
            var packet = packet
            (packet.nextHeader, packet.payload) = (whole.nextHeader, bytes)
            receiveWhole(packet, now: now)
        }
    }

    private mutating func receiveWhole(_ packet: IPv6Packet, now: Microseconds) {
        switch InnerProtocol(rawValue: packet.nextHeader) {
        case .tcp: receiveTCP(packet, now: now)
        case .udp: receiveUDP(packet, now: now)
        case .icmp: receiveICMP(packet)
        case .tsmp: receiveTSMP(packet)
        case nil: context.counters.drop(.unknownProtocol)
        }
    }

    /// Writes the next packet to be sent: the rest of one in fragments, answers and acknowledgments, datagrams, and then
    /// the data of connections in turns.
    /// - Parameter memory: at least 1,280 bytes.
    /// - Returns: its length and destination; nil when there is nothing to send.
    package mutating func nextPacket(
        into memory: UnsafeMutableRawBufferPointer, now: Duration
    ) -> (count: Int, destination: IPAddress)? {
        guard memory.count >= IPv6Packet.mostBytes else { return nil }
        let now = clock(now)
        guard
            let packet = nextFragment(memory) ?? nextAnswer(memory) ?? nextAcknowledgment(memory, now)
                ?? nextDatagram(memory) ?? nextData(memory, now)
        else { return nil }
        flows.sent(packet.count)
        return packet
    }

    private mutating func nextFragment(
        _ memory: UnsafeMutableRawBufferPointer
    ) -> (count: Int, destination: IPAddress)? {
        guard let packet = fragments?.next(into: memory) else { return nil }
        if fragments?.isDone ?? false { fragments = nil }
        return packet
    }

    /// Writes a packet, or, where it is too long for the path, the first of its fragments.
    /// - Parameters:
    ///   - count: bytes after the IPv6 header; at most 65,535.
    ///   - write: writes all of them, and the header.
    mutating func emit(
        _ memory: UnsafeMutableRawBufferPointer, to remote: IPAddress, _ nextHeader: InnerProtocol, count: Int,
        write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> (count: Int, destination: IPAddress)? {
        let total = IPv6Packet.headerBytes + count
        guard total > IPv6Packet.mostBytes else {
            write(memory)
            return (total, remote)
        }
        let whole = [UInt8](unsafeUninitializedCapacity: total) { buffer, used in
            write(UnsafeMutableRawBufferPointer(buffer))
            used = total
        }
        fragments = whole.withUnsafeBytes { Fragments($0, nextHeader, identification: nextIdentification) }
        nextIdentification &+= 1
        return nextFragment(memory)
    }

    private mutating func nextAcknowledgment(
        _ memory: UnsafeMutableRawBufferPointer, _ now: Microseconds
    ) -> (count: Int, destination: IPAddress)? {
        while let slot = acknowledging.popFirst().map(Int.init) {
            connections[slot].waitsForAcknowledgment = false
            // Data may have gone out meanwhile, with the acknowledgment.
            guard connections[slot].receive.mustAcknowledge else { continue }
            if let packet = transmit(slot, memory, now) { return packet }
        }
        return nil
    }

    private mutating func nextData(
        _ memory: UnsafeMutableRawBufferPointer, _ now: Microseconds
    ) -> (count: Int, destination: IPAddress)? {
        while let slot = sending.popFirst().map(Int.init) {
            connections[slot].waitsForData = false
            if let packet = transmit(slot, memory, now) { return packet }
        }
        return nil
    }

    private mutating func transmit(
        _ slot: Int, _ memory: UnsafeMutableRawBufferPointer, _ now: Microseconds
    ) -> (count: Int, destination: IPAddress)? {
        let count = connections[slot].transmit(into: memory, now: now, context: &context)
        schedule(slot)
        guard count > 0 else { return nil }
        enqueue(slot)
        noteFlow(slot)
        return (count, connections[slot].key.remote.address)
    }
}
