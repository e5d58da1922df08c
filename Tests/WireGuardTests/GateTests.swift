import AgentTestSupport
import IPAddresses
import Sodium
import Testing

@testable import WireGuard

/// Load, cookies and strangers.
@Suite struct GateTests {
    private let start = Duration.seconds(50)

    private func node(_ limits: WireGuardLimits = .init()) throws -> WireGuardNode {
        var random = ScriptedGenerator(seed: 9)
        return WireGuardNode(
            key: try PrivateKey(random: &random), addresses: [address(1)], limits: limits, random: random,
            wall: { wall(.zero) })
    }

    @Test func strangersGetNoAnswerAndNoMemory() throws {
        var node = try node()
        var random = ScriptedGenerator(seed: 1)
        for number in 1...50 {
            let stranger = try PrivateKey(random: &random)
            let message = try initiation(stranger, node.key.publicKey, number)
            let now = start + .milliseconds(number)
            #expect(node.take(message, from: Source([UInt8(number)]), now: now).received == .dropped(.unknownPeer))
            var wrong = message
            wrong[120] ^= 1
            #expect(node.take(wrong, now: now).received == .dropped(.wrongMAC))
            #expect(
                node.take([4, 0, 0, 0] + [UInt8](repeating: 7, count: 28), now: now).received
                    == .dropped(.unknownIndex))
            #expect(
                node.take([5, 0, 0, 0] + [UInt8](repeating: 7, count: 28), now: now).received == .dropped(.unknownType))
            #expect(node.take([1, 0, 0], now: now).received == .dropped(.malformed))
        }
        #expect(!node.hasTransmissions && node.nextDeadline == nil && node.watchedSources == 0)
        #expect(node.places.isEmpty && node.initiations.isEmpty && node.peers.isEmpty && node.sessions.isEmpty)
        #expect(node.drops[.unknownPeer] == 50 && node.drops[.wrongMAC] == 50 && node.drops[.malformed] == 50)
        let low = Message.bytes(Message.initiation, 1) + [UInt8](repeating: 0, count: 108)
        var message = low
        _ = Message.appendMACs(to: &message, receiver: node.key.publicKey, cookie: nil)
        #expect(node.take(message, now: start).received == .dropped(.lowOrderKey))
    }

    @Test func overHalfTheBacklogDemandsACookie() throws {
        var limits = WireGuardLimits()
        (limits.handshakeBacklog, limits.handshakesPerSecond) = (20, 100)
        var node = try node(limits)
        var random = ScriptedGenerator(seed: 1)
        let own = try PrivateKey(random: &random)
        let id = try node.addPeer(own.publicKey, allowed: host(2), now: start)
        let message = try initiation(own, node.key.publicKey, 1)
        #expect(node.take(message, now: start).received == .authenticated(Authentic(peer: id)))
        _ = node.transmissions(now: start)
        for _ in 0..<9 { #expect(node.take(message, now: start).received == .dropped(.oldTime)) }
        #expect(!node.gate.isUnderLoad(now: start))
        #expect(node.take(message, now: start).received == .dropped(.cookieDemanded))
        #expect(node.gate.isUnderLoad(now: start + .milliseconds(999)))
        #expect(!node.gate.isUnderLoad(now: start + .seconds(1)))
        let transmitted = node.transmission(now: start)
        let reply = try #require(transmitted)
        #expect(reply.destination == .source(Source([1])) && reply.datagram.count == 64)
        #expect(node.take(message, now: start + .seconds(1)).received == .dropped(.oldTime), "no load any more")
    }

    @Test func aPeerUsesItsCookie() throws {
        var options = Pair.Options()
        (options.limits.handshakeBacklog, options.limits.handshakesPerSecond) = (20, 100)
        var pair = try Pair(options)
        var random = ScriptedGenerator(seed: 1)
        let stranger = try initiation(PrivateKey(random: &random), pair.nodes[1].key.publicKey, 1)
        func flood() {
            for _ in 0..<60 { _ = pair.nodes[1].take(stranger, from: Source([66]), now: pair.now) }
            while pair.nodes[1].transmission(now: pair.now) != nil {}
        }
        pair.send(0, [7])
        flood()
        pair.run(.seconds(4))
        #expect(pair.results[0] == [.cookie(pair.peers[0])] && pair.got[1].isEmpty)
        for _ in 0..<12 {
            flood()
            pair.run(.milliseconds(200))
        }
        #expect(pair.payloads(1) == [[7]], "the next initiation has the cookie")
        #expect(pair.nodes[1].watchedSources == 1 && pair.nodes[1].drops[.cookieDemanded] > 60)
        // The same cookie once more, for a message that it was not made for.
        #expect(pair.nodes[0].peers[0].lastMAC1 != nil && pair.nodes[0].drops[.notAuthentic] == 0)
    }

    @Test func aResponderUsesItsCookieToo() throws {
        var options = Pair.Options()
        (options.limits.handshakeBacklog, options.limits.handshakesPerSecond) = (20, 100)
        var pair = try Pair(options)
        let index = { (pair: Pair) in pair.nodes[0].initiations.keys.first }
        pair.send(0, [7])
        // Responses with a right first MAC, as one who sees the initiation can make them.
        var forged = Message.bytes(Message.response, 5, try #require(index(pair))) + [UInt8](repeating: 9, count: 48)
        _ = Message.appendMACs(to: &forged, receiver: pair.nodes[0].key.publicKey, cookie: nil)
        for _ in 0..<40 { _ = pair.nodes[0].take(forged, from: Source([66]), now: pair.now) }
        while pair.nodes[0].transmission(now: pair.now) != nil {}
        pair.run(.seconds(1))
        #expect(pair.results[1].last == .cookie(pair.peers[1]) && pair.nodes[1].peers[0].cookie != nil)
        pair.run(.seconds(6))
        #expect(pair.payloads(1) == [[7]])
    }

    @Test func aSourceHasTwentyASecondAndFiveAtOnce() throws {
        var limits = WireGuardLimits()
        (limits.handshakeBacklog, limits.handshakesPerSecond, limits.sources) = (20, 1_000_000, 3)
        var node = try node(limits)
        var random = ScriptedGenerator(seed: 1)
        let own = try PrivateKey(random: &random)
        _ = try node.addPeer(own.publicKey, allowed: host(2), now: start)
        let plain = try initiation(own, node.key.publicKey, 1)
        for _ in 0..<12 { _ = node.take(plain, now: start) }
        // The cookie of each source, as it would find it in its reply.
        func cookie(_ source: Source) throws -> MAC {
            _ = node.take(plain, from: source, now: start)
            var cookie: MAC?
            while let (destination, datagram) = node.transmission(now: start) {
                guard destination == .source(source) else { continue }
                let mac = try #require(MAC(bytes: Array(plain[116..<132])))
                cookie = HandshakeGate.open(reply: datagram, mac1: mac, key: node.cookieKey)
            }
            return try #require(cookie)
        }
        let sources = (0..<4).map { Source([UInt8($0)]) }
        let messages = try sources.map { try initiation(own, node.key.publicKey, 1, cookie: cookie($0)) }
        func send(_ index: Int, _ now: Duration) -> Received {
            // Load goes on.
            for _ in 0..<12 { _ = node.take(plain, from: Source([99]), now: now) }
            while node.transmission(now: now) != nil {}
            return node.take(messages[index], from: sources[index], now: now).received
        }
        let later = start + .milliseconds(500)
        let burst = (0..<7).map { _ in send(0, later) }
        #expect(
            burst == [Received](repeating: .dropped(.oldTime), count: 5) + [
                .dropped(.sourceTooFast), .dropped(.sourceTooFast),
            ])
        #expect(send(0, later + .milliseconds(49)) == .dropped(.sourceTooFast))
        #expect(send(0, later + .milliseconds(50)) == .dropped(.oldTime))
        #expect(send(0, later + .milliseconds(50)) == .dropped(.sourceTooFast))
        // The cookie of another source is none.
        #expect(node.take(messages[0], from: sources[1], now: later).received == .dropped(.cookieDemanded))
        #expect(send(1, later + .milliseconds(51)) == .dropped(.oldTime))
        #expect(send(2, later + .milliseconds(51)) == .dropped(.oldTime) && node.watchedSources == 3)
        #expect(send(3, later + .milliseconds(51)) == .dropped(.tooManySources) && node.watchedSources == 3)
        // Those that have their whole burst again are not remembered.
        #expect(send(3, later + .milliseconds(400)) == .dropped(.oldTime) && node.watchedSources == 1)
        // A secret lives 120 seconds.
        #expect(send(3, start + .milliseconds(119_999)) == .dropped(.oldTime))
        #expect(send(3, start + .seconds(120)) == .dropped(.cookieDemanded))
    }

    @Test func repliesAndWorkHaveBounds() throws {
        var limits = WireGuardLimits()
        (limits.handshakeBacklog, limits.handshakesPerSecond, limits.cookieReplies) = (4, 1, 2)
        var node = try node(limits)
        var random = ScriptedGenerator(seed: 1)
        let own = try PrivateKey(random: &random)
        let message = try initiation(own, node.key.publicKey, 1)
        let results = (0..<6).map { _ in node.take(message, now: start).received }
        #expect(
            results == [
                .dropped(.unknownPeer), .dropped(.unknownPeer), .dropped(.cookieDemanded), .dropped(.cookieDemanded),
                .dropped(.tooManyCookieReplies), .dropped(.tooManyCookieReplies),
            ])
        let transmitted = node.transmission(now: start)
        let reply = try #require(transmitted).datagram
        let mac = try #require(MAC(bytes: Array(message[116..<132])))
        let cookie = try #require(HandshakeGate.open(reply: reply, mac1: mac, key: node.cookieKey))
        let proved = try initiation(own, node.key.publicKey, 1, cookie: cookie)
        let work = (0..<3).map { _ in node.take(proved, now: start).received }
        #expect(work == [.dropped(.unknownPeer), .dropped(.unknownPeer), .dropped(.tooManyHandshakes)])
    }

    @Test func sources() throws {
        let endpoint = try #require(Endpoint("192.0.2.7:14640"))
        #expect(Source(endpoint).withBytes { Array($0) } == bytes(fromHex: "c00002073930"))
        let six = try #require(Endpoint("[fd7a::1]:258"))
        #expect(Source(six).withBytes { Array($0) } == six.address.bytes + [1, 2])
        let key = try #require(PublicKey((0..<32).map { UInt8($0) }))
        #expect(Source(key).withBytes { Array($0) } == key.bytes && Source(key) == Source(key.bytes))
        #expect(Source([1]) != Source([1, 0]))
    }
}
