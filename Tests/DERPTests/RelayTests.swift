import AgentTestSupport
import NIOCore
import Sodium
import Testing

@testable import DERP

/// Clients and a relay, with wires that cut anywhere.
private struct Net {
    var relay: DERPRelay
    var clients: [UInt64: DERPConnection] = [:]
    var keys: [UInt64: PublicKey] = [:]
    var events: [UInt64: [DERPConnection.Event]] = [:]
    var now: Duration = .zero
    private let relayKey: PrivateKey

    init(rateLimit: DERPRelay.RateLimit? = nil) throws {
        relayKey = try makeKey(200)
        relay = DERPRelay(key: relayKey, rateLimit: rateLimit, random: SystemRandomNumberGenerator())
    }

    mutating func join(_ id: UInt64, key byte: UInt8) throws {
        var random = SystemRandomNumberGenerator()
        let key = try makeKey(byte)
        clients[id] = DERPConnection(key: key, isHome: true, dialled: now, now: now, random: &random)
        keys[id] = key.publicKey
        try relay.connect(id, now: now)
        try settle()
    }

    mutating func settle(upTo limit: Int = 1 << 20) throws {
        var isMoving = true
        while isMoving {
            isMoving = false
            for id in relay.takeReady() {
                var isLeft = true
                while isLeft {
                    var out = ByteBuffer()
                    isLeft = relay.write(into: &out, for: id, upTo: limit)
                    while let piece = out.readSlice(length: min(limit, out.readableBytes)), piece.readableBytes > 0 {
                        guard var client = clients[id] else { break }
                        events[id, default: []] += client.events(of: piece, now: now)
                        clients[id] = client
                    }
                }
                isMoving = true
            }
            for id in clients.keys.sorted() {
                guard var client = clients[id] else { continue }
                while client.hasOutput {
                    var out = client.output(now: now, upTo: limit)
                    while let piece = out.readSlice(length: min(limit, out.readableBytes)), piece.readableBytes > 0 {
                        try relay.receive(piece, from: id, now: now)
                    }
                    isMoving = true
                }
                clients[id] = client
            }
        }
    }

    mutating func send(_ text: String, from: UInt64, to key: PublicKey) {
        clients[from]?.send(ByteBuffer(string: text), to: key)
    }

    mutating func taken(_ id: UInt64) -> [DERPConnection.Event] {
        defer { events[id] = [] }
        return events[id] ?? []
    }
}

@Suite struct RelayTests {
    @Test(arguments: [1, 7, 1_000_000]) func packetsFindTheirWay(_ cut: Int) throws {
        var net = try Net()
        try net.join(1, key: 1)
        try net.join(2, key: 2)
        let (a, b) = (try #require(net.keys[1]), try #require(net.keys[2]))
        #expect(net.taken(1).last == .connected && net.taken(2).last == .connected)
        net.send("hello", from: 1, to: b)
        net.send("", from: 1, to: b)
        net.send("back", from: 2, to: a)
        try net.settle(upTo: cut)
        #expect(net.taken(2) == [.packet(from: a, ByteBuffer(string: "hello")), .packet(from: a, ByteBuffer())])
        #expect(net.taken(1) == [.packet(from: b, ByteBuffer(string: "back"))])
        // Once one is gone the other is told, and only a disco packet is answered.
        net.relay.disconnect(2)
        net.clients[2] = nil
        net.send("into the void", from: 1, to: b)
        try net.settle(upTo: cut)
        #expect(net.taken(1) == [.peerGone(b, .disconnected)])
        net.clients[1]?.send(ByteBuffer(bytes: [0x54, 0x53, 0xf0, 0x9f, 0x92, 0xac]), to: b)
        try net.settle(upTo: cut)
        #expect(net.taken(1) == [.peerGone(b, .notHere)])
    }

    @Test func theLastOfTwoConnectionsGetsThePackets() throws {
        var net = try Net()
        try net.join(1, key: 1)
        try net.join(2, key: 2)
        try net.join(3, key: 2)
        let (a, b) = (try #require(net.keys[1]), try #require(net.keys[2]))
        for id in [1, 2, 3] as [UInt64] { _ = net.taken(id) }
        net.send("one", from: 1, to: b)
        try net.settle()
        #expect(net.taken(2) == [] && net.taken(3) == [.packet(from: a, ByteBuffer(string: "one"))])
        net.relay.disconnect(3)
        net.clients[3] = nil
        net.send("two", from: 1, to: b)
        try net.settle()
        #expect(net.taken(2) == [.packet(from: a, ByteBuffer(string: "two"))] && net.taken(1) == [])
        net.relay.disconnect(2)
        net.clients[2] = nil
        try net.settle()
        #expect(net.taken(1) == [.peerGone(b, .disconnected)] && !net.relay.isConnected(b))
    }

    @Test func aFullQueueDropsTheOldest() throws {
        var net = try Net()
        try net.join(1, key: 1)
        try net.join(2, key: 2)
        let (a, b) = (try #require(net.keys[1]), try #require(net.keys[2]))
        for number in 0..<DERPLimits.queuedPackets + 3 {
            var frame = ByteBuffer()
            DERPFrame.send(to: b, ByteBuffer(integer: UInt32(number))).write(into: &frame)
            try net.relay.receive(frame, from: 1, now: .zero)
        }
        #expect(net.relay.counters.droppedQueueFull == 3)
        _ = net.taken(2)
        try net.settle()
        let got = net.taken(2)
        #expect(got.count == 512 && got.first == .packet(from: a, ByteBuffer(integer: UInt32(3))))
    }

    /// A client that sends to nobody and takes no answers.
    @Test func answersUpToTheLimit() throws {
        var net = try Net()
        try net.join(1, key: 1)
        let nobody = try makeKey(77).publicKey
        var bytes = ByteBuffer()
        for _ in 0..<1_000 {
            DERPFrame.send(to: nobody, ByteBuffer(bytes: [0x54, 0x53, 0xf0, 0x9f, 0x92, 0xac])).write(into: &bytes)
        }
        try net.relay.receive(bytes, from: 1, now: .zero)
        var out = ByteBuffer()
        net.relay.write(into: &out, for: 1)
        let answers = try frames(out)
        #expect(answers.count == 108 && answers.allSatisfy { $0 == .peerGone(nobody, .notHere) })
        #expect(out.readableBytes >= DERPLimits.controlBytes && net.relay.counters.droppedNotHere == 1_000)
        try net.relay.receive(bytes, from: 1, now: .zero)
        out.clear()
        net.relay.write(into: &out, for: 1)
        #expect(try frames(out).count == 108)
    }

    /// A client that takes nothing while those that it exchanged packets with go.
    @Test func departuresUpToTheLimit() throws {
        var net = try Net()
        try net.join(1, key: 1)
        let own = try #require(net.keys[1])
        for number in 2...200 as ClosedRange<UInt64> {
            try net.join(number, key: UInt8(number))
            net.send("hello", from: number, to: own)
        }
        try net.settle()
        for number in 2...200 as ClosedRange<UInt64> { net.relay.disconnect(number) }
        var out = ByteBuffer()
        net.relay.write(into: &out, for: 1)
        #expect(try frames(out).count == 108 && out.readableBytes >= DERPLimits.controlBytes)
    }

    @Test func keepAlivesLimitsAndWhatEndsAClient() throws {
        var net = try Net(rateLimit: .init(bytesPerSecond: 10, burst: 3_000))
        try net.join(1, key: 1)
        let own = try #require(net.keys[1])
        for _ in 0..<4 { net.clients[1]?.send(ByteBuffer(repeating: 0, count: 1_000), to: own) }
        try net.settle()
        #expect(net.clients[1]?.counters.droppedRateLimit == 2)
        #expect(net.relay.nextDeadline == .seconds(60))
        net.now = .seconds(60)
        net.relay.advance(now: .seconds(60))
        try net.settle()
        #expect(net.clients[1]?.nextDeadline == .seconds(180) && net.relay.nextDeadline == .seconds(120))
        net.relay.tell(1, .restarting(reconnectIn: 5, tryFor: 6))
        net.relay.tell(99, .keepAlive)
        try net.settle()
        #expect(net.taken(1).last == .restarting(reconnectIn: .milliseconds(5), tryFor: .milliseconds(6)))

        try net.relay.connect(7, now: .zero)
        var frame = ByteBuffer()
        DERPFrame.keepAlive.write(into: &frame)
        #expect(throws: DERPError.badClientInfo("is not its first frame")) {
            try net.relay.receive(frame, from: 7, now: .zero)
        }
        frame.clear()
        DERPFrame.clientInfo(own, nonce: .init(repeating: 0, count: 24), box: .init(repeating: 0, count: 20))
            .write(into: &frame)
        try net.relay.connect(8, now: .zero)
        #expect(throws: DERPError.badClientInfo("is not authentic")) {
            try net.relay.receive(frame, from: 8, now: .zero)
        }
        // Without a greeting there is no keep alive.
        _ = net.relay.takeReady()
        net.relay.advance(now: .seconds(500))
        #expect(net.relay.takeReady() == [1])
    }

    @Test func connectionsUpToTheLimit() throws {
        var net = try Net()
        for id in 0..<UInt64(DERPLimits.relayClients) { try net.relay.connect(id, now: .zero) }
        #expect(throws: DERPError.tooManyClients) { try net.relay.connect(9_999, now: .zero) }
        net.relay.disconnect(0)
        try net.relay.connect(9_999, now: .zero)
        #expect(net.relay.connectionCount == DERPLimits.relayClients)
    }

    /// Bits of the recorded bytes change, and nothing may trap or grow.
    @Test func changedBytes() throws {
        var random = SeededGenerator("DERP mutations")
        let file = try VectorFile.read("tailnet_derp.json")
        var seeds: [(isServer: Bool, bytes: ByteBuffer)] = []
        for name in ["connection_a", "connection_b", "connection_a_duplicate", "decode"] {
            for event in try #require(file[name] as? [[String: Any]]) where event["hex"] != nil {
                seeds.append((event["from"] as? String != "client", ByteBuffer(hex: event["hex"])))
            }
        }
        let (own, relayKey) = (try makeKey(1), try makeKey(2))
        let template = greeted(own, relay: relayKey)
        var relay = DERPRelay(key: relayKey, random: SystemRandomNumberGenerator())
        var events = 0
        for number in 0..<100_000 {
            guard let seed = seeds.randomElement(using: &random) else { return }
            var bytes = seed.bytes
            for _ in 0..<Int.random(in: 0...3, using: &random) where bytes.readableBytes > 0 {
                let at = Int.random(in: 0..<bytes.readableBytes, using: &random)
                let old: UInt8 = bytes.getInteger(at: at) ?? 0
                bytes.setInteger(old ^ 1 << UInt8.random(in: 0..<8, using: &random), at: at)
            }
            let cut = Int.random(in: 0...bytes.readableBytes, using: &random)
            let pieces = [bytes.readSlice(length: cut) ?? ByteBuffer(), bytes]
            if seed.isServer {
                var connection = template
                for piece in pieces { events += connection.events(of: piece).count }
                _ = connection.output()
            } else {
                let id = UInt64(number)
                try relay.connect(id, now: .zero)
                do { for piece in pieces { try relay.receive(piece, from: id, now: .zero) } } catch { events += 1 }
                var out = ByteBuffer()
                relay.write(into: &out, for: id)
                relay.disconnect(id)
            }
        }
        #expect(events > 10_000, "seed \(random.seed)")
        #expect(relay.connectionCount == 0)
    }
}
