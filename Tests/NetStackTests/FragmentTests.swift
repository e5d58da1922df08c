import AgentTestSupport
import IPAddresses
import NIOCore
import Testing

@testable import NetStack

/// Packets that are too long for the path, and those that come in pieces (RFC 8200, 4.5; RFC 5722; RFC 6946).
@Suite struct FragmentTests {
    private static let port: UInt16 = 53_000

    /// What the stack sends for a datagram of ours.
    private func sent(_ peer: inout RawPeer, _ payload: [UInt8]) -> [[UInt8]] {
        let isSent = peer.stack.sendDatagram(
            from: Endpoint(ours, Self.port), to: Endpoint(theirs, 7), ByteBuffer(bytes: payload), now: peer.now)
        #expect(isSent)
        return peer.stack.packets(now: peer.now)
    }

    private func fragment(
        _ identification: UInt32, at offset: Int, more: Bool, _ bytes: [UInt8], next: UInt8 = 17,
        from source: IPAddress = theirs
    ) -> [UInt8] {
        let place = UInt16(offset) | (more ? 1 : 0)
        let head: [UInt8] = [next, 0, UInt8(place >> 8), UInt8(place & 255)]
        let number = (0..<4).map { UInt8(truncatingIfNeeded: identification >> (24 - 8 * $0)) }
        return RawPeer.packet(from: source, to: ours, next: 44, head + number + bytes, checksumAt: nil)
    }

    /// A whole UDP datagram for us, without its IPv6 header.
    private func udp(_ payload: [UInt8], from source: IPAddress = theirs) -> [UInt8] {
        let count = UInt16(payload.count + 8)
        let head: [UInt8] = [
            0, 7, UInt8(Self.port >> 8), UInt8(Self.port & 255), UInt8(count >> 8), UInt8(count & 255), 0, 0,
        ]
        return Array(RawPeer.packet(from: source, to: ours, next: 17, head + payload, checksumAt: 6)[40...])
    }

    private func payloads(_ peer: inout RawPeer) -> [[UInt8]] {
        peer.stack.allEvents().compactMap { event in
            guard case .datagram(_, _, let payload) = event else { return nil }
            return Array(payload.readableBytesView)
        }
    }

    /// In any order and with repetitions, what one stack cuts another puts together.
    @Test func whatIsCutIsPutTogether() {
        var random = SeededGenerator("whatIsCutIsPutTogether")
        for count in [1_232, 1_233, 1_224, 2_456, 2_457, 4_000, 65_527]
            + (0..<30).map({ _ in Int.random(in: 1...65_527, using: &random) })
        {
            var (sender, receiver) = (RawPeer(), RawPeer())
            let payload = (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &random) }
            var packets = sent(&sender, payload)
            #expect(packets.count == (count <= 1_232 ? 1 : (count + 8 + 1_231) / 1_232), "\(count) bytes")
            #expect(packets.allSatisfy { $0.count <= 1_280 })
            // To us, from the peer.
            for index in packets.indices {
                packets[index].replaceSubrange(8..<40, with: theirs.bytes + ours.bytes)
            }
            let repeated = packets.filter { _ in Bool.random(using: &random) }
            packets = packets.count == 1 ? packets : (packets + repeated).shuffled(using: &random)
            for packet in packets { receiver.stack.receive(packet, now: receiver.now) }
            #expect(payloads(&receiver).first == payload, "\(count) bytes, seed \(random.seed)")
            #expect(receiver.stack.counters.allDrops == 0)
        }
    }

    @Test func aLongEchoIsAnswered() {
        var peer = RawPeer()
        let rest = (4..<5_000).map { UInt8(truncatingIfNeeded: $0) }
        let ping = Array(RawPeer.packet(from: theirs, to: ours, next: 58, [128, 0, 0, 0] + rest, checksumAt: 2)[40...])
        for offset in stride(from: 0, to: ping.count, by: 1_000) {
            let end = min(offset + 1_000, ping.count)
            peer.stack.receive(
                fragment(1, at: offset, more: end < ping.count, Array(ping[offset..<end]), next: 58), now: peer.now)
        }
        let answer = peer.stack.packets(now: peer.now)
        #expect(answer.count == 5)
        let whole = answer.flatMap { Array($0[48...]) }
        #expect(
            whole
                == Array(RawPeer.packet(from: ours, to: theirs, next: 58, [129, 0, 0, 0] + rest, checksumAt: 2)[40...]))
    }

    @Test func overlapsEndThePacket() {
        let whole = udp(patternBytes(0, 3_000, salt: 1))
        func piece(_ range: Range<Int>, _ change: UInt8 = 0) -> [UInt8] {
            fragment(9, at: range.lowerBound, more: range.upperBound < whole.count, whole[range].map { $0 ^ change })
        }
        let (a, b, c) = (0..<1_000, 1_000..<2_000, 2_000..<whole.count)
        let cases: [(String, [[UInt8]], isWhole: Bool)] = [
            ("in order", [piece(a), piece(b), piece(c)], true),
            ("the same twice", [piece(a), piece(a), piece(c), piece(c), piece(b)], true),
            ("part of one, the same bytes", [piece(a), piece(b), piece(504..<800), piece(c)], true),
            ("the same place, other bytes", [piece(a), piece(a, 1), piece(b), piece(c)], false),
            ("across two", [piece(a), piece(504..<1_504), piece(b), piece(c)], false),
            (
                "beyond the end",
                [piece(c), fragment(9, at: 3_200, more: true, [UInt8](repeating: 0, count: 8)), piece(a), piece(b)],
                false
            ),
            ("two ends", [fragment(9, at: 1_000, more: false, Array(whole[b])), piece(c), piece(a), piece(b)], false),
        ]
        for (what, packets, isWhole) in cases {
            var peer = RawPeer()
            for packet in packets { peer.stack.receive(packet, now: peer.now) }
            #expect(payloads(&peer).count == (isWhole ? 1 : 0), "\(what)")
            #expect((peer.stack.counters[.badFragment] > 0) == !isWhole, "\(what)")
            #expect(peer.stack.reassembly.count == (isWhole ? 0 : 1), "\(what)")
            // Its number is free again after its time.
            _ = peer.wait(.seconds(61))
            for packet in [piece(a), piece(b), piece(c)] { peer.stack.receive(packet, now: peer.now) }
            #expect(payloads(&peer).count == 1, "\(what)")
        }
    }

    @Test func wrongFragments() {
        var peer = RawPeer()
        let eight = [UInt8](repeating: 1, count: 8)
        for (reason, packet) in [
            (DropReason.malformed, RawPeer.packet(from: theirs, to: ours, next: 44, [17, 0, 0, 0], checksumAt: nil)),
            (.badFragment, fragment(1, at: 0, more: true, [1, 2, 3])),
            (.badFragment, fragment(1, at: 0, more: true, [])),
            (.badFragment, fragment(1, at: 65_528, more: true, eight)),
            (.badFragment, fragment(1, at: 65_528, more: false, eight)),
        ] {
            let before = peer.stack.counters[reason]
            peer.stack.receive(packet, now: peer.now)
            #expect(peer.stack.counters[reason] == before + 1)
        }
        #expect(peer.stack.reassembly.count == 0)
        peer.stack.receive(fragment(1, at: 65_520, more: true, eight), now: peer.now)
        peer.stack.receive(fragment(1, at: 65_528, more: false, Array(eight.dropLast())), now: peer.now)
        #expect(peer.stack.reassembly.count == 1)
        // A fragment that is all of its packet needs no place.
        peer.stack.receive(fragment(1, at: 0, more: false, udp([1, 2, 3])), now: peer.now)
        #expect(payloads(&peer) == [[1, 2, 3]] && peer.stack.reassembly.count == 1)
    }

    @Test func whatIsIncompleteIsForgotten() {
        var peer = RawPeer()
        peer.stack.receive(fragment(1, at: 0, more: true, [UInt8](repeating: 1, count: 8)), now: peer.now)
        _ = peer.wait(.milliseconds(59_999))
        #expect(peer.stack.reassembly.count == 1 && peer.stack.nextDeadline != nil)
        _ = peer.wait(.milliseconds(2))
        #expect(peer.stack.reassembly.count == 0 && peer.stack.counters[.fragmentTimeout] == 1)
    }

    @Test func theOldestMakesRoom() {
        var limits = NetStackLimits()
        (limits.fragmentedPackets, limits.fragmentedPacketsPerPeer) = (5, 3)
        var peer = RawPeer(limits)
        func begin(_ number: UInt32, from source: IPAddress = theirs) {
            peer.stack.receive(
                fragment(number, at: 8, more: true, [UInt8](repeating: 1, count: 8), from: source), now: peer.now)
        }
        for number: UInt32 in 1...3 { begin(number) }
        #expect(peer.stack.reassembly.count == 3 && peer.stack.counters.allDrops == 0)
        begin(4)
        #expect(peer.stack.reassembly.count == 3 && peer.stack.counters[.fragmentLimit] == 1)
        begin(1, from: other(1))
        begin(2, from: other(1))
        #expect(peer.stack.reassembly.count == 5 && peer.stack.counters[.fragmentLimit] == 1)
        begin(3, from: other(1))
        #expect(peer.stack.reassembly.count == 5 && peer.stack.counters[.fragmentLimit] == 2)
    }

    @Test func piecesOfAPacketAreBounded() {
        var limits = NetStackLimits()
        limits.fragmentRanges = 3
        var peer = RawPeer(limits)
        let eight = [UInt8](repeating: 1, count: 8)
        for offset in [16, 48, 80] { peer.stack.receive(fragment(1, at: offset, more: true, eight), now: peer.now) }
        // One that joins another is no further piece.
        peer.stack.receive(fragment(1, at: 24, more: true, eight), now: peer.now)
        #expect(peer.stack.counters.allDrops == 0)
        peer.stack.receive(fragment(1, at: 112, more: true, eight), now: peer.now)
        #expect(peer.stack.counters[.badFragment] == 1)
    }

    // MARK: Closed ports

    @Test func aClosedPortIsSaid() throws {
        var peer = RawPeer()
        for count in [0, 3, 1_184, 1_185, 5_000] {
            let payload = patternBytes(0, count, salt: 3)
            peer.stack.portUnreachable(
                from: Endpoint(ours, Self.port), to: Endpoint(theirs, 7), ByteBuffer(bytes: payload), now: peer.now)
            let packet = try #require(peer.stack.packets(now: peer.now).first)
            #expect(packet.count == min(1_280, 96 + count))
            let datagram = udp(payload)
            var quoted = RawPeer.packet(from: theirs, to: ours, next: 17, datagram, checksumAt: nil)
            quoted = Array(quoted.prefix(1_232))
            #expect(
                packet
                    == RawPeer.packet(
                        from: ours, to: theirs, next: 58, [1, 4, 0, 0, 0, 0, 0, 0] + quoted, checksumAt: 2))
        }
    }

    @Test func answersOfClosedPortsAreBounded() {
        var limits = NetStackLimits()
        limits.unreachablesPerSecond = 3
        var peer = RawPeer(limits)
        func ask() {
            peer.stack.portUnreachable(
                from: Endpoint(ours, 1), to: Endpoint(theirs, 7), ByteBuffer(bytes: [1]), now: peer.now)
        }
        _ = peer.wait(.milliseconds(100))
        for _ in 0..<4 { ask() }
        #expect(peer.stack.packets(now: peer.now).count == 3 && peer.stack.counters[.unreachableLimit] == 1)
        _ = peer.wait(.seconds(1))
        ask()
        #expect(peer.stack.packets(now: peer.now).count == 1)
    }
}
