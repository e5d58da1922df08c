import AgentTestSupport
import Sodium
import Testing

@testable import WireGuard

/// Two nodes, and the times of the protocol.
@Suite struct SessionTests {
    @Test func theFirstPacketMakesASession() throws {
        var pair = try Pair()
        #expect(pair.nodes[0].nextDeadline == nil && pair.status(0)?.session == PeerStatus.SessionState.none)
        pair.send(0, [1])
        pair.send(0, [2])
        #expect(pair.status(0)?.session == .handshaking && pair.status(0)?.staged == 2)
        pair.run(.milliseconds(15))
        #expect(pair.status(1)?.session == .unconfirmed && pair.status(1)?.lastHandshake == nil)
        // It may not send under the session yet, and needs none of its own.
        pair.send(1, [9])
        pair.run(.seconds(1))
        #expect(pair.payloads(1) == [[1], [2]] && pair.payloads(0) == [[9]])
        #expect(pair.status(0)?.session == .usable && pair.status(1)?.session == .usable)
        #expect(pair.status(0)?.lastHandshake == .seconds(1_000) + .milliseconds(20))
        #expect(pair.status(1)?.lastHandshake == .seconds(1_000) + .milliseconds(30))
        let news = pair.results.map { results in
            results.filter {
                if case .packet(let sender, _) = $0 { return sender.isNewSession }
                if case .authenticated(let sender) = $0 { return sender.isNewSession }
                return false
            }.count
        }
        #expect(news == [1, 1] && !pair.sentTypes[1].contains(1))
        let (one, two) = (try #require(pair.status(0)), try #require(pair.status(1)))
        #expect(one.sentBytes == two.receivedBytes && two.sentMessages == one.receivedMessages && one.staged == 0)
    }

    @Test(arguments: [0, 15]) func aConnectionRenewsItsKeysAndLosesNothing(_ head: Int) throws {
        var pair = try Pair()
        pair.send(0, [0, 0])
        // With no head start both begin a session, and both renew theirs when they receive.
        pair.run(.milliseconds(head))
        pair.send(1, [0, 0])
        var sent = 1
        for _ in 0..<11_980 {
            pair.send(0, [UInt8(truncatingIfNeeded: sent >> 8), UInt8(truncatingIfNeeded: sent)])
            pair.send(1, [UInt8(truncatingIfNeeded: sent >> 8), UInt8(truncatingIfNeeded: sent)])
            sent += 1
            pair.run(.milliseconds(100))
        }
        pair.run(.seconds(1))
        let expected = (0..<sent).map { [UInt8(truncatingIfNeeded: $0 >> 8), UInt8(truncatingIfNeeded: $0)] }
        #expect(pair.payloads(0) == expected && pair.payloads(1) == expected)
        let initiations = pair.sentTypes.map { $0.filter { $0 == 1 }.count }
        #expect(head == 0 ? initiations == [8, 8] : initiations == [10, 0], "\(initiations)")
        #expect(pair.nodes.allSatisfy { $0.drops[.notAuthentic] == 0 && $0.drops[.replayed] == 0 })
        #expect(pair.nodes.allSatisfy { $0.places.count <= 3 && $0.initiations.isEmpty })
    }

    @Test func theInitiatorAloneRenews() throws {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(119))
        pair.send(0, [1])
        pair.send(1, [1])
        pair.run(.milliseconds(900))
        #expect(pair.sentTypes[0].filter { $0 == 1 }.count == 1)
        pair.run(.milliseconds(200))
        pair.send(1, [2])
        #expect(!pair.sentTypes[1].contains(1))
        pair.send(0, [2])
        #expect(pair.sentTypes[0].filter { $0 == 1 }.count == 2)
        // Of its session it is the one to renew, when it only receives, too.
        pair.run(.seconds(164))
        pair.send(1, [3])
        pair.run(.milliseconds(100))
        #expect(pair.sentTypes[0].filter { $0 == 1 }.count == 2)
        pair.run(.milliseconds(1_100))
        pair.send(1, [4])
        pair.run(.milliseconds(100))
        #expect(pair.sentTypes[0].filter { $0 == 1 }.count == 3 && !pair.sentTypes[1].contains(1))
    }

    @Test func aSessionOf180SecondsIsDead() throws {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(1))
        let (_, early) = pair.nodes[0].send(packet(from: 1, to: 2, [1]), to: pair.peers[0], now: pair.now)
        let (_, late) = pair.nodes[0].send(packet(from: 1, to: 2, [2]), to: pair.peers[0], now: pair.now)
        // Made at 1000.01 at the responder, and at 1000.02 at the initiator.
        let death = Duration.seconds(1_180)
        #expect(
            pair.nodes[1].take(try #require(early), now: death + .milliseconds(9)).packet
                == packet(from: 1, to: 2, [1]))
        #expect(
            pair.nodes[1].take(try #require(late), now: death + .milliseconds(10)).received == .dropped(.deadSession))
        var other = pair.nodes[0]
        guard case .datagram = other.send([1], to: pair.peers[0], now: death + .milliseconds(19)).sealed else {
            Issue.record("dead too early")
            return
        }
        #expect(pair.nodes[0].send([1], to: pair.peers[0], now: death + .milliseconds(20)).sealed == .staged)
    }

    @Test func keysAreForgotten() throws {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(539))
        #expect(pair.nodes.allSatisfy { $0.places.count == 1 && $0.nextDeadline != nil })
        pair.run(.seconds(2))
        #expect(pair.nodes.allSatisfy { $0.places.isEmpty && $0.nextDeadline == nil && $0.initiations.isEmpty })
        #expect(pair.nodes[0].sessions.allSatisfy { $0.sendKey.count == 0 && $0.receiveKey.count == 0 })
        #expect(pair.nodes[0].nextEvent() == .forgotKeys(pair.peers[0]) && pair.nodes[0].nextEvent() == nil)
        pair.send(1, [7])
        pair.run(.seconds(1))
        #expect(pair.payloads(0) == [[7]])
    }

    @Test func silenceIsAnsweredAfterTenSecondsAndDoubtedAfterFifteen() throws {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(1))
        let before = pair.sentTypes
        pair.send(0, [1])
        pair.run(.seconds(9))
        #expect(pair.sentTypes[1] == before[1])
        pair.run(.seconds(2))
        #expect(pair.sentTypes[1] == before[1] + [4])
        // An empty packet is not answered, and ends the doubt.
        pair.run(.seconds(60))
        #expect(pair.sentTypes[0] == before[0] + [4] && pair.sentTypes[1] == before[1] + [4])
        pair.fate = { from, _ in from == 0 ? [.milliseconds(10)] : [] }
        pair.send(0, [2])
        pair.run(.milliseconds(14_900))
        #expect(!pair.sentTypes[0].dropFirst(before[0].count).contains(1))
        pair.run(.milliseconds(200))
        #expect(pair.sentTypes[0].dropFirst(before[0].count) == [4, 4, 1])
    }

    @Test func anInitiationIsRepeatedAndGivenUp() throws {
        var pair = try Pair()
        pair.fate = { _, _ in [] }
        pair.send(0, [0])
        var times = [pair.now]
        for _ in 0..<890 {
            let count = pair.sentTypes[0].count
            pair.run(.milliseconds(100))
            if pair.sentTypes[0].count > count { times.append(pair.now) }
        }
        #expect((17...18).contains(times.count))
        for (a, b) in zip(times, times.dropFirst()) {
            #expect(b - a >= .milliseconds(4_900) && b - a <= .milliseconds(5_500))
        }
        #expect(pair.nodes[0].nextEvent() == nil && pair.status(0)?.staged == 1)
        pair.run(.milliseconds(1_000))
        #expect(pair.nodes[0].nextEvent() == .gaveUp(pair.peers[0]) && pair.status(0)?.staged == 0)
        #expect(pair.nodes[0].drops[.gaveUp] == 1 && pair.nodes[0].stagedPackets == 0)
        #expect(pair.nodes[0].nextDeadline == nil && pair.nodes[0].initiations.isEmpty)
        let count = pair.sentTypes[0].count
        pair.run(.seconds(60))
        #expect(pair.sentTypes[0].count == count)
        pair.fate = { _, _ in [.milliseconds(1)] }
        pair.send(0, [1])
        pair.run(.seconds(1))
        #expect(pair.payloads(1) == [[1]])
    }

    @Test func keepAlives() throws {
        var options = Pair.Options()
        options.keepAlive = (.seconds(25), nil)
        var pair = try Pair(options)
        pair.run(.seconds(1))
        #expect(pair.status(0)?.session == .usable, "a session is made at once")
        let before = pair.sentTypes[0].count
        pair.run(.seconds(100))
        #expect(pair.sentTypes[0].dropFirst(before) == [4, 4, 4, 4] && pair.got == [[], []])
        pair.run(.seconds(3_600))
        #expect(pair.status(0)?.session == .usable && pair.status(1)?.session == .usable)
        // Without an answer it gives up, and tries again.
        pair.fate = { _, _ in [] }
        pair.run(.seconds(600))
        #expect(pair.nodes[0].drops[.gaveUp] == 0 && pair.nodes[0].nextEvent() == .gaveUp(pair.peers[0]))
        pair.fate = { _, _ in [.milliseconds(1)] }
        pair.run(.seconds(30))
        #expect(pair.status(0)?.session == .usable)
        var random = ScriptedGenerator(seed: 4)
        let other = try PrivateKey(random: &random).publicKey
        #expect(throws: PeerError.keepAlive) {
            try pair.nodes[0].addPeer(other, allowed: [], keepAlive: .zero, now: .zero)
        }
    }

    @Test func presharedKeys() throws {
        let secrets = [SecretBytes([UInt8](repeating: 1, count: 32)), SecretBytes([UInt8](repeating: 2, count: 32))]
        for (first, second, works) in [(0, 0, true), (0, 1, false)] {
            var options = Pair.Options()
            options.preshared = (secrets[first], secrets[second])
            var pair = try Pair(options)
            pair.send(0, [5])
            pair.run(.seconds(1))
            #expect(pair.payloads(1) == (works ? [[5]] : []))
            #expect(pair.nodes[0].drops[.notAuthentic] == (works ? 0 : 1))
        }
    }

    @Test func bothBeginAtOnce() throws {
        for delay in [0, 1, 5, 10, 15, 25] {
            var pair = try Pair()
            pair.send(0, [0])
            pair.run(.milliseconds(delay))
            pair.send(1, [0])
            for number in 1..<200 as Range<UInt8> {
                pair.send(0, [number])
                pair.send(1, [number])
                pair.run(.milliseconds(3))
            }
            pair.run(.seconds(1))
            let expected = (0..<200 as Range<UInt8>).map { [$0] }
            #expect(pair.payloads(0).sorted { $0[0] < $1[0] } == expected, "\(delay)")
            #expect(pair.payloads(1).sorted { $0[0] < $1[0] } == expected, "\(delay)")
        }
    }

    @Test func theCountersEnd() throws {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(1))
        let place = try #require(pair.nodes[0].peers[0].current)
        pair.nodes[0].sessions[place].counter = WireGuardTimes.renewAfterMessages - 1
        pair.send(0, [1])
        #expect(pair.sentTypes[0].filter { $0 == 1 }.count == 1)
        pair.run(.seconds(6))
        pair.send(0, [2])
        #expect(pair.sentTypes[0].filter { $0 == 1 }.count == 2, "renewed after 2^60 messages")
        pair.run(.seconds(6))
        let next = try #require(pair.nodes[0].peers[0].current)
        #expect(next != place)
        pair.nodes[0].sessions[next].counter = WireGuardTimes.mostMessages - 1
        #expect(pair.send(0, [3]) != .staged)
        #expect(pair.send(0, [4]) == .staged)
        pair.run(.seconds(6))
        #expect(pair.payloads(1) == [[0], [1], [2], [3], [4]])
    }

    @Test func stagingHasBounds() throws {
        var options = Pair.Options()
        options.limits.staged = 130
        var pair = try Pair(options)
        var random = ScriptedGenerator(seed: 5)
        let other = try pair.nodes[0].addPeer(
            PrivateKey(random: &random).publicKey, allowed: host(3), now: pair.now)
        for number in 0..<128 as Range<UInt8> { #expect(pair.send(0, [number]) == .staged) }
        #expect(pair.send(0, [128]) == .dropped(.stagingFull))
        #expect(pair.nodes[0].send([1], to: other, now: pair.now).sealed == .staged)
        #expect(pair.nodes[0].send([1], to: other, now: pair.now).sealed == .staged)
        #expect(pair.nodes[0].send([1], to: other, now: pair.now).sealed == .dropped(.stagingFull))
        #expect(pair.nodes[0].drops[.stagingFull] == 2 && pair.nodes[0].stagedPackets == 130)
        pair.nodes[0].removePeer(other)
        #expect(pair.nodes[0].drops[.peerRemoved] == 2 && pair.nodes[0].stagedPackets == 128)
        pair.run(.seconds(1))
        #expect(pair.payloads(1) == (0..<128 as Range<UInt8>).map { [$0] } && pair.nodes[0].stagedPackets == 0)
    }
}
