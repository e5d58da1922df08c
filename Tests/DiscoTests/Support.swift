import AgentTestSupport
import IPAddresses
import Sodium

@testable import Disco

/// Gives the bytes it was made with, then zeros.
struct ScriptedGenerator: RandomNumberGenerator, Sendable {
    var bytes: [UInt8]
    mutating func next() -> UInt64 {
        let word = bytes.prefix(8)
        bytes.removeFirst(word.count)
        return word.reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
}

func makeKey(_ byte: UInt8) throws -> PrivateKey { try PrivateKey([UInt8](repeating: byte, count: 32)) }

func endpoint(_ text: String) -> Endpoint { Endpoint(text) ?? Endpoint(.unspecified, 0) }

/// How a router of the virtual network maps what its host sends.
enum NAT { case none, fullCone, symmetric }

/// A node with its socket at a private address behind a router, whose public address is `outside`.
final class Host {
    var node: DiscoNode
    let nodeKey: PublicKey
    let discoKey: PublicKey
    let inside: Endpoint
    let outside: IPAddress
    let nat: NAT
    /// Of the router: where each port outside leads to, and for a symmetric one from whom.
    private var ports: [UInt16: Endpoint?] = [:]
    var isUDPBlocked = false
    var sentUDP = 0
    var announced: [Endpoint] = []
    var paths: [PublicKey: Endpoint] = [:]
    var latencies: [UInt64: Duration?] = [:]
    /// What the application got: (from, by UDP).
    var data: [(PublicKey, Bool)] = []

    init(_ byte: UInt8, inside: String, outside: String, nat: NAT, random: any RandomNumberGenerator & Sendable) throws
    {
        let (disco, key) = (try makeKey(byte), try makeKey(byte + 100).publicKey)
        (nodeKey, discoKey) = (key, disco.publicKey)
        node = DiscoNode(key: disco, nodeKey: key, random: random)
        self.inside = endpoint(inside)
        self.outside = IPAddress(outside) ?? .unspecified
        self.nat = nat
    }

    /// Where a datagram to this destination seems to come from.
    func mapped(to destination: Endpoint) -> Endpoint {
        switch nat {
        case .none: return inside
        case .fullCone:
            ports[40_000] = .some(nil)
            return Endpoint(outside, 40_000)
        case .symmetric:
            if let port = ports.first(where: { $0.value == destination })?.key { return Endpoint(outside, port) }
            let port = UInt16(50_000 + ports.count)
            ports[port] = destination
            return Endpoint(outside, port)
        }
    }

    /// Whether the router lets a datagram in.
    func lets(in source: Endpoint, to port: UInt16) -> Bool {
        guard let peer = ports[port] else { return false }
        return peer == nil || peer == source
    }

    func ping(_ peer: PublicKey, now: Duration) -> UInt64? { node.ping(peer, now: now) }

    /// The router forgets all.
    func restartRouter() { ports = [:] }
}

/// A network of hosts behind routers, one relay that knows all, and a STUN server.
final class Network {
    enum Packet { case udp([UInt8], from: Endpoint, to: Endpoint), relay([UInt8], from: PublicKey, to: PublicKey) }

    static let stunServers = [endpoint("3.3.3.3:3478"), endpoint("3.3.3.4:3478")]
    var now: Duration = .zero
    var hosts: [Host] = []
    var random: SeededGenerator
    /// Packets lost of a hundred.
    var loss = 0
    var udpLatency: Duration = .milliseconds(10)
    var relayLatency: Duration = .milliseconds(40)
    private var inFlight: [(at: Duration, packet: Packet)] = []
    var udpPackets = 0
    var relayPackets = 0

    init(_ name: String) { random = SeededGenerator(name) }

    func host(_ byte: UInt8, _ inside: String, _ outside: String, _ nat: NAT) throws -> Host {
        let host = try Host(byte, inside: inside, outside: outside, nat: nat, random: SystemRandomNumberGenerator())
        host.node.setLocal([host.inside.address], v4: host.inside.port, v6: nil)
        host.node.setSTUNServers(Self.stunServers, now: now)
        hosts.append(host)
        run(for: .milliseconds(100))
        return host
    }

    /// Both learn of each other from the control plane.
    func introduce(_ a: Host, _ b: Host) {
        _ = a.node.update(b.nodeKey, disco: b.discoKey, endpoints: b.announced, now: now)
        _ = b.node.update(a.nodeKey, disco: a.discoKey, endpoints: a.announced, now: now)
    }

    func send(_ packet: Packet) {
        switch packet {
        case .udp: udpPackets += 1
        case .relay: relayPackets += 1
        }
        if Int.random(in: 0..<100, using: &random) < loss { return }
        if case .udp = packet {
            inFlight.append((now + udpLatency, packet))
        } else {
            inFlight.append((now + relayLatency, packet))
        }
    }

    private func sendUDP(_ bytes: [UInt8], _ host: Host, to: Endpoint) {
        host.sentUDP += 1
        guard !host.isUDPBlocked else { return }
        send(.udp(bytes, from: host.mapped(to: to), to: to))
    }

    /// One packet of the application to the peer.
    func sendData(_ a: Host, to b: Host) {
        let route = a.node.route(b.nodeKey, now: now)
        let bytes: [UInt8] = [4, 0, 0, 0] + [UInt8](repeating: 0, count: 28)
        switch route {
        case .udp(let endpoint): sendUDP(bytes, a, to: endpoint)
        case .both(let endpoint):
            sendUDP(bytes, a, to: endpoint)
            send(.relay(bytes, from: a.nodeKey, to: b.nodeKey))
        case .relay: send(.relay(bytes, from: a.nodeKey, to: b.nodeKey))
        case .none: break
        }
        drain(a)
    }

    func drain(_ host: Host) {
        while let action = host.node.nextAction() {
            switch action {
            case .sendUDP(let bytes, let to): sendUDP(bytes, host, to: to)
            case .sendRelay(let bytes, let to, _): send(.relay(bytes, from: host.nodeKey, to: to))
            case .endpointsChanged(let endpoints): host.announced = endpoints
            case .pathChanged(let peer, let endpoint): host.paths[peer] = endpoint
            case .pinged(let id, let latency, _): host.latencies[id] = latency
            }
        }
    }

    private func deliver(_ packet: Packet) {
        switch packet {
        case .relay(let bytes, let from, let to):
            guard let host = hosts.first(where: { $0.nodeKey == to }) else { return }
            if bytes.withUnsafeBytes({ DatagramKind($0) }) == .disco {
                host.node.receive(bytes, from: .relay(region: 999, peer: from), now: now)
            } else {
                host.node.received(from: from, now: now)
                host.data.append((from, false))
            }
            drain(host)
        case .udp(let bytes, let from, let to):
            if Self.stunServers.contains(to) {
                if let answer = STUN.answer(bytes, from: from) { send(.udp(answer, from: to, to: from)) }
                return
            }
            guard
                let host = hosts.first(where: {
                    $0.nat == .none ? $0.inside == to : $0.outside == to.address && $0.lets(in: from, to: to.port)
                }), !host.isUDPBlocked
            else { return }
            switch bytes.withUnsafeBytes({ DatagramKind($0) }) {
            case .disco: host.node.receive(bytes, from: .udp(from), now: now)
            case .stun: host.node.receiveSTUN(bytes, now: now)
            case .wireGuard:
                guard let peer = host.node.peer(at: from) else { return }
                host.node.received(from: peer, now: now)
                host.data.append((peer, true))
            case .other: break
            }
            drain(host)
        }
    }

    /// Lets time pass; calls the closure every 100 ms.
    func run(for time: Duration, every: (() -> Void)? = nil) {
        let end = now + time
        var tick = now
        while true {
            var next = end
            for item in inFlight { next = min(next, item.at) }
            for host in hosts { if let due = host.node.nextDeadline { next = min(next, max(due, now)) } }
            if every != nil { next = min(next, tick) }
            now = max(now, next)
            if every != nil, now >= tick {
                every?()
                tick += .milliseconds(100)
            }
            let due = inFlight.filter { $0.at <= now }
            inFlight.removeAll { $0.at <= now }
            for item in due { deliver(item.packet) }
            for host in hosts {
                if let due = host.node.nextDeadline, due <= now {
                    host.node.advance(now: now)
                    drain(host)
                }
            }
            if now >= end { return }
        }
    }
}
