import AgentTestSupport
import IPAddresses
import Sodium
import Testing

@testable import WireGuard

/// Values in an order that a test has chosen, then those of a seed.
struct ScriptedGenerator: RandomNumberGenerator, Sendable {
    var values: [UInt64] = []
    var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        if !values.isEmpty { return values.removeFirst() }
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }

    /// The values of a private key, byte by byte.
    mutating func script(_ bytes: [UInt8]) { values += bytes.map(UInt64.init) }
}

extension MAC {
    init?(bytes: [UInt8]) {
        guard let mac = bytes.withUnsafeBytes({ MAC($0) }) else { return nil }
        self = mac
    }
}

extension WireGuardNode {
    /// Takes a copy of a datagram; the packet that lay in it, too.
    mutating func take(
        _ datagram: [UInt8], from source: Source = Source([1]), now: Duration
    ) -> (received: Received, packet: [UInt8]?) {
        var datagram = datagram
        let received = datagram.withUnsafeMutableBytes { receive($0, from: source, now: now) }
        guard case .packet(_, let range) = received else { return (received, nil) }
        return (received, Array(datagram[range]))
    }

    /// Seals a packet; its datagram, when there is one.
    mutating func send(_ packet: [UInt8], to peer: PeerID, now: Duration) -> (sealed: Sealed, datagram: [UInt8]?) {
        // What was in the buffer before must not show in the padding.
        var buffer = [UInt8](repeating: 0xaa, count: 16) + packet + [UInt8](repeating: 0xaa, count: 32)
        let sealed = buffer.withUnsafeMutableBytes { seal(in: $0, packetCount: packet.count, for: peer, now: now) }
        guard case .datagram(let count) = sealed else { return (sealed, nil) }
        return (sealed, Array(buffer.prefix(count)))
    }

    mutating func transmission(now: Duration) -> (destination: Transmission.Destination, datagram: [UInt8])? {
        var buffer = [UInt8](repeating: 0xaa, count: transmissionCount)
        let transmission = buffer.withUnsafeMutableBytes { nextTransmission(into: $0, now: now) }
        return transmission.map { ($0.destination, Array(buffer.prefix($0.count))) }
    }

    mutating func transmissions(now: Duration) -> [[UInt8]] {
        var all: [[UInt8]] = []
        while let (_, datagram) = transmission(now: now) { all.append(datagram) }
        #expect(!hasTransmissions)
        return all
    }
}

func address(_ number: Int) -> IPAddress { IPAddress(high: 0xfd7a_115c_a1e0_4000, low: UInt64(number)) }

func host(_ number: Int) -> [IPPrefix] { [IPPrefix(address(number), bits: 128)].compactMap { $0 } }

/// An IPv6 packet.
func packet(from source: Int, to destination: Int, _ payload: [UInt8] = []) -> [UInt8] {
    let head: [UInt8] = [0x60, 0, 0, 0, UInt8(payload.count >> 8), UInt8(payload.count & 255), 59, 64]
    return head + address(source).bytes + address(destination).bytes + payload
}

/// A time of day that goes with the test's clock.
let epoch: Int64 = 1_700_000_000
func wall(_ now: Duration) -> TAI64N {
    let parts = (.seconds(epoch) + now).components
    return TAI64N(unixSeconds: parts.seconds, nanoseconds: UInt32(parts.attoseconds / 1_000_000_000))
}

/// The time of day of a node, which a test sets.
final class Wall: @unchecked Sendable {
    // Of one test, which is one task.
    var time = TAI64N(unixSeconds: epoch, nanoseconds: 0)
    /// What is added to the test's clock.
    var offset = Duration.zero
    func set(_ now: Duration) { time = wall(now + offset) }
}

/// An initiation whose ephemeral key, index and time come from a number.
func initiation(_ own: PrivateKey, _ peer: PublicKey, _ number: Int, cookie: MAC? = nil) throws -> [UInt8] {
    var random = ScriptedGenerator(seed: UInt64(number))
    let statics = try #require(own.shared(with: peer))
    let made = Noise.initiation(
        from: own.publicKey, to: peer, statics: statics,
        ephemeral: try PrivateKey(random: &random), index: UInt32(number),
        time: TAI64N(unixSeconds: epoch + Int64(number), nanoseconds: 0))
    var message = try #require(made).message
    _ = Message.appendMACs(to: &message, receiver: peer, cookie: cookie)
    return message
}

/// Two nodes, numbers 1 and 2, with a clock and a network between them.
struct Pair {
    struct Options {
        var preshared: (SecretBytes?, SecretBytes?) = (nil, nil)
        var keepAlive: (Duration?, Duration?) = (nil, nil)
        var limits = WireGuardLimits()
        var seed: UInt64 = 1
    }

    struct InFlight {
        var to: Int
        var at: Duration
        var datagram: [UInt8]
    }

    var nodes: [WireGuardNode] = []
    /// The other's handle with each.
    var peers: [PeerID] = []
    let walls = [Wall(), Wall()]
    var now: Duration
    /// What each has got, in order.
    var got: [[[UInt8]]] = [[], []]
    var results: [[Received]] = [[], []]
    var network: [InFlight] = []
    var sentTypes: [[UInt8]] = [[], []]
    /// Decides when a datagram arrives: none is lost, two are one that is doubled.
    var fate: (_ from: Int, _ datagram: [UInt8]) -> [Duration] = { _, _ in [.milliseconds(10)] }
    /// What each node's clock shows beside the test's.
    var lag = [Duration.zero, .zero]

    init(_ options: Options = Options(), now: Duration = .seconds(1_000)) throws {
        self.now = now
        var random = ScriptedGenerator(seed: options.seed)
        let keys = [try PrivateKey(random: &random), try PrivateKey(random: &random)]
        for (index, key) in keys.enumerated() {
            let wall = walls[index]
            wall.set(now)
            nodes.append(
                WireGuardNode(
                    key: key, addresses: [address(index + 1)], limits: options.limits,
                    random: ScriptedGenerator(seed: random.next()), wall: { wall.time }))
        }
        peers = [
            try nodes[0].addPeer(
                keys[1].publicKey, preshared: options.preshared.0, allowed: host(2), keepAlive: options.keepAlive.0,
                now: now),
            try nodes[1].addPeer(
                keys[0].publicKey, preshared: options.preshared.1, allowed: host(1), keepAlive: options.keepAlive.1,
                now: now),
        ]
    }

    func clock(_ index: Int) -> Duration { now - lag[index] }

    @discardableResult
    mutating func send(_ from: Int, _ payload: [UInt8]) -> Sealed {
        let packet = packet(from: from + 1, to: 2 - from, payload)
        let (sealed, datagram) = nodes[from].send(packet, to: peers[from], now: clock(from))
        if let datagram { put(datagram, from: from) }
        drain(from)
        return sealed
    }

    mutating func put(_ datagram: [UInt8], from: Int) {
        sentTypes[from].append(datagram[0])
        for delay in fate(from, datagram) {
            network.append(InFlight(to: 1 - from, at: now + delay, datagram: datagram))
        }
    }

    mutating func drain(_ index: Int) {
        for datagram in nodes[index].transmissions(now: clock(index)) { put(datagram, from: index) }
    }

    /// Lets time pass, one event after the other.
    mutating func run(_ duration: Duration) {
        let end = now + duration
        drain(0)
        drain(1)
        while true {
            let arrival = network.map(\.at).min()
            let timers = [0, 1].compactMap { index in nodes[index].nextDeadline.map { $0 + lag[index] } }.min()
            guard let next = [arrival, timers].compactMap({ $0 }).min(), next <= end else { break }
            now = max(now, next)
            for index in [0, 1] {
                walls[index].set(now)
                nodes[index].advance(now: clock(index))
                drain(index)
            }
            let due = now
            for datagram in network.filter({ $0.at <= due }) {
                let (received, packet) = nodes[datagram.to].take(datagram.datagram, now: clock(datagram.to))
                results[datagram.to].append(received)
                if let packet { got[datagram.to].append(packet) }
                drain(datagram.to)
            }
            network.removeAll { $0.at <= due }
        }
        now = end
        for index in [0, 1] { walls[index].set(now) }
    }

    func payloads(_ index: Int) -> [[UInt8]] { got[index].map { Array($0.dropFirst(40)) } }

    func status(_ index: Int) -> PeerStatus? { nodes[index].status(of: peers[index], now: clock(index)) }
}
