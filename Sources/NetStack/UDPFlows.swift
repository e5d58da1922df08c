import DequeModule
import IPAddresses
import NIOCore

/// Which UDP flows there are, and the datagrams that wait to be sent.
struct UDPFlows: Sendable {
    private struct Flow: Sendable {
        var item: Int
        var expires: Microseconds
        var countedIn: UInt32 = .max
    }

    struct Datagram: Sendable {
        var local: Endpoint
        var remote: Endpoint
        var payload: ByteBuffer
    }

    private var flows: [FlowKey: Flow] = [:]
    /// The flow of each timer.
    private var keys: [FlowKey?] = []
    private var free: [Int] = []
    private var timers = TimerHeap()
    private var outgoing: Deque<Datagram> = []
    private(set) var outgoingBytes = 0

    var deadline: Microseconds { timers.first }

    /// A datagram goes through a flow.
    /// - Returns: nil when there is no such flow; else whether this is its first in an interval of statistics.
    mutating func touch(_ key: FlowKey, expires: Microseconds, interval: UInt32) -> Bool? {
        guard let index = flows.index(forKey: key) else { return nil }
        flows.values[index].expires = expires
        let isFirst = flows.values[index].countedIn != interval
        flows.values[index].countedIn = interval
        return isFirst
    }

    mutating func insert(_ key: FlowKey, expires: Microseconds) {
        let item = free.popLast() ?? keys.count
        if item == keys.count { keys.append(key) } else { keys[item] = key }
        flows[key] = Flow(item: item, expires: expires)
        timers.set(item, expires)
    }

    private mutating func remove(_ key: FlowKey) {
        guard let flow = flows.removeValue(forKey: key) else { return }
        timers.set(flow.item, .never)
        keys[flow.item] = nil
        free.append(flow.item)
    }

    /// Takes a flow that is idle for too long.
    mutating func popIdle(_ now: Microseconds) -> FlowKey? {
        while let item = timers.popDue(now) {
            guard let key = keys[item], let flow = flows[key] else { continue }
            if flow.expires <= now {
                remove(key)
                return key
            }
            timers.set(item, flow.expires)
        }
        return nil
    }

    mutating func removeAll(of peer: IPAddress) -> [FlowKey] {
        let gone = flows.keys.filter { $0.remote.address == peer }
        for key in gone { remove(key) }
        return gone
    }

    mutating func enqueue(_ datagram: Datagram) {
        outgoingBytes += EventQueue.cost(datagram.payload.readableBytes)
        outgoing.append(datagram)
    }

    mutating func popOutgoing() -> Datagram? {
        guard let datagram = outgoing.popFirst() else { return nil }
        outgoingBytes -= EventQueue.cost(datagram.payload.readableBytes)
        return datagram
    }
}

extension NetStack {
    private static let udpHeaderBytes = 8
    /// The longest payload of a datagram; one that is too long for the path goes in fragments.
    package static let mostDatagramBytes = Int(UInt16.max) - udpHeaderBytes

    private func expiry(_ key: FlowKey, now: Microseconds) -> Microseconds {
        now + Microseconds(key.local.port == 53 ? context.limits.dnsIdle : context.limits.udpIdle)
    }

    mutating func receiveUDP(_ packet: IPv6Packet, now: Microseconds) {
        let bytes = packet.payload
        guard bytes.count >= Self.udpHeaderBytes else { return context.counters.drop(.malformed) }
        let length = Int(bytes.number(at: 4, as: UInt16.self))
        guard length >= Self.udpHeaderBytes, length <= bytes.count else { return context.counters.drop(.malformed) }
        // There is no UDP without a checksum here (RFC 8200, 8.1).
        var sum = Checksum(from: packet.source, to: packet.destination, nextHeader: packet.nextHeader, count: length)
        sum.add(UnsafeRawBufferPointer(rebasing: bytes[..<length]))
        guard bytes.number(at: 6, as: UInt16.self) != 0, sum.stored == 0 else {
            return context.counters.drop(.badChecksum)
        }
        let key = FlowKey(
            local: Endpoint(packet.destination, bytes.number(at: 2)),
            remote: Endpoint(packet.source, bytes.number(at: 0)))
        guard key.local.port != 0, key.remote.port != 0 else { return context.counters.drop(.malformed) }
        let payload = ByteBuffer(bytes: bytes[Self.udpHeaderBytes..<length])
        guard context.events.datagramBytes + EventQueue.cost(payload.readableBytes) <= context.limits.datagramBytes
        else { return context.counters.drop(.datagramLimit) }
        guard admit(key, now: now) else { return }
        context.events.append(.datagram(local: key.local, remote: key.remote, payload))
    }

    /// Refreshes the flow of a datagram, or begins it.
    private mutating func admit(_ key: FlowKey, now: Microseconds) -> Bool {
        let expires = expiry(key, now: now)
        if let isFirst = udp.touch(key, expires: expires, interval: flows.interval) {
            if isFirst { noteFlow(.udp, key) }
            return true
        }
        guard peers.all.flows < context.limits.udpFlows else {
            context.counters.drop(.flowLimit)
            return false
        }
        guard peers[key.remote.address].flows < context.limits.udpFlowsPerPeer else {
            context.counters.drop(.peerFlowLimit)
            return false
        }
        udp.insert(key, expires: expires)
        peers.add(1, \.flows, of: key.remote.address)
        return admit(key, now: now)
    }

    /// Sends a UDP datagram.
    /// - Returns: false when it is longer than ``mostDatagramBytes``, not from an address of ours, or a limit is hit.
    @discardableResult
    package mutating func sendDatagram(
        from local: Endpoint, to remote: Endpoint, _ payload: ByteBuffer, now: Duration
    ) -> Bool {
        guard payload.readableBytes <= Self.mostDatagramBytes, addresses.contains(local.address) else { return false }
        guard udp.outgoingBytes + EventQueue.cost(payload.readableBytes) <= context.limits.datagramBytes else {
            context.counters.drop(.datagramLimit)
            return false
        }
        guard admit(FlowKey(local: local, remote: remote), now: clock(now)) else { return false }
        udp.enqueue(UDPFlows.Datagram(local: local, remote: remote, payload: payload))
        return true
    }

    mutating func nextDatagram(_ memory: UnsafeMutableRawBufferPointer) -> (count: Int, destination: IPAddress)? {
        guard let datagram = udp.popOutgoing() else { return nil }
        let count = Self.udpHeaderBytes + datagram.payload.readableBytes
        return emit(memory, to: datagram.remote.address, .udp, count: count) { Self.write(datagram, into: $0) }
    }

    /// Writes a datagram with its headers.
    private static func write(_ datagram: UDPFlows.Datagram, into memory: UnsafeMutableRawBufferPointer) {
        let (local, remote) = (datagram.local, datagram.remote)
        let start = IPv6Packet.headerBytes
        let count = udpHeaderBytes + datagram.payload.readableBytes
        IPv6Packet.writeHeader(
            into: memory, from: local.address, to: remote.address, nextHeader: .udp, count: count)
        memory.store(local.port, at: start)
        memory.store(remote.port, at: start + 2)
        memory.store(UInt16(truncatingIfNeeded: count), at: start + 4)
        memory.store(UInt16(0), at: start + 6)
        datagram.payload.withUnsafeReadableBytes {
            UnsafeMutableRawBufferPointer(rebasing: memory[(start + udpHeaderBytes)...]).copyMemory(from: $0)
        }
        memory.storeChecksum(at: 6, from: local.address, to: remote.address, nextHeader: .udp, count: count)
    }

    /// Says that no program listens at the port that a peer's datagram was for (RFC 4443, 3.1: code 4).
    /// - Parameter payload: the datagram's, whole.
    package mutating func portUnreachable(
        from local: Endpoint, to remote: Endpoint, _ payload: ByteBuffer, now: Duration
    ) {
        guard payload.readableBytes <= Self.mostDatagramBytes, addresses.contains(local.address) else { return }
        let second = clock(now) / 1_000_000
        if unreachables.second != second { unreachables = (second, 0) }
        guard unreachables.count < context.limits.unreachablesPerSecond else {
            return context.counters.drop(.unreachableLimit)
        }
        unreachables.count += 1
        let invoking = UDPFlows.Datagram(local: remote, remote: local, payload: payload)
        let total = IPv6Packet.headerBytes + Self.udpHeaderBytes + payload.readableBytes
        var quoted = [UInt8](unsafeUninitializedCapacity: total) { buffer, used in
            Self.write(invoking, into: UnsafeMutableRawBufferPointer(buffer))
            used = total
        }
        quoted.removeLast(max(0, total - Self.mostQuotedBytes))
        answer(.portUnreachable(local: local.address, remote: remote.address, quoted))
    }

    /// The message with its headers is never longer than the path takes.
    private static let mostQuotedBytes = IPv6Packet.mostBytes - IPv6Packet.headerBytes - 8
}
