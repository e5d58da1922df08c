import AgentTestSupport
import IPAddresses
import Sodium
import Testing

@testable import Disco

/// One node against a peer whose packets are made by hand.
private struct Bench {
    var node: DiscoNode
    let own: PrivateKey
    let peer: PrivateKey
    let peerNode: PublicKey
    let box: Box
    private var random = SystemRandomNumberGenerator()

    init(peer byte: UInt8 = 2) throws {
        (own, peer, peerNode) = (try makeKey(1), try makeKey(byte), try makeKey(102).publicKey)
        node = DiscoNode(key: own, nodeKey: try makeKey(101).publicKey, random: SystemRandomNumberGenerator())
        box = try #require(Box(peer, own.publicKey))
    }

    mutating func know(_ endpoints: [String] = [], now: Duration = .zero) -> Bool {
        node.update(peerNode, disco: peer.publicKey, endpoints: endpoints.map(endpoint), now: now)
    }

    mutating func packet(_ message: DiscoMessage) -> [UInt8] {
        DiscoPacket.seal(message, from: peer.publicKey, box: box, random: &random) ?? []
    }

    mutating func ping(nodeKey: PublicKey? = nil) -> [UInt8] {
        packet(.ping(TransactionID(random: &random), nodeKey: nodeKey))
    }

    mutating func receive(_ packet: [UInt8], _ source: DiscoNode.Source, now: Duration = .zero) -> DiscoDrop? {
        node.receive(packet, from: source, now: now)
    }

    var relay: DiscoNode.Source { .relay(region: 999, peer: peerNode) }

    mutating func actions() -> [DiscoNode.Action] {
        var all: [DiscoNode.Action] = []
        while let action = node.nextAction() { all.append(action) }
        return all
    }

    /// Pings by UDP among the actions, by their destination.
    mutating func pings() -> [Endpoint: TransactionID] {
        var pings: [Endpoint: TransactionID] = [:]
        for action in actions() {
            guard case .sendUDP(let packet, let to) = action, let message = try? DiscoPacket.open(packet, box: box),
                case .ping(let tx, _) = message
            else { continue }
            pings[to] = tx
        }
        return pings
    }

    /// Answers a ping.
    mutating func pong(_ tx: TransactionID?, from: Endpoint, now: Duration) -> DiscoDrop? {
        guard let tx else { return .short }
        return receive(packet(.pong(tx, source: endpoint("9.9.9.9:9"))), .udp(from), now: now)
    }

    mutating func route(now: Duration) -> DiscoNode.Route { node.route(peerNode, now: now) }
    mutating func advance(now: Duration) { node.advance(now: now) }
}

@Suite struct NodeTests {
    @Test func pingsAreAnsweredOnTheirPath() throws {
        var bench = try Bench()
        let isKnown = bench.know()
        #expect(isKnown)
        var drop = bench.receive(bench.ping(nodeKey: bench.peerNode), bench.relay)
        guard case .sendRelay(let pong, let to, let region) = try #require(bench.actions().first) else {
            Issue.record("no pong")
            return
        }
        guard case .pong(_, let source) = try DiscoPacket.open(pong, box: bench.box) else {
            Issue.record("another message")
            return
        }
        #expect(drop == nil && to == bench.peerNode && region == 999)
        #expect(source.description == "127.3.3.40:999" && pong.count == 1_310)
        let from = endpoint("5.5.5.5:55")
        drop = bench.receive(bench.ping(), .udp(from))
        guard case .sendUDP(let answer, let back) = try #require(bench.actions().first),
            case .pong(_, let seen) = try DiscoPacket.open(answer, box: bench.box)
        else {
            Issue.record("no pong")
            return
        }
        #expect(drop == nil && back == from && seen == from && bench.node.peer(at: from) == bench.peerNode)
        // The address counts for 45 s after the last ping.
        bench.advance(now: .milliseconds(44_999))
        #expect(bench.node.peer(at: from) != nil)
        bench.advance(now: .seconds(45))
        #expect(bench.node.peer(at: from) == nil && bench.node.boundCount == 0)
    }

    @Test func strangersGetNoAnswer() throws {
        var bench = try Bench()
        let ping = bench.ping()
        #expect(bench.receive(ping, .udp(endpoint("5.5.5.5:55"))) == .unknownKey)
        let isKnown = bench.know()
        #expect(isKnown)
        let other = try makeKey(77).publicKey
        #expect(bench.receive(ping, .relay(region: 1, peer: other)) == .wrongPeer)
        let lie = bench.ping(nodeKey: other)
        #expect(bench.receive(lie, bench.relay) == .wrongPeer)
        var changed = ping
        changed[100] ^= 1
        #expect(bench.receive(changed, bench.relay) == .notAuthentic)
        #expect(bench.receive(Array(ping.prefix(61)), bench.relay) == .notDisco)
        let foreign = bench.packet(.pong(TransactionID(random: &bench.node.random), source: endpoint("1.1.1.1:1")))
        #expect(bench.receive(foreign, bench.relay) == .unexpectedPong)
        let call = bench.packet(.callMeMaybe([]))
        #expect(bench.receive(call, .udp(endpoint("5.5.5.5:55"))) == .callMeMaybeOverUDP)
        #expect(bench.actions() == [] && bench.node.boundCount == 0 && bench.node.counters.drops.count == 6)
        #expect(bench.node.counters.drops[.wrongPeer] == 2)
    }

    @Test func theBestPathByPoints() {
        func best(_ text: String, _ milliseconds: Int) -> PeerPaths.Best {
            .init(endpoint: endpoint(text), latency: .milliseconds(milliseconds), pongAt: .zero)
        }
        let slow = best("5.5.5.5:1", 100)
        #expect(!best("5.5.5.6:1", 100).isBetter(than: slow) && !best("5.5.5.6:1", 99).isBetter(than: slow))
        #expect(best("5.5.5.6:1", 98).isBetter(than: slow) && !slow.isBetter(than: best("5.5.5.6:1", 98)))
        #expect(best("10.0.0.1:1", 110).isBetter(than: slow) && !best("10.0.0.1:1", 140).isBetter(than: slow))
        #expect(best("[2001:db8::1]:1", 105).isBetter(than: slow) && !best("[2001:db8::1]:1", 120).isBetter(than: slow))
        #expect(best("127.0.0.1:1", 140).isBetter(than: slow) && !best("127.0.0.1:1", 210).isBetter(than: slow))
        #expect(best("127.0.0.1:1", 0).isBetter(than: best("10.0.0.1:1", 0)))
    }

    @Test func trustHeartbeatAndGivingUp() throws {
        var bench = try Bench()
        let isKnown = bench.know(["5.5.5.5:55"])
        let at = endpoint("5.5.5.5:55")
        #expect(isKnown && bench.route(now: .zero) == .relay)
        let tx = bench.pings()[at]
        #expect(bench.pong(tx, from: at, now: .milliseconds(20)) == nil)
        #expect(bench.actions() == [.pathChanged(bench.peerNode, at)] && bench.node.peer(at: at) == bench.peerNode)
        // The same pong again is none.
        #expect(bench.pong(tx, from: at, now: .milliseconds(30)) == .unexpectedPong)
        #expect(bench.route(now: .milliseconds(6_519)) == .udp(at))
        #expect(bench.route(now: .milliseconds(6_520)) == .both(at))
        bench.advance(now: .milliseconds(6_520))
        #expect(bench.pings().count == 1)
        bench.advance(now: .milliseconds(9_519))
        #expect(bench.pings().isEmpty)
        bench.advance(now: .milliseconds(9_520))
        let late = bench.pings()[at]
        #expect(late != nil && bench.pong(late, from: at, now: .milliseconds(14_521)) == .unexpectedPong)
        bench.advance(now: .milliseconds(45_019))
        #expect(!bench.actions().contains(.pathChanged(bench.peerNode, nil)))
        bench.advance(now: .milliseconds(45_020))
        #expect(bench.actions().contains(.pathChanged(bench.peerNode, nil)))
        #expect(bench.route(now: .milliseconds(45_021)) == .relay && bench.node.peer(at: at) == bench.peerNode)
    }

    @Test func aBetterPathIsLookedForEachMinute() throws {
        for (latency, looks) in [(5, false), (6, true)] {
            var bench = try Bench()
            let isKnown = bench.know(["5.5.5.5:55", "5.5.5.6:55"])
            let at = endpoint("5.5.5.5:55")
            #expect(isKnown && bench.route(now: .zero) == .relay)
            #expect(bench.pong(bench.pings()[at], from: at, now: .milliseconds(latency)) == nil)
            var others: [Int] = []
            for second in 1..<130 {
                let now = Duration.seconds(second)
                _ = bench.route(now: now)
                bench.advance(now: now)
                let pings = bench.pings()
                if pings[endpoint("5.5.5.6:55")] != nil { others.append(second) }
                if let tx = pings[at] { _ = bench.pong(tx, from: at, now: now + .milliseconds(latency)) }
            }
            #expect(others == (looks ? [60, 120] : []))
        }
    }

    @Test func callMeMaybes() throws {
        var bench = try Bench()
        bench.node.setLocal([IPAddress(v4: 0x0a00_0001)], v4: 7, v6: nil)
        let isKnown = bench.know(["5.5.5.5:55"])
        #expect(isKnown)
        _ = bench.actions()
        let call = bench.packet(
            .callMeMaybe(
                [
                    "6.6.6.6:1", "[fe80::1]:1", "[fd7a:115c:a1e0::1]:1", "[fd60:627a:a42b::1]:1", "6.6.6.7:0",
                    "5.5.5.5:55",
                ]
                .map(endpoint)))
        #expect(bench.receive(call, bench.relay) == nil)
        #expect(Set(bench.pings().keys) == [endpoint("6.6.6.6:1"), endpoint("5.5.5.5:55")])
        #expect(bench.receive(call, bench.relay, now: .milliseconds(999)) == .callMeMaybeTooSoon)
        #expect(bench.actions() == [])
        // A new set replaces the older one, and all are pinged at once.
        let next = bench.packet(.callMeMaybe([endpoint("6.6.6.8:1")]))
        #expect(bench.receive(next, bench.relay, now: .seconds(1)) == nil)
        #expect(Set(bench.pings().keys) == [endpoint("6.6.6.8:1"), endpoint("5.5.5.5:55")])
        // Data: nothing that was pinged in the last 5 s, and no call without a ping.
        #expect(bench.route(now: .milliseconds(5_999)) == .relay && bench.actions() == [])
        #expect(bench.route(now: .seconds(6)) == .relay)
        let actions = bench.actions()
        guard case .sendRelay(let packet, bench.peerNode, nil) = try #require(actions.last) else {
            Issue.record("no call-me-maybe")
            return
        }
        #expect(
            try actions.count == 3 && DiscoPacket.open(packet, box: bench.box) == .callMeMaybe([endpoint("10.0.0.1:7")])
        )
    }

    @Test func aNewDiscoKeyForgetsAllPaths() throws {
        var bench = try Bench()
        let isKnown = bench.know(["5.5.5.5:55"])
        let at = endpoint("5.5.5.5:55")
        #expect(isKnown && bench.route(now: .zero) == .relay)
        let tx = bench.pings()[at]
        #expect(bench.pong(tx, from: at, now: .milliseconds(20)) == nil)
        _ = bench.actions()
        let new = try makeKey(3)
        let isTaken = bench.node.update(bench.peerNode, disco: new.publicKey, endpoints: [], now: .seconds(1))
        #expect(isTaken && bench.actions() == [.pathChanged(bench.peerNode, nil)])
        #expect(bench.node.peer(at: at) == nil && bench.route(now: .seconds(1)) == .relay)
        let old = bench.ping()
        #expect(bench.receive(old, bench.relay, now: .seconds(1)) == .unknownKey)
        // The key of another peer, our own, and one of low order are refused.
        let other = try makeKey(150).publicKey
        for bad in [new.publicKey, bench.own.publicKey, try #require(PublicKey([UInt8](repeating: 0, count: 32)))] {
            let isTaken = bench.node.update(other, disco: bad, endpoints: [], now: .zero)
            #expect(!isTaken)
        }
        #expect(bench.node.counters.refusedPeers == 3 && bench.node.peerCount == 1)
        bench.node.remove(bench.peerNode)
        #expect(bench.route(now: .seconds(1)) == .none && bench.node.owners.isEmpty && bench.node.bound.isEmpty)
    }

    /// A ping that a third party repeats from the address of another peer's path doesn't take that.
    @Test func aBoundAddressIsNotTakenByAPing() throws {
        var bench = try Bench()
        let other = try makeKey(150).publicKey
        let at = endpoint("5.5.5.5:55")
        let isKnown = bench.know(["5.5.5.5:55"])
        #expect(isKnown && bench.route(now: .zero) == .relay)
        #expect(bench.pong(bench.pings()[at], from: at, now: .milliseconds(20)) == nil)
        let key = try makeKey(3)
        let isTaken = bench.node.update(other, disco: key.publicKey, endpoints: [], now: .zero)
        var random = SystemRandomNumberGenerator()
        let ping = DiscoPacket.seal(
            .ping(TransactionID(random: &random), nodeKey: nil), from: key.publicKey,
            box: try #require(Box(key, bench.own.publicKey)), random: &random)
        #expect(try isTaken && bench.receive(#require(ping), .udp(at)) == nil)
        #expect(bench.node.peer(at: at) == bench.peerNode)
    }

    // MARK: Limits

    @Test func candidatesUpToTheLimit() throws {
        for count in [99, 100, 101] {
            var bench = try Bench()
            let isKnown = bench.know((0..<count).map { "5.5.5.\($0):55" })
            #expect(isKnown && bench.node.report(bench.peerNode, now: .zero)?.candidates.count == min(count, 100))
            let ping = bench.ping()
            #expect(bench.receive(ping, .udp(endpoint("7.7.7.7:1"))) == (count < 100 ? nil : .tooManyCandidates))
            #expect(bench.actions().count == 1, "answered all the same")
        }
        // Sources of pings give way to what the peer announces.
        var bench = try Bench()
        var isKnown = bench.know()
        for number in 0..<101 {
            let drop = bench.receive(bench.ping(), .udp(endpoint("7.7.7.\(number):1")))
            #expect(drop == (number < 100 ? nil : .tooManyCandidates))
        }
        isKnown = bench.know((0..<60).map { "5.5.5.\($0):55" })
        let candidates = try #require(bench.node.report(bench.peerNode, now: .zero)?.candidates)
        #expect(isKnown && candidates.count == 100 && bench.node.boundCount == 40)
        #expect(candidates.filter { $0.endpoint.port == 55 }.count == 60)
    }

    @Test func pingsUpToTheLimit() throws {
        var bench = try Bench()
        let isKnown = bench.know()
        #expect(isKnown)
        for number in 0..<DiscoLimits.outstandingPings + 1 {
            let id = bench.node.ping(bench.peerNode, now: .zero)
            #expect((id != nil) == (number < DiscoLimits.outstandingPings))
        }
        _ = bench.actions()
        bench.advance(now: .seconds(5))
        #expect(
            bench.actions().count == DiscoLimits.outstandingPings && bench.node.counters.drops == [.tooManyPings: 1])
        let id = bench.node.ping(bench.peerNode, now: .seconds(5))
        #expect(id != nil)
    }

    @Test func peersUpToTheLimit() throws {
        var bench = try Bench()
        for number in 0..<DiscoLimits.peers + 1 {
            let bytes = [UInt8](repeating: 9, count: 30) + [UInt8(number & 255), UInt8(number >> 8)]
            let key = try #require(PublicKey(bytes))
            let isTaken = bench.node.update(key, disco: key, endpoints: [], now: .zero)
            #expect(isTaken == (number < DiscoLimits.peers))
        }
        #expect(bench.node.peerCount == 1_024 && bench.node.counters.refusedPeers == 1)
    }

    /// Bits of packets change, and nothing may trap or be remembered.
    @Test func changedPackets() throws {
        var random = SeededGenerator("disco mutations")
        var bench = try Bench()
        let isKnown = bench.know()
        #expect(isKnown)
        let file = try VectorFile.read("tailnet_disco.json")
        let stun = try VectorFile.read("tailnet_stun.json")
        var seeds = try #require(file["packets"] as? [[String: Any]]).compactMap { bytes(fromHex: $0["packet"]) }
        for name in ["decode", "responses"] {
            seeds += try #require(stun[name] as? [[String: Any]]).compactMap { bytes(fromHex: $0["packet"]) }
        }
        seeds += try #require(file["decode"] as? [[String: Any]]).compactMap { bytes(fromHex: $0["plaintext"]) }
        seeds += [
            bench.ping(), bench.packet(.callMeMaybe([endpoint("5.5.5.5:5")])), bytes(fromHex: stun["request"]) ?? [],
        ]
        for _ in 0..<100_000 {
            guard let seed = seeds.randomElement(using: &random) else { return }
            var packet = seed
            for _ in 0..<Int.random(in: 1...3, using: &random) where !packet.isEmpty {
                packet[Int.random(in: 0..<packet.count, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            }
            packet.removeLast(
                Int.random(in: 0..<4, using: &random) == 0 ? Int.random(in: 0...packet.count, using: &random) : 0)
            // A bit that changed twice is as it was.
            if packet == seed { continue }
            _ = packet.withUnsafeBytes { DatagramKind($0) }
            _ = try? DiscoMessage(plaintext: packet)
            _ = try? STUN.readResponse(packet)
            _ = STUN.answer(packet, from: endpoint("1.1.1.1:1"))
            // A changed magic or disco key is refused, too.
            let drop = bench.receive(packet, .udp(endpoint("8.8.8.8:8")))
            #expect(drop != nil, "seed \(random.seed)")
        }
        #expect(bench.node.boundCount == 0 && bench.actions() == [])
    }
}
