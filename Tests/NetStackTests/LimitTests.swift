import AgentTestSupport
import IPAddresses
import NIOCore
import Testing

@testable import NetStack

/// Each bound at, below and above.
@Suite struct LimitTests {
    /// Asks for connections, each from another port, and takes them.
    private func ask(_ peer: inout RawPeer, _ count: Int, from address: IPAddress = theirs, isEstablished: Bool = true)
    {
        for _ in 0..<count {
            var one = peer
            one.address = address
            one.send(.syn, options: RawPeer.synOptions)
            if case .connectionRequested(let id, _, _)? = one.stack.nextEvent() {
                one.stack.accept(id, now: one.now)
                if isEstablished, let answer = one.replies().first {
                    one.expected = answer.sequence &+ 1
                    one.next = 1_001
                    one.send(.ack)
                }
                _ = one.stack.allEvents()
            }
            peer.stack = one.stack
            peer.port += 1
        }
    }

    @Test func connections() {
        var limits = NetStackLimits()
        (limits.connections, limits.connectionsPerPeer) = (5, 3)
        var peer = RawPeer(limits)
        ask(&peer, 2)
        #expect(peer.stack.connectionCount == 2 && peer.stack.counters.allDrops == 0)
        ask(&peer, 1)
        #expect(peer.stack.connectionCount == 3 && peer.stack.counters.allDrops == 0)
        ask(&peer, 1)
        #expect(peer.stack.counters[.peerConnectionLimit] == 1)
        ask(&peer, 2, from: other(1))
        #expect(peer.stack.connectionCount == 5 && peer.stack.counters.allDrops == 1)
        ask(&peer, 1, from: other(1))
        #expect(peer.stack.connectionCount == 5 && peer.stack.counters[.connectionLimit] == 1)
        #expect(peer.stack.counts(of: theirs).connections == 3)
        peer.stack.reset(peer: theirs)
        ask(&peer, 1, from: other(2))
        #expect(peer.stack.connectionCount == 3 && peer.stack.counters.allDrops == 2)
    }

    @Test func halfOpenConnections() {
        var limits = NetStackLimits()
        (limits.halfOpen, limits.halfOpenPerPeer) = (5, 3)
        var peer = RawPeer(limits)
        ask(&peer, 3, isEstablished: false)
        #expect(peer.stack.halfOpenCount == 3 && peer.stack.counters.allDrops == 0)
        ask(&peer, 1, isEstablished: false)
        #expect(peer.stack.counters[.peerHalfOpenLimit] == 1)
        ask(&peer, 3, from: other(1), isEstablished: false)
        #expect(peer.stack.halfOpenCount == 5 && peer.stack.counters[.halfOpenLimit] == 1)
        #expect(peer.stack.counts(of: other(1)).halfOpen == 2)
        // They end by themselves.
        _ = peer.wait(.seconds(300))
        #expect(peer.stack.halfOpenCount == 0 && peer.stack.connectionCount == 0)
    }

    @Test func halfOpenConnectionsOfOnePeerByDefault() {
        var peer = RawPeer(NetStackLimits())
        ask(&peer, 1_024, isEstablished: false)
        #expect(peer.stack.halfOpenCount == 1_024 && peer.stack.counters.allDrops == 0)
        ask(&peer, 1, isEstablished: false)
        #expect(peer.stack.halfOpenCount == 1_024)
        for number in 1...3 { ask(&peer, 1_024, from: other(number), isEstablished: false) }
        #expect(peer.stack.halfOpenCount == 4_096)
        ask(&peer, 1, from: other(4), isEstablished: false)
        #expect(peer.stack.halfOpenCount == 4_096)
    }

    @Test func timeWaits() throws {
        var limits = NetStackLimits()
        limits.timeWaits = 3
        var peer = RawPeer(limits)
        for number in 0..<5 {
            let id = try peer.establish()
            peer.stack.finish(id, now: peer.now)
            _ = peer.replies()
            peer.send([.fin, .ack])
            _ = peer.replies()
            _ = peer.stack.allEvents()
            #expect(peer.stack.timeWaitCount == min(number + 1, 3))
            peer.port += 1
            (peer.next, peer.expected) = (1_000, 0)
        }
        #expect(peer.stack.counters.timeWaitsCutShort == 2)
    }

    @Test func answers() {
        var limits = NetStackLimits()
        limits.answers = 4
        var peer = RawPeer(limits)
        for _ in 0..<4 { peer.send(.ack) }
        #expect(peer.stack.counters[.answerLimit] == 0)
        peer.send(.ack)
        #expect(peer.stack.counters[.answerLimit] == 1)
        #expect(peer.replies().count == 4)
    }

    @Test func buffersOfAllConnections() throws {
        var limits = NetStackLimits()
        limits.bufferBytes = 300_000
        var peer = RawPeer(limits)
        try peer.establish()
        var taken = 0
        for _ in 0..<100 { taken += peer.write([UInt8](repeating: 1, count: 10_000)) }
        #expect(taken > 100_000 && peer.stack.bufferBytes <= 300_000)
        // Received data finds no room any more, or little; it isn't acknowledged then.
        for _ in 0..<300 {
            peer.send(.ack, [UInt8](repeating: 2, count: 1_208))
            #expect(peer.stack.bufferBytes <= 300_000)
        }
        peer.stack.checkInvariants()
        peer.stack.reset(peer: theirs)
        #expect(peer.stack.bufferBytes == 0)
    }

    @Test func rangesOutOfOrder() throws {
        var limits = NetStackLimits()
        limits.outOfOrderRanges = 4
        var peer = RawPeer(limits)
        try peer.establish()
        for number in 1...4 { peer.send(.ack, [UInt8(number)], offset: 2 * number) }
        #expect(peer.stack.counters[.outOfOrderLimit] == 0)
        peer.send(.ack, [9], offset: 10)
        #expect(peer.stack.counters[.outOfOrderLimit] == 1)
        peer.stack.checkInvariants()
    }

    @Test func bytesOutOfOrder() throws {
        var limits = NetStackLimits()
        limits.outOfOrderBytesPerMiB = 10_000
        limits.bufferBytes = 120_000
        func fill(_ peer: inout RawPeer) {
            for number in 0..<10 { peer.send(.ack, [UInt8](repeating: 1, count: 1_000), offset: 1 + number * 1_000) }
            #expect(peer.stack.counters[.outOfOrderLimit] == 0)
            peer.send(.ack, [1], offset: 10_001)
        }
        // There is memory: only the window bounds it.
        var ample = RawPeer(limits)
        try ample.establish()
        fill(&ample)
        #expect(ample.stack.counters[.outOfOrderLimit] == 0)
        // Most of it is taken by data to be sent.
        var scarce = RawPeer(limits)
        try scarce.establish()
        #expect(scarce.write([UInt8](repeating: 1, count: 90_000)) == 90_000)
        #expect(scarce.stack.bufferBytes >= limits.bufferBytes / 4 * 3)
        fill(&scarce)
        #expect(scarce.stack.counters[.outOfOrderLimit] == 1)
    }

    /// One packet that is lost costs one packet, also where a whole window is behind it.
    @Test func aLossTakesNothingAlong() throws {
        var random = SeededGenerator("aLossTakesNothingAlong")
        let (link, server, client, _) = try pair(
            Link.Path(delay: .milliseconds(25)), &random, toServer: 24_000_000, toClient: 0)
        var lost = false
        link.filter = { from, packet in
            guard from == 1, !lost, packet.count > 1_000,
                server.apps.values.contains(where: { $0.received > 8_000_000 })
            else { return true }
            lost = true
            return false
        }
        #expect(link.run(.seconds(60)) { server.apps.values.contains { $0.received == 24_000_000 } })
        #expect(lost && client.stack.counters.retransmissions == 1 && server.stack.counters.allDrops == 0)
    }

    @Test func flightOfOneConnection() throws {
        var limits = NetStackLimits()
        limits.segmentsInFlight = 4
        var peer = RawPeer(limits)
        try peer.establish()
        #expect(peer.write([UInt8](repeating: 1, count: 20_000)) == 20_000)
        #expect(peer.replies().count == 4 && peer.stack.counters.flightLimitHits > 0)
    }

    // MARK: UDP

    private func datagram(
        _ port: UInt16, _ payload: [UInt8], from address: IPAddress = theirs, to local: UInt16 = 53_000
    )
        -> [UInt8]
    {
        let header = RawPeer.big(port) + RawPeer.big(local) + RawPeer.big(UInt16(8 + payload.count)) + [0, 0]
        return RawPeer.packet(from: address, to: ours, next: 17, header + payload, checksumAt: 6)
    }

    @Test func flows() {
        var limits = NetStackLimits()
        (limits.udpFlows, limits.udpFlowsPerPeer) = (5, 3)
        var peer = RawPeer(limits)
        for port in 1...3 { peer.stack.receive(datagram(UInt16(port), [1]), now: peer.now) }
        #expect(peer.stack.udpFlowCount == 3 && peer.stack.counters.allDrops == 0)
        peer.stack.receive(datagram(4, [1]), now: peer.now)
        #expect(peer.stack.counters[.peerFlowLimit] == 1)
        // One that is known goes on.
        peer.stack.receive(datagram(1, [1]), now: peer.now)
        for port in 1...3 { peer.stack.receive(datagram(UInt16(port), [1], from: other(1)), now: peer.now) }
        #expect(peer.stack.udpFlowCount == 5 && peer.stack.counters[.flowLimit] == 1)
        #expect(peer.stack.allEvents().count == 6)
    }

    @Test func flowsEndWhenTheyAreIdle() {
        var peer = RawPeer()
        peer.stack.receive(datagram(1, [1]), now: peer.now)
        peer.stack.receive(datagram(2, [1], to: 53), now: peer.now)
        _ = peer.stack.allEvents()
        _ = peer.wait(.milliseconds(29_999))
        #expect(peer.stack.udpFlowCount == 2)
        _ = peer.wait(.milliseconds(2))
        #expect(peer.stack.allEvents() == [.flowEnded(local: Endpoint(ours, 53), remote: Endpoint(theirs, 2))])
        // What we send counts, too.
        peer.stack.sendDatagram(
            from: Endpoint(ours, 53_000), to: Endpoint(theirs, 1), ByteBuffer(bytes: [2]), now: peer.now)
        _ = peer.wait(.milliseconds(119_999))
        #expect(peer.stack.udpFlowCount == 1)
        _ = peer.wait(.milliseconds(2))
        #expect(peer.stack.allEvents() == [.flowEnded(local: Endpoint(ours, 53_000), remote: Endpoint(theirs, 1))])
    }

    @Test func datagramsThatWait() {
        var limits = NetStackLimits()
        limits.datagramBytes = 4 * (100 + 128)
        var peer = RawPeer(limits)
        let payload = [UInt8](repeating: 5, count: 100)
        for _ in 0..<4 { peer.stack.receive(datagram(1, payload), now: peer.now) }
        #expect(peer.stack.counters[.datagramLimit] == 0)
        peer.stack.receive(datagram(1, payload), now: peer.now)
        #expect(peer.stack.counters[.datagramLimit] == 1 && peer.stack.allEvents().count == 4)
        for number in 0..<5 {
            let isTaken = peer.stack.sendDatagram(
                from: Endpoint(ours, 53_000), to: Endpoint(theirs, 1), ByteBuffer(bytes: payload), now: peer.now)
            #expect(isTaken == (number < 4))
        }
        #expect(peer.stack.packets(now: peer.now).count == 4)
    }

    @Test(arguments: [0, 1, 1_231, 1_232, 65_528]) func sizes(count: Int) {
        var peer = RawPeer()
        let payload = (0..<count).map { UInt8(truncatingIfNeeded: $0) }
        let isTaken = peer.stack.sendDatagram(
            from: Endpoint(ours, 53_000), to: Endpoint(theirs, 7), ByteBuffer(bytes: payload), now: peer.now)
        #expect(isTaken == (count <= 1_232))
        let sent = peer.stack.packets(now: peer.now)
        #expect(sent.count == (isTaken ? 1 : 0))
        guard let packet = sent.first else { return }
        #expect(Array(packet[48...]) == payload)
        // With the ends exchanged it is one for us.
        peer.stack.receive(datagram(7, payload), now: peer.now)
        #expect(
            peer.stack.allEvents() == [
                .datagram(local: Endpoint(ours, 53_000), remote: Endpoint(theirs, 7), ByteBuffer(bytes: payload))
            ])
    }

    @Test func wrongDatagrams() {
        var peer = RawPeer()
        let good = datagram(1, [1, 2, 3])
        for index in 40..<good.count {
            var bad = good
            bad[index] ^= 0x10
            peer.stack.receive(bad, now: peer.now)
        }
        // RFC 8200, 8.1: there must be a checksum.
        var without = good
        without.replaceSubrange(46..<48, with: [0, 0])
        peer.stack.receive(without, now: peer.now)
        #expect(peer.stack.allEvents().isEmpty && peer.stack.udpFlowCount == 0)
    }

    /// One that comes to zero is sent as its other form: zero means that there is none.
    @Test func aChecksumOfZero() {
        var peer = RawPeer()
        let payload = Array(datagram(1, [0, 0])[46..<48])
        let zero = datagram(1, payload)
        #expect(zero[46..<48] == [0, 0])
        peer.stack.receive(zero, now: peer.now)
        #expect(peer.stack.allEvents().isEmpty && peer.stack.counters[.badChecksum] == 1)
        peer.stack.sendDatagram(
            from: Endpoint(ours, 53_000), to: Endpoint(theirs, 1), ByteBuffer(bytes: payload), now: peer.now)
        #expect(peer.stack.packets(now: peer.now).first?[46..<48] == [0xff, 0xff])
    }

    // MARK: ICMPv6

    @Test(arguments: [8, 9, 100, 1_240]) func anEchoIsAnswered(count: Int) throws {
        var peer = RawPeer()
        let rest = (4..<count).map { UInt8(truncatingIfNeeded: $0) }
        let ping = RawPeer.packet(from: theirs, to: ours, next: 58, [128, 0, 0, 0] + rest, checksumAt: 2)
        peer.stack.receive(ping, now: peer.now)
        let pong = RawPeer.packet(from: ours, to: theirs, next: 58, [129, 0, 0, 0] + rest, checksumAt: 2)
        #expect(peer.stack.packets(now: peer.now) == [pong])
    }

    @Test func whatIsNoneOfOursIsDropped() {
        var peer = RawPeer()
        func packet(next: UInt8, _ payload: [UInt8], from: IPAddress = theirs, to: IPAddress = ours) -> [UInt8] {
            RawPeer.packet(from: from, to: to, next: next, payload, checksumAt: next == 58 ? 2 : nil)
        }
        let ping: [UInt8] = [128, 0, 0, 0, 1, 2, 3, 4]
        let cases: [(DropReason, [UInt8])] = [
            (.unknownProtocol, packet(next: 59, [])), (.unknownProtocol, packet(next: 0, [58, 0, 0, 0, 0, 0, 0, 0])),
            (.badFragment, packet(next: 44, [58, 0, 0, 1, 0, 0, 0, 0])),
            (.notForUs, packet(next: 58, ping, to: theirs)),
            (.badSource, packet(next: 58, ping, from: ours)),
            (.badSource, packet(next: 58, ping, from: .unspecified)),
            (.badSource, packet(next: 58, ping, from: IPAddress(high: 0xff02 << 48, low: 1))),
            (.unknownMessage, packet(next: 58, [129] + ping.dropFirst())), (.unknownMessage, packet(next: 99, [112])),
            (.unknownMessage, packet(next: 99, Array("q12345678".utf8))),
        ]
        for (reason, packet) in cases {
            let before = peer.stack.counters[reason]
            peer.stack.receive(packet, now: peer.now)
            #expect(peer.stack.counters[reason] == before + 1, "\(reason)")
        }
        #expect(peer.stack.packets(now: peer.now).isEmpty && peer.stack.allEvents().isEmpty)
    }
}
