import FuzzInput
@testable import IPAddresses
@testable import Sodium

@testable import WireGuard

/// The time of day of both nodes.
final class Wall: @unchecked Sendable {
    // The fuzzer has one thread.
    var now = Duration.zero
}

let wall = Wall()

func address(_ index: Int) -> IPAddress { IPAddress(high: 0xfd7a_115c_a1e0_4000, low: UInt64(index + 1)) }
func host(_ index: Int) -> [IPPrefix] { [IPPrefix(address(index), bits: 128)].compactMap { $0 } }

/// Two nodes, and the datagrams that are under way to each.
struct Pair {
    static let fresh = Pair()
    static let connected: Pair = {
        var pair = Pair()
        pair.recover()
        return pair
    }()

    var nodes: [WireGuardNode] = []
    /// The other's handle with each.
    var peers: [PeerID] = []
    var network: [[[UInt8]]] = [[], []]
    var now = Duration.seconds(1_000)
    /// Packets that each has sent, with zeros behind them.
    private var sent: [[[UInt8]]] = [[], []]
    private var taken: [Set<[UInt8]>] = [[], []]
    private var got: [Set<[UInt8]>] = [[], []]
    private var serial = 0

    private init() {
        var random = SeededRandom(1)
        var limits = WireGuardLimits()
        // Small enough to be reached.
        (limits.stagedPerPeer, limits.staged, limits.events, limits.sources) = (8, 12, 2, 3)
        (limits.handshakeBacklog, limits.handshakesPerSecond, limits.cookieReplies) = (8, 20, 3)
        do {
            let keys = [try PrivateKey(random: &random), try PrivateKey(random: &random)]
            for (index, key) in keys.enumerated() {
                nodes.append(
                    WireGuardNode(
                        key: key, addresses: [address(index)], limits: limits, random: SeededRandom(random.next())
                    ) {
                        let (seconds, attoseconds) = wall.now.components
                        return TAI64N(
                            unixSeconds: 1_700_000_000 + seconds, nanoseconds: UInt32(attoseconds / 1_000_000_000))
                    })
            }
            for index in [0, 1] {
                peers.append(
                    try nodes[index].addPeer(keys[1 - index].publicKey, allowed: host(1 - index), now: now))
            }
        } catch {
            fatalError("\(error)")
        }
    }

    // MARK: Sending

    /// One that no other is like.
    mutating func packet(from index: Int, bytes: Int) -> [UInt8] {
        serial += 1
        let payload = [UInt8(serial >> 8 & 255), UInt8(serial & 255)] + [UInt8](repeating: 7, count: min(bytes, 1_238))
        let head: [UInt8] = [0x60, 0, 0, 0, UInt8(payload.count >> 8), UInt8(payload.count & 255), 59, 64]
        return head + address(index).bytes + address(1 - index).bytes + payload
    }

    mutating func send(_ index: Int, _ packet: [UInt8]) {
        var buffer = [UInt8](repeating: 0xaa, count: 16) + packet + [UInt8](repeating: 0xaa, count: 32)
        let dropsBefore = drops(index)
        let node = peers[index]
        let sealed = buffer.withUnsafeMutableBytes {
            nodes[index].seal(in: $0, packetCount: packet.count, for: node, now: now)
        }
        sent[index].append(packet + [UInt8](repeating: 0, count: 16))
        switch sealed {
        case .datagram(let count):
            check(count >= packet.count + Message.transportOverhead, "the datagram is too short")
            put(index, Array(buffer.prefix(count)))
        case .staged: break
        case .dropped: check(drops(index) == dropsBefore + 1, "a drop was not counted")
        }
    }

    mutating func drain(_ index: Int) {
        var count = 0
        var buffer = [UInt8](repeating: 0xaa, count: nodes[index].transmissionCount)
        while let next = buffer.withUnsafeMutableBytes({ nodes[index].nextTransmission(into: $0, now: now) }) {
            count += 1
            check(count < 100, "transmissions do not end")
            // The answers to strangers go to them.
            if case .source(let source) = next.destination, source != Source([UInt8(1 - index)]) { continue }
            put(index, Array(buffer.prefix(next.count)))
        }
        check(!nodes[index].hasTransmissions, "more transmissions than were given")
    }

    private mutating func put(_ index: Int, _ datagram: [UInt8]) {
        if network[1 - index].count < 200 { network[1 - index].append(datagram) }
    }

    // MARK: Receiving

    private func drops(_ index: Int) -> UInt64 {
        DropReason.allCases.reduce(0) { $0 + nodes[index].drops[$1] }
    }

    @discardableResult
    mutating func take(_ index: Int, _ datagram: [UInt8], from source: Source? = nil, isReal: Bool) -> Received {
        var bytes = datagram
        let dropsBefore = drops(index)
        let source = source ?? Source([UInt8(1 - index)])
        let result = bytes.withUnsafeMutableBytes { nodes[index].receive($0, from: source, now: now) }
        let isDrop = if case .dropped = result { true } else { false }
        check(drops(index) == dropsBefore + (isDrop ? 1 : 0), "drops are not counted: \(result)")
        if case .packet(let sender, let range) = result {
            let packet = Array(bytes[range])
            check(isReal && sender.peer == peers[index], "a packet of nobody")
            check(sent[1 - index].contains { $0.starts(with: packet) }, "a packet that was not sent")
            check(taken[index].insert(datagram).inserted, "a datagram was taken twice")
            got[index].insert(packet)
        }
        return result
    }

    mutating func deliverNext(_ index: Int) {
        guard !network[index].isEmpty else { return }
        take(index, network[index].removeFirst(), isReal: true)
    }

    // MARK: Time

    mutating func pass(_ time: Duration) {
        let end = now + time
        var count = 0
        while let next = nodes.compactMap(\.nextDeadline).min(), next <= end {
            count += 1
            check(count < 5_000, "the deadline does not move")
            advance(to: max(now, next))
        }
        advance(to: end)
    }

    private mutating func advance(to time: Duration) {
        (now, wall.now) = (time, time)
        for index in [0, 1] { nodes[index].advance(now: now) }
    }

    /// With a network that works, packets get through within minutes.
    mutating func recover() {
        network = [[], []]
        for index in [0, 1] { try? nodes[index].replaceAllowed(host(1 - index), of: peers[index]) }
        for _ in 0..<40 {
            let packets = [0, 1].map { packet(from: $0, bytes: 9) }
            for index in [0, 1] { send(index, packets[index]) }
            for _ in 0..<5 {
                exchange()
                pass(.seconds(1))
            }
            if got[1].contains(packets[0]), got[0].contains(packets[1]) { return }
        }
        fatalError("nothing gets through any more")
    }

    private mutating func exchange() {
        for _ in 0..<100 {
            for index in [0, 1] { drain(index) }
            if network[0].isEmpty, network[1].isEmpty { return }
            for index in [0, 1] {
                while !network[index].isEmpty { deliverNext(index) }
            }
        }
        fatalError("the nodes never stop talking")
    }
}

extension Array {
    mutating func popFirst() -> Element? { isEmpty ? nil : removeFirst() }
}
