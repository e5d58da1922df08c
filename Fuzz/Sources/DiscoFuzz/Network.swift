import FuzzInput
@testable import IPAddresses
@testable import Sodium

@testable import Disco

/// Two nodes, the datagrams that are under way to each, and what only the other node could seal.
struct Network {
    static let start = Network()

    private struct Datagram {
        var bytes: [UInt8]
        var source: DiscoNode.Source
    }

    private static let servers = [
        Endpoint(IPAddress(v4: 0x0303_0303), 3_478), Endpoint(IPAddress(v4: 0x0303_0304), 3_478),
    ]
    private var nodes: [DiscoNode] = []
    private var discoKeys: [PrivateKey] = []
    private var nodeKeys: [PublicKey] = []
    private var box: Box
    private var random = SeededRandom(2)
    private var network: [[Datagram]] = [[], []]
    private var now = Duration.seconds(100)
    private var asked: [Set<UInt64>] = [[], []]
    private var answered: [[UInt64: Duration]] = [[:], [:]]

    private init() {
        do {
            discoKeys = [try PrivateKey(random: &random), try PrivateKey(random: &random)]
            nodeKeys = [try PrivateKey(random: &random).publicKey, try PrivateKey(random: &random).publicKey]
        } catch {
            fatalError("\(error)")
        }
        guard let box = Box(discoKeys[0], discoKeys[1].publicKey) else { fatalError("no box") }
        self.box = box
        for index in [0, 1] {
            var node = DiscoNode(key: discoKeys[index], nodeKey: nodeKeys[index], random: SeededRandom(UInt64(index)))
            node.setLocal([inside(index).address], v4: inside(index).port, v6: nil)
            node.setSTUNServers(Self.servers, now: now)
            nodes.append(node)
            know(index, [inside(1 - index)])
        }
    }

    private func inside(_ index: Int) -> Endpoint { Endpoint(IPAddress(v4: 0x0505_0500 + UInt32(index)), 41_641) }

    private mutating func know(_ index: Int, _ endpoints: [Endpoint]) {
        let isKnown = nodes[index].update(
            nodeKeys[1 - index], disco: discoKeys[1 - index].publicKey, endpoints: endpoints, now: now)
        check(isKnown, "the peer is refused")
        takeActions(index)
    }

    /// The high bit of an operation says which node it is for.
    mutating func perform(_ operation: UInt8, _ input: inout FuzzInput) {
        let index = Int(operation >> 7)
        let peer = nodeKeys[1 - index]
        switch operation & 15 {
        case 0, 1: deliverNext(index)
        case 2:
            if let first = network[index].first { network[index].append(first) }
        case 3: if !network[index].isEmpty { network[index].removeFirst() }
        case 4: deliverChanged(index, at: input.word(), xor: input.byte())
        case 5:
            // What the peer would not say, sealed as only it can, from anywhere.
            let source = source(index, &input)
            receive(index, Datagram(bytes: seal(from: 1 - index, input.block()), source: source))
        case 6:
            // Again from elsewhere, as anyone can.
            if let first = network[index].first {
                receive(index, Datagram(bytes: first.bytes, source: source(index, &input)))
            }
        case 7: receive(index, Datagram(bytes: input.block(), source: source(index, &input)))
        case 8: nodes[index].receiveSTUN(input.block(), now: now)
        case 9: _ = nodes[index].route(peer, now: now)
        case 10: nodes[index].received(from: peer, now: now)
        case 11: ping(index)
        case 12: pass(.milliseconds(input.word()))
        case 13: pass(.seconds(Int(input.byte())))
        case 14: change(index, input.byte(), &input)
        default:
            // Pongs and calls of the peer for what is under way.
            for _ in 0..<4 { exchange() }
        }
        takeActions(index)
    }

    private mutating func seal(from index: Int, _ plaintext: [UInt8]) -> [UInt8] {
        let nonce = (0..<24).map { _ in UInt8.random(in: 0...255, using: &random) }
        return DiscoPacket.magic + discoKeys[index].publicKey.bytes + nonce + (box.seal(plaintext, nonce: nonce) ?? [])
    }

    private func source(_ index: Int, _ input: inout FuzzInput) -> DiscoNode.Source {
        let choice = input.byte()
        return switch choice & 3 {
        case 0: .relay(region: Int(choice), peer: nodeKeys[1 - index])
        case 1: .relay(region: Int(choice), peer: nodeKeys[index])
        case 2: .udp(inside(1 - index))
        default: .udp(Endpoint(IPAddress(v4: 0x0606_0600 | UInt32(choice)), UInt16(input.byte())))
        }
    }

    private mutating func change(_ index: Int, _ choice: UInt8, _ input: inout FuzzInput) {
        switch choice & 7 {
        case 0: nodes[index].remove(nodeKeys[1 - index])
        case 1: nodes[index].setDirect(choice & 8 == 0, now: now)
        case 2: nodes[index].setSTUNServers(choice & 8 == 0 ? [] : Self.servers, now: now)
        case 3: nodes[index].setLocal([], v4: nil, v6: nil)
        case 4: nodes[index].setLocal([inside(index).address], v4: inside(index).port, v6: 7)
        default:
            let endpoints = (0..<Int(input.byte())).map { _ in
                Endpoint(IPAddress(v4: 0x0707_0000 | UInt32(input.word())), UInt16(input.byte()))
            }
            know(index, endpoints)
        }
        takeActions(index)
    }

    // MARK: Datagrams

    private mutating func receive(_ index: Int, _ datagram: Datagram) {
        if datagram.bytes.withUnsafeBytes({ DatagramKind($0) }) == .stun {
            nodes[index].receiveSTUN(datagram.bytes, now: now)
        } else {
            nodes[index].receive(datagram.bytes, from: datagram.source, now: now)
        }
        takeActions(index)
    }

    private mutating func deliverNext(_ index: Int) {
        if !network[index].isEmpty { receive(index, network[index].removeFirst()) }
    }

    private mutating func deliverChanged(_ index: Int, at place: Int, xor: UInt8) {
        guard var first = network[index].first, xor != 0, first.bytes.starts(with: DiscoPacket.magic) else { return }
        first.bytes[place % first.bytes.count] ^= xor
        let before = (nodes[index].boundCount, nodes[index].report(nodeKeys[1 - index], now: now)?.best)
        let drop = nodes[index].receive(first.bytes, from: first.source, now: now)
        check(drop != nil && nodes[index].actions.isEmpty, "a changed packet was taken")
        let after = (nodes[index].boundCount, nodes[index].report(nodeKeys[1 - index], now: now)?.best)
        check(before == after, "a changed packet changed a path")
    }

    private mutating func takeActions(_ index: Int) {
        while let action = nodes[index].nextAction() {
            switch action {
            case .sendUDP(let bytes, let to): send(bytes, from: index, to: to)
            case .sendRelay(let bytes, let to, _):
                check(to == nodeKeys[1 - index], "for a stranger")
                put(1 - index, Datagram(bytes: bytes, source: .relay(region: 1, peer: nodeKeys[index])))
            case .endpointsChanged(let endpoints):
                check(endpoints.count <= DiscoLimits.endpoints, "too many endpoints")
            case .pathChanged(let peer, let endpoint):
                check(peer == nodeKeys[1 - index], "a path to a stranger")
                if let endpoint { check(isUsable(endpoint), "a path to \(endpoint)") }
            case .pinged(let id, let latency, _):
                check(asked[index].remove(id) != nil, "an answer to no question")
                if let latency {
                    check(latency >= .zero && latency <= DiscoLimits.pong, "a late answer")
                    answered[index][id] = latency
                }
            }
        }
    }

    private mutating func send(_ bytes: [UInt8], from index: Int, to: Endpoint) {
        if Self.servers.contains(to) {
            guard let answer = STUN.answer(bytes, from: inside(index)) else { fatalError("no request of ours") }
            put(index, Datagram(bytes: answer, source: .udp(to)))
        } else if to == inside(1 - index) {
            put(1 - index, Datagram(bytes: bytes, source: .udp(inside(index))))
        }
    }

    private mutating func put(_ index: Int, _ datagram: Datagram) {
        if network[index].count < 100 { network[index].append(datagram) }
    }

    private mutating func exchange() {
        for index in [0, 1] {
            for datagram in network[index] { receive(index, datagram) }
            network[index] = []
        }
    }

    @discardableResult
    private mutating func ping(_ index: Int) -> UInt64? {
        let id = nodes[index].ping(nodeKeys[1 - index], now: now)
        if let id { check(asked[index].insert(id).inserted, "the same question twice") }
        takeActions(index)
        return id
    }

    // MARK: Time and limits

    private mutating func pass(_ time: Duration) {
        let end = now + time
        var count = 0
        while let next = nodes.compactMap(\.nextDeadline).min(), next <= end {
            count += 1
            check(count < 5_000, "the deadline does not move")
            now = max(now, next)
            for index in [0, 1] {
                nodes[index].advance(now: now)
                takeActions(index)
            }
        }
        now = end
    }

    func checkLimits() {
        for node in nodes {
            var candidates = 0
            for paths in node.peers.values {
                check(paths.candidates.count <= DiscoLimits.candidates, "too many candidates")
                check(paths.pings.count <= DiscoLimits.outstandingPings, "too many pings")
                let endpoints = Set(paths.candidates.map(\.endpoint))
                check(endpoints.count == paths.candidates.count, "a candidate is there twice")
                if let best = paths.best { check(endpoints.contains(best.endpoint), "the best path is no candidate") }
                candidates += endpoints.count
            }
            check(node.bound.count <= candidates && node.peers.count <= 1, "more is bound than there are candidates")
            check(node.owners.count == node.peers.count && node.toCall.count <= 1, "peers are left behind")
            check(node.counters.drops.count <= 12, "a peer makes counters")
        }
    }

    /// With a network that works there is an answer by the relay at once, and a direct path soon.
    mutating func recover() {
        network = [[], []]
        pass(.seconds(60))
        for index in [0, 1] {
            check(asked[index].isEmpty, "a question without an answer")
            nodes[index].setDirect(true, now: now)
            nodes[index].setLocal([inside(index).address], v4: inside(index).port, v6: nil)
            know(index, [inside(1 - index)])
        }
        network = [[], []]
        for index in [0, 1] {
            guard let id = ping(index) else { fatalError("no ping may be sent") }
            for _ in 0..<3 { exchange() }
            check(answered[index][id] != nil, "a ping was not answered")
        }
        for _ in 0..<12 {
            for index in [0, 1] { _ = nodes[index].route(nodeKeys[1 - index], now: now) }
            for index in [0, 1] { takeActions(index) }
            for _ in 0..<3 { exchange() }
            pass(.milliseconds(600))
        }
        for index in [0, 1] {
            check(nodes[index].isDirect(nodeKeys[1 - index], now: now), "no direct path is found")
        }
    }
}
