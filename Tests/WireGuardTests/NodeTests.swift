import AgentTestSupport
import IPAddresses
import Sodium
import Testing

@testable import WireGuard

/// Peers, their addresses and their packets.
@Suite struct NodeTests {
    private func pair() throws -> Pair {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(1))
        return pair
    }

    @Test func whatIsInsideIsChecked() throws {
        var pair = try pair()
        func send(_ packet: [UInt8]) throws -> Received {
            let (_, datagram) = pair.nodes[0].send(packet, to: pair.peers[0], now: pair.now)
            return pair.nodes[1].take(try #require(datagram), now: pair.now).received
        }
        let sender = Authentic(peer: pair.peers[1])
        let good = packet(from: 1, to: 2, [1, 2, 3])
        #expect(try send(good) == .packet(sender, 16..<59))
        #expect(try send(packet(from: 1, to: 3)) == .dropped(.notForUs, sender))
        #expect(try send(packet(from: 3, to: 2)) == .dropped(.wrongSource, sender))
        #expect(try send(packet(from: 2, to: 2)) == .dropped(.wrongSource, sender))
        var changed = good
        changed[0] = 0x45
        #expect(try send(changed) == .dropped(.notIPv6, sender))
        // 43 bytes, of which 5 more were sent as padding.
        changed = good
        changed[5] = 8
        #expect(try send(changed) == .packet(sender, 16..<64))
        changed[5] = 9
        #expect(try send(changed) == .dropped(.wrongLength, sender))
        changed[4] = 255
        #expect(try send(changed) == .dropped(.wrongLength, sender))
        #expect(try send([0x60]) == .dropped(.wrongLength, sender))
        #expect(try send(Array(good.prefix(30))) == .dropped(.wrongLength, sender))
        #expect(pair.nodes[1].drops[.wrongLength] == 4 && pair.nodes[1].drops[.wrongSource] == 2)
        pair.nodes[1].addresses = [address(3)]
        #expect(try send(packet(from: 1, to: 3)) == .packet(sender, 16..<56))
        // The address that was seen last is not the peer's any more.
        try pair.nodes[1].replaceAllowed(host(8), of: pair.peers[1])
        #expect(try send(packet(from: 1, to: 3)) == .dropped(.wrongSource, sender))
        #expect(try send(packet(from: 8, to: 3)) == .packet(sender, 16..<56))
    }

    @Test func sizes() throws {
        var pair = try pair()
        for count in [1, 15, 16, 17, 1_264, 1_265, 1_279, 1_280] {
            var packet = [UInt8](repeating: 3, count: count)
            packet[0] = 0x60
            let (sealed, datagram) = pair.nodes[0].send(packet, to: pair.peers[0], now: pair.now)
            #expect(sealed == .datagram((count + 15) / 16 * 16 + 32) && datagram?.count ?? 0 <= 1_312)
        }
        #expect(pair.nodes[0].send([], to: pair.peers[0], now: pair.now).sealed == .dropped(.tooLarge))
        let large = [UInt8](repeating: 1, count: 1_281)
        #expect(pair.nodes[0].send(large, to: pair.peers[0], now: pair.now).sealed == .dropped(.tooLarge))
        for (count, room, fits) in [(17, 63, false), (17, 64, true), (1_280, 1_311, false), (1_280, 1_312, true)] {
            var buffer = [UInt8](repeating: 0, count: room)
            let sealed = buffer.withUnsafeMutableBytes {
                pair.nodes[0].seal(in: $0, packetCount: count, for: pair.peers[0], now: pair.now)
            }
            #expect(sealed == (fits ? .datagram(room) : .dropped(.smallBuffer)))
        }
        var small = [UInt8](repeating: 0, count: 1_311)
        let transmission = small.withUnsafeMutableBytes { pair.nodes[0].nextTransmission(into: $0, now: pair.now) }
        #expect(transmission == nil && pair.nodes[0].transmissionCount == 1_312)
    }

    /// An MTU that is no multiple of 16: padding ends there.
    @Test func padding() throws {
        var options = Pair.Options()
        options.limits.mtu = 100
        var pair = try Pair(options)
        pair.send(0, [0])
        pair.run(.seconds(1))
        for (count, expected) in [(96, 96), (97, 100), (100, 100)] {
            let bytes = packet(from: 1, to: 2, [UInt8](repeating: 1, count: count - 40))
            let (_, datagram) = pair.nodes[0].send(bytes, to: pair.peers[0], now: pair.now)
            #expect(datagram?.count == expected + 32)
            #expect(pair.nodes[1].take(try #require(datagram), now: pair.now).packet == bytes)
        }
    }

    @Test func peersAreRefused() throws {
        var limits = WireGuardLimits()
        (limits.peers, limits.prefixesPerPeer) = (3, 2)
        var random = ScriptedGenerator(seed: 1)
        let own = try PrivateKey(random: &random)
        var node = WireGuardNode(key: own, addresses: [], limits: limits, wall: { wall(.zero) })
        func key() throws -> PublicKey { try PrivateKey(random: &random).publicKey }
        let first = try key()
        let id = try node.addPeer(first, allowed: host(1) + host(2), now: .zero)
        #expect(throws: PeerError.known) { try node.addPeer(first, allowed: [], now: .zero) }
        #expect(throws: PeerError.ownKey) { try node.addPeer(own.publicKey, allowed: [], now: .zero) }
        let zero = try #require(PublicKey([UInt8](repeating: 0, count: 32)))
        #expect(throws: PeerError.lowOrderKey) { try node.addPeer(zero, allowed: [], now: .zero) }
        let second = try key()
        #expect(throws: PeerError.taken(host(2)[0])) { try node.addPeer(second, allowed: host(2), now: .zero) }
        #expect(throws: PeerError.presharedKey) {
            try node.addPeer(second, preshared: SecretBytes([1]), allowed: [], now: .zero)
        }
        #expect(throws: PeerError.tooManyPrefixes) {
            try node.addPeer(second, allowed: host(3) + host(4) + host(5), now: .zero)
        }
        #expect(node.peer(for: second) == nil && node.peer(owning: address(3)) == nil)
        _ = try node.addPeer(second, allowed: host(3) + host(4), now: .zero)
        _ = try node.addPeer(key(), allowed: [], now: .zero)
        let more = try key()
        #expect(throws: PeerError.tooManyPeers) { try node.addPeer(more, allowed: [], now: .zero) }
        #expect(node.drops[.tooManyPeers] == 1 && node.drops[.tooManyPrefixes] == 1)
        #expect(throws: PeerError.taken(host(3)[0])) { try node.replaceAllowed(host(5) + host(3), of: id) }
        #expect(node.peer(owning: address(1)) == id && node.peer(owning: address(5)) == nil)
        try node.replaceAllowed(host(2) + host(5), of: id)
        #expect(node.peer(owning: address(1)) == nil && node.peer(owning: address(5)) == id)
        node.removePeer(id)
        #expect(node.peer(owning: address(2)) == nil && node.peer(for: first) == nil)
        let again = try node.addPeer(more, allowed: host(2), now: .zero)
        #expect(again.slot == id.slot && again != id && node.status(of: id, now: .zero) == nil)
        #expect(node.send([1], to: id, now: .zero).sealed == .dropped(.noSuchPeer))
        #expect(throws: PeerError.unknown) { try node.replaceAllowed([], of: id) }
        node.removePeer(id)
        #expect(node.peerIDs.count == 3 && node.peer(owning: address(2)) == again)
    }

    @Test func aRemovedPeerLeavesNothing() throws {
        var pair = try pair()
        pair.run(.seconds(200))
        pair.send(0, [1])
        #expect(pair.nodes[0].initiations.count == 1 && pair.nodes[0].places.count == 1)
        pair.nodes[0].removePeer(pair.peers[0])
        #expect(pair.nodes[0].initiations.isEmpty && pair.nodes[0].places.isEmpty && pair.nodes[0].stagedPackets == 0)
        #expect(pair.nodes[0].nextDeadline == nil && !pair.nodes[0].hasTransmissions)
        pair.run(.seconds(600))
        #expect(pair.nodes[0].drops[.unknownIndex] == 1 && pair.payloads(1) == [[0]])
    }

    @Test func theLongestPrefixDecides() throws {
        var owners = AllowedAddresses()
        func prefix(_ text: String) throws -> IPPrefix { try #require(IPPrefix(text)) }
        func owner(_ text: String) throws -> Int? { owners.owner(of: try #require(IPAddress(text))) }
        for (slot, text) in ["::/0", "fd00::/8", "fd7a::/16", "fd7a::1", "10.0.0.0/8", "10.1.0.0/16"].enumerated() {
            owners.add(try prefix(text), slot: slot)
        }
        #expect(try owner("2001::1") == 0 && owner("fd01::") == 1 && owner("fd7a::2") == 2 && owner("fd7a::1") == 3)
        #expect(try owner("10.2.0.1") == 4 && owner("10.1.0.1") == 5 && owner("11.0.0.1") == 0)
        #expect(try owners.holder(of: prefix("fd7a::/16")) == 2 && owners.holder(of: prefix("fd7a::/17")) == nil)
        owners.remove(try prefix("fd7a::/16"))
        owners.remove(try prefix("fd7a::/17"))
        owners.remove(try prefix("::/0"))
        #expect(try owner("fd7a::2") == 1 && owner("2001::1") == nil && owner("fd7a::1") == 3)
    }

    @Test func deadlinesAreThoseOfASortedList() throws {
        var random = SeededGenerator("deadlines")
        var deadlines = Deadlines()
        var model: [Int: Duration] = [:]
        for _ in 0..<20_000 {
            let slot = Int.random(in: 0..<40, using: &random)
            let time = Duration.seconds(Int.random(in: 0..<100, using: &random))
            switch Int.random(in: 0..<4, using: &random) {
            case 0:
                deadlines.set(slot, nil)
                model[slot] = nil
            case 1:
                deadlines.lower(slot, time)
                model[slot] = min(model[slot] ?? time, time)
            default:
                deadlines.set(slot, time)
                model[slot] = time
            }
            #expect(deadlines.first?.time == model.values.min() && deadlines.count == model.count)
            if let first = deadlines.first { #expect(model[first.slot] == first.time) }
        }
    }

    @Test func theWindowIsThatOfASet() throws {
        var random = SeededGenerator("window")
        var window = ReplayWindow()
        var seen: Set<UInt64> = []
        var newest: UInt64 = 0
        for _ in 0..<50_000 {
            let back = UInt64.random(in: 0...8_300, using: &random)
            var counter = Bool.random(using: &random) ? newest &+ back % 200 : newest - min(newest, back)
            if Int.random(in: 0..<1_000, using: &random) == 0 { counter = newest + back * 3 }
            let isNew = !seen.contains(counter) && (counter > newest || newest - counter <= 8_128)
            #expect(window.accept(counter) == isNew, "\(counter) after \(newest)")
            if isNew { seen.insert(counter) }
            newest = max(newest, counter)
        }
        #expect(window.accept(WireGuardTimes.mostMessages - 1) && !window.accept(WireGuardTimes.mostMessages))
    }

    /// Peers that rest: no wake-ups but for their timers, and those end.
    @Test func peersAtRest() throws {
        var random = ScriptedGenerator(seed: 1)
        let own = try PrivateKey(random: &random)
        var node = WireGuardNode(key: own, addresses: [address(1)], random: random, wall: { wall(.zero) })
        let count = 200
        for number in 0..<count {
            _ = try node.addPeer(PrivateKey(random: &random).publicKey, allowed: host(number + 2), now: .zero)
        }
        #expect(node.nextDeadline == nil)
        var now = Duration.zero
        for id in node.peerIDs { #expect(node.send([1], to: id, now: now).sealed == .staged) }
        #expect(node.transmissions(now: now).count == count)
        var wakes = 0
        while let deadline = node.nextDeadline {
            now = deadline
            node.advance(now: now)
            _ = node.transmissions(now: now)
            wakes += 1
        }
        #expect(now <= .seconds(91) && wakes <= count * 20)
        #expect(node.drops[.gaveUp] == count && node.initiations.isEmpty)
    }

    @Test func eventsHaveABound() throws {
        var limits = WireGuardLimits()
        limits.events = 2
        var random = ScriptedGenerator(seed: 1)
        var node = WireGuardNode(
            key: try PrivateKey(random: &random), addresses: [], limits: limits, wall: { wall(.zero) })
        let ids = try (0..<3).map { _ in
            try node.addPeer(PrivateKey(random: &random).publicKey, allowed: [], now: .zero)
        }
        for id in ids { node.note(.gaveUp(id)) }
        #expect(node.nextEvent() == .gaveUp(ids[1]) && node.nextEvent() == .gaveUp(ids[2]) && node.nextEvent() == nil)
        #expect(node.drops[.tooManyEvents] == 1)
    }

    @Test func everyReasonHasWords() {
        for reason in DropReason.allCases { #expect(!"\(reason)".isEmpty && "\(reason)".contains(" ")) }
    }
}
