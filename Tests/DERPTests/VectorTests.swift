import AgentTestSupport
import Foundation
import NIOCore
import Sodium
import Testing

@testable import DERP

/// What the real client and relay said, byte for byte.
@Suite struct VectorTests {
    private let vectors: [String: Any]
    private let relay: PrivateKey

    init() throws {
        vectors = try VectorFile.read("tailnet_derp.json")
        relay = try PrivateKey(#require(bytes(fromHex: vectors["server_private"])))
    }

    private func key(_ name: String) throws -> PrivateKey {
        try PrivateKey(#require(bytes(fromHex: vectors["\(name)_private"])))
    }

    private func events(_ name: String) throws -> [[String: Any]] {
        try #require(vectors["connection_\(name)"] as? [[String: Any]])
    }

    /// The bytes of one write, of which the record has only the beginning when it is long; the rest is zeros.
    private func written(_ event: [String: Any]) -> ByteBuffer {
        if event["hex"] != nil { return ByteBuffer(hex: event["hex"]) }
        var buffer = ByteBuffer(hex: event["hex_start"])
        buffer.writeRepeatingByte(0, count: (event["length"] as? Int ?? 0) - buffer.readableBytes)
        return buffer
    }

    @Test func everyDecodedFrame() throws {
        let cases = try #require(vectors["decode"] as? [[String: Any]])
        #expect(cases.count == 16)
        for vector in cases {
            let name = vector["name"] as? String ?? ""
            for cut in 0...ByteBuffer(hex: vector["hex"]).readableBytes {
                var connection = greeted(try key("a"), relay: relay)
                let bytes = ByteBuffer(hex: vector["hex"])
                var events = connection.events(of: try #require(bytes.getSlice(at: 0, length: cut)))
                events += connection.events(
                    of: try #require(bytes.getSlice(at: cut, length: bytes.readableBytes - cut)))
                if let decoded = vector["decoded"] as? [String: Any] {
                    let pong = connection.output()
                    let isRight = try events == expected(decoded) && pong == answer(decoded)
                    #expect(isRight, "\(name): \(events)")
                } else {
                    #expect(events == [.ended(.frameTooLong(type: 5, bytes: 1_048_577))], "\(name)")
                    let rest = connection.output()
                    #expect(vector["error"] != nil && rest.readableBytes == 0)
                }
            }
        }
    }

    private func answer(_ decoded: [String: Any]) throws -> ByteBuffer {
        var bytes = ByteBuffer()
        if decoded["type"] as? String == "ping" { DERPFrame.pong(0x0102_0304_0506_0708).write(into: &bytes) }
        return bytes
    }

    private func expected(_ decoded: [String: Any]) throws -> [DERPConnection.Event] {
        func key(_ name: String) throws -> PublicKey { try #require(PublicKey(bytes(fromHex: decoded[name]) ?? [])) }
        switch decoded["type"] as? String {
        // What a mesh's relays say is ignored; a ping is answered without a word.
        case "keep alive", "ping", "peer present", "server info": return []
        case "pong": return [.pong(0x0102_0304_0506_0708)]
        case "packet":
            var packet = ByteBuffer(hex: decoded["data_start"])
            packet.writeRepeatingByte(0, count: (decoded["length"] as? Int ?? 0) - packet.readableBytes)
            return [.packet(from: try key("source"), packet)]
        case "peer gone":
            return [.peerGone(try key("peer"), PeerGoneReason(UInt8(decoded["reason"] as? Int ?? 9)))]
        case "health":
            let problem = decoded["problem"] as? String ?? ""
            return [.health(problem.isEmpty ? nil : problem)]
        case "restarting":
            return [
                .restarting(
                    reconnectIn: .milliseconds(decoded["reconnect_in_ms"] as? Int ?? 0),
                    tryFor: .milliseconds(decoded["try_for_ms"] as? Int ?? 0))
            ]
        default:
            Issue.record("a type that the tests don't know: \(decoded)")
            return []
        }
    }

    /// The relay's bytes go into our client, whose bytes are those of the real one, and its events what that returned.
    @Test(arguments: ["a", "b", "a_duplicate"])
    func theClientIsTheRealOne(_ name: String) throws {
        let own = try key(String(name.prefix(1)))
        let all = try events(name)
        let sent = try #require(all.first { $0["from"] as? String == "client" })
        var random = ScriptedGenerator(bytes: Array(written(sent).all[37..<61]))
        var connection = DERPConnection(key: own, isHome: true, dialled: .zero, now: .zero, random: &random)
        var got: [DERPConnection.Event] = []
        var want: [DERPConnection.Event] = [.greeted(server: relay.publicKey), .connected]
        var ours = ByteBuffer()
        var theirs = ByteBuffer()
        for event in all {
            if event["from"] as? String == "server" {
                got += connection.events(of: written(event))
                ours.writeImmutableBuffer(connection.output())
            } else if event["from"] as? String == "client" {
                theirs.writeImmutableBuffer(written(event))
            } else if let decoded = event["client_decodes"] as? [String: Any] {
                want += try expected(decoded)
            }
        }
        // What the recorded application did.
        for frame in try frames(theirs) {
            if case .send(let peer, let packet) = frame { connection.send(packet, to: peer) }
            if case .ping(let data) = frame {
                let isAsked = connection.ping(data)
                #expect(isAsked)
            }
        }
        ours.writeImmutableBuffer(connection.output())
        #expect(got == want)
        // The raw client of the record says nothing of home unless told to.
        let sortedOurs = try frames(ours).filter { if case .notePreferred = $0 { false } else { true } }
        let sortedTheirs = try frames(theirs).filter { if case .notePreferred = $0 { false } else { true } }
        #expect(Set(sortedOurs) == Set(sortedTheirs) && sortedOurs.count == sortedTheirs.count)
        #expect(sortedOurs.first == sortedTheirs.first)
    }

    /// The recorded clients' bytes go into our relay, which answers with the real one's bytes.
    @Test func theRelayIsTheRealOne() throws {
        let (a, b) = (try events("a"), try events("b"))
        func infoNonce(_ events: [[String: Any]]) throws -> [UInt8] {
            Array(
                written(try #require(events.filter { $0["from"] as? String == "server" }.dropFirst().first)).all[5..<29]
            )
        }
        let nonces = try infoNonce(a) + infoNonce(b)
        var machine = DERPRelay(key: relay, random: ScriptedGenerator(bytes: nonces))
        var said: [UInt64: ByteBuffer] = [1: ByteBuffer(), 2: ByteBuffer()]
        try machine.connect(1, now: .zero)
        try machine.connect(2, now: .zero)
        // Who writes when: both greet, then a, whose packets b answers once.
        let (ofA, ofB) = (
            a.filter { $0["from"] as? String == "client" }, b.filter { $0["from"] as? String == "client" }
        )
        func feed(_ id: UInt64, _ event: [String: Any]) throws {
            try machine.receive(written(event), from: id, now: .zero)
            for id in machine.takeReady() {
                var out = said[id] ?? ByteBuffer()
                machine.write(into: &out, for: id, upTo: .max)
                said[id] = out
            }
        }
        try feed(1, ofA[0])
        try feed(2, ofB[0])
        try feed(1, ofA[1])
        #expect(try machine.isHome(of: key("a").publicKey) && !machine.isHome(of: key("b").publicKey))
        try feed(1, ofA[2])
        try feed(2, ofB[1])
        for event in ofA.dropFirst(3) { try feed(1, event) }
        machine.disconnect(2)
        var rest = said[1] ?? ByteBuffer()
        machine.write(into: &rest, for: 1)
        said[1] = rest
        for (id, events) in [(UInt64(1), a), (2, b)] {
            var want = ByteBuffer()
            for event in events where event["from"] as? String == "server" { want.writeImmutableBuffer(written(event)) }
            #expect(said[id]?.all == want.all, "connection \(id)")
        }
        #expect(machine.counters == .init(routed: 3, droppedNotHere: 2))
    }

    @Test func everyBoxIsThatOfTheRealProgram() throws {
        for name in ["a", "b"] {
            let boxes = try #require(vectors["connection_\(name)_boxes"] as? [[String: Any]])
            #expect(boxes.count == 2)
            let box = try #require(Box(relay, try key(name).publicKey))
            var seen: [String] = []
            for event in try events(name) where event["hex"] != nil {
                for frame in try frames(written(event)) {
                    switch frame {
                    case .clientInfo(let key, let nonce, let sealed):
                        #expect(hex(key.bytes) == boxes[0]["client_public"] as? String)
                        seen.append(String(decoding: box.open(sealed, nonce: nonce) ?? [], as: UTF8.self))
                    case .serverInfo(let nonce, let sealed):
                        seen.append(String(decoding: box.open(sealed, nonce: nonce) ?? [], as: UTF8.self))
                    default: break
                    }
                }
            }
            #expect(seen == boxes.map { $0["json"] as? String ?? "" })
        }
    }

    /// The frames in HTTP and in WebSocket messages are the same ones.
    @Test func framesInHTTP() throws {
        let file = try VectorFile.read("tailnet_derp_http.json")
        let exchanges = try #require(file["exchanges"] as? [[String: Any]])
        #expect(exchanges.map { $0["mode"] as? String } == ["upgrade", "websocket", "refused upgrade, then websocket"])
        for exchange in exchanges {
            let isWebSocket = exchange["mode"] as? String != "upgrade"
            let events = try #require(exchange["events"] as? [[String: Any]])
            #expect(
                exchange["mode"] as? String == "websocket"
                    || events[0]["http"] as? String
                        == "GET \(RelayURL.path) HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nUser-Agent: Go-http-client/1.1\r\n"
                        + "Connection: Upgrade\r\nUpgrade: DERP\r\nX-Custom: from --agent-header\r\n\r\n"
            )
            let last = events.compactMap { $0["connection"] as? Int }.max()
            func stream(_ from: String) -> ByteBuffer {
                var all = ByteBuffer()
                for event in events where event["from"] as? String == from && event["connection"] as? Int == last {
                    let raw = ByteBuffer(hex: event["hex"] ?? event["hex_after_head"])
                    all.writeImmutableBuffer(isWebSocket ? unmasked(raw) : raw)
                }
                return all
            }
            let client = try frames(stream("client"))
            guard case .clientInfo(_, let nonce, _) = try #require(client.first) else {
                Issue.record("no client info first")
                continue
            }
            var random = ScriptedGenerator(bytes: nonce)
            var connection = DERPConnection(
                key: try key("a"), isHome: true, dialled: .zero, now: .zero, random: &random)
            let got = connection.events(of: stream("server"))
            #expect(got == [.greeted(server: relay.publicKey), .connected])
            connection.send(ByteBuffer(string: "packet one"), to: try key("b").publicKey)
            let said = connection.output()
            #expect(said.all == stream("client").all)
        }
    }

    /// The payloads of short binary messages.
    private func unmasked(_ messages: ByteBuffer) -> ByteBuffer {
        var rest = messages.all[...]
        var payload = ByteBuffer()
        while rest.count > 2, let first = rest.popFirst(), let second = rest.popFirst() {
            let mask = second & 0x80 != 0 ? Array(rest.prefix(4)) : [0, 0, 0, 0]
            if second & 0x80 != 0 { rest = rest.dropFirst(4) }
            let body = rest.prefix(Int(second & 0x7f))
            rest = rest.dropFirst(body.count)
            if first == 0x82 { payload.writeBytes(body.enumerated().map { $1 ^ mask[$0 % 4] }) }
        }
        return payload
    }
}
