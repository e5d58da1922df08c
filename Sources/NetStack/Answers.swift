import IPAddresses

/// Packets that belong to no connection, or to one that is gone.
enum Answer: Sendable {
    case segment(FlowKey, TCPHeader)
    /// Our address, the peer's, and the 8 bytes of the ping.
    case tsmp(local: IPAddress, remote: IPAddress, UInt64)
    /// Our address, the peer's, and the request behind type, code and checksum.
    case echo(local: IPAddress, remote: IPAddress, [UInt8])
    /// Our address, the peer's, and the beginning of its datagram with the IPv6 header.
    case portUnreachable(local: IPAddress, remote: IPAddress, [UInt8])

    /// Bytes that it holds beside itself.
    var bytes: Int {
        switch self {
        case .segment, .tsmp: 0
        case .echo(_, _, let bytes), .portUnreachable(_, _, let bytes): bytes.count
        }
    }
}

extension NetStack {
    private static let echoRequest: UInt8 = 128
    private static let echoReply: UInt8 = 129
    /// Destination unreachable, and the code that says that the port is.
    private static let unreachable: (type: UInt8, port: UInt8) = (1, 4)
    /// `'p'` and 8 bytes.
    private static let tsmpPing = UInt8(ascii: "p")
    private static let tsmpPong = UInt8(ascii: "o")
    /// What the reference puts there, for TSMP alone.
    private static let tsmpFlowLabel: UInt32 = 0xfffff

    mutating func answer(_ answer: Answer) {
        guard answers.count < context.limits.answers, answerBytes + answer.bytes <= context.limits.datagramBytes
        else { return context.counters.drop(.answerLimit) }
        answerBytes += answer.bytes
        answers.append(answer)
    }

    private func key(_ packet: IPv6Packet) -> FlowKey {
        FlowKey(local: Endpoint(packet.destination, 0), remote: Endpoint(packet.source, 0))
    }

    mutating func receiveTSMP(_ packet: IPv6Packet) {
        guard packet.payload.count == 9, packet.payload[0] == Self.tsmpPing else {
            return context.counters.drop(.unknownMessage)
        }
        noteFlow(.tsmp, key(packet))
        let nonce: UInt64 = packet.payload.number(at: 1)
        answer(.tsmp(local: packet.destination, remote: packet.source, nonce))
    }

    mutating func receiveICMP(_ packet: IPv6Packet) {
        let payload = packet.payload
        guard payload.count >= 8 else { return context.counters.drop(.malformed) }
        var sum = Checksum(
            from: packet.source, to: packet.destination, nextHeader: packet.nextHeader, count: payload.count)
        sum.add(payload)
        guard sum.stored == 0 else { return context.counters.drop(.badChecksum) }
        guard payload[0] == Self.echoRequest, payload[1] == 0 else { return context.counters.drop(.unknownMessage) }
        noteFlow(.icmp, key(packet))
        answer(.echo(local: packet.destination, remote: packet.source, Array(payload[4...])))
    }

    mutating func nextAnswer(_ memory: UnsafeMutableRawBufferPointer) -> (count: Int, destination: IPAddress)? {
        let answer = answers.popFirst()
        answerBytes -= answer?.bytes ?? 0
        switch answer {
        case nil: return nil
        case .segment(let key, let header):
            return (header.finish(key, payload: 0, in: memory), key.remote.address)
        case .tsmp(let local, let remote, let nonce):
            let start = IPv6Packet.headerBytes
            IPv6Packet.writeHeader(
                into: memory, from: local, to: remote, nextHeader: .tsmp, count: 11, flowLabel: Self.tsmpFlowLabel)
            memory.store(Self.tsmpPong, at: start)
            memory.store(nonce, at: start + 1)
            memory.store(UInt16(0), at: start + 9)
            return (start + 11, remote)
        case .echo(let local, let remote, let rest):
            return emit(memory, to: remote, .icmp, count: rest.count + 4) { memory in
                Self.writeICMP(UInt32(Self.echoReply) << 24, rest, into: memory, from: local, to: remote)
            }
        case .portUnreachable(let local, let remote, let quoted):
            let head = UInt32(Self.unreachable.type) << 24 | UInt32(Self.unreachable.port) << 16
            return emit(memory, to: remote, .icmp, count: quoted.count + 8) { memory in
                Self.writeICMP(head, [0, 0, 0, 0] + quoted, into: memory, from: local, to: remote)
            }
        }
    }

    /// - Parameters:
    ///   - head: type, code, and zeros for the checksum.
    ///   - rest: what follows them.
    private static func writeICMP(
        _ head: UInt32, _ rest: [UInt8], into memory: UnsafeMutableRawBufferPointer, from local: IPAddress,
        to remote: IPAddress
    ) {
        let (start, count) = (IPv6Packet.headerBytes, rest.count + 4)
        IPv6Packet.writeHeader(into: memory, from: local, to: remote, nextHeader: .icmp, count: count)
        memory.store(head, at: start)
        rest.withUnsafeBytes {
            UnsafeMutableRawBufferPointer(rebasing: memory[(start + 4)...]).copyMemory(from: $0)
        }
        memory.storeChecksum(at: 2, from: local, to: remote, nextHeader: .icmp, count: count)
    }
}
