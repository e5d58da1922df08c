import AgentTestSupport
import IPAddresses
import Sodium
import Testing

@testable import WireGuard

/// The messages of the real program, byte by byte.
@Suite struct VectorTests {
    private let all: [String: Any]

    init() throws { all = try VectorFile.read("tailnet_wireguard.json") }

    private func object(_ value: Any?) throws -> [String: Any] { try #require(value as? [String: Any]) }
    private func list(_ value: Any?) throws -> [[String: Any]] { try #require(value as? [[String: Any]]) }
    private func data(_ value: Any?) throws -> [UInt8] { try #require(bytes(fromHex: value)) }
    private func number(_ value: Any?) throws -> UInt64 {
        try #require((value as? UInt64) ?? (value as? Int).map(UInt64.init))
    }

    @Test func primitives() throws {
        let vectors = try object(all["primitives"])
        for vector in try list(vectors["blake2s_256"]) {
            #expect(try KeyDerivation.hash(data(vector["input"])) == data(vector["digest"]))
        }
        for vector in try list(vectors["blake2s_keyed_128"]) {
            let (key, input) = (try data(vector["key"]), try data(vector["input"]))
            let mac = key.withUnsafeBytes { key in input.withUnsafeBytes { KeyDerivation.mac(key: key, $0) } }
            #expect(try mac.withBytes { Array($0) } == data(vector["mac_16_bytes"]))
        }
        let kdf = try object(vectors["hmac_blake2s_kdf"])
        let (key, input) = (SecretBytes(try data(kdf["key"])), try data(kdf["input"]))
        func expected(_ name: String) throws -> [SecretBytes] {
            try #require(kdf[name] as? [String]).map { SecretBytes(try data($0)) }
        }
        let made = input.withUnsafeBytes { input in
            (
                hmac: KeyDerivation.hmac(key: key, input), one: KeyDerivation.kdf1(key: key, input),
                two: KeyDerivation.kdf2(key: key, input), three: KeyDerivation.kdf3(key: key, input)
            )
        }
        #expect(try made.hmac == SecretBytes(data(kdf["hmac"])))
        #expect(try [made.one] == expected("kdf1"))
        #expect(try [made.two.0, made.two.1] == expected("kdf2"))
        #expect(try [made.three.0, made.three.1, made.three.2] == expected("kdf3"))
        let two = KeyDerivation.kdf2(key: key, UnsafeRawBufferPointer(start: nil, count: 0))
        #expect(try [two.0, two.1] == expected("kdf2_empty_input"))
        #expect(try Noise.initialChain == data(vectors["initial_chain_key"]))
        #expect(try Noise.initialHash == data(vectors["initial_hash"]))
        let own = try PrivateKey([UInt8](repeating: 7, count: 32))
        for vector in try list(vectors["low_order_points"]) {
            let point = try #require(PublicKey(data(vector["public"])))
            #expect(try #require(vector["rejected"] as? Bool) == (own.shared(with: point) == nil))
        }
        for vector in try list(vectors["tai64n"]) {
            let time = TAI64N(
                unixSeconds: Int64(try number(vector["unix_s"])), nanoseconds: UInt32(try number(vector["ns"])))
            #expect(try time.bytes == data(vector["tai64n"]) && TAI64N(time.bytes) == time)
        }
        let x = try object(vectors["xchacha20poly1305"])
        #expect(
            try AEAD.xseal(
                data(x["plaintext"]), nonce: data(x["nonce"]), aad: data(x["aad"]), key: SecretBytes(data(x["key"])))
                == data(x["sealed"]))
    }

    @Test func replay() throws {
        var window = ReplayWindow()
        let vectors = try list(all["replay"])
        #expect(vectors.count == 31)
        for vector in vectors {
            let (counter, isAccepted) = (try number(vector["counter"]), try #require(vector["accepted"] as? Bool))
            #expect(window.accept(counter) == isAccepted, "\(counter)")
        }
    }

    @Test func cookie() throws {
        let vector = try object(all["cookie"])
        let cookie = HandshakeGate.cookie(
            for: Source(try data(vector["source"])), secret: SecretBytes(try data(vector["cookie_secret"])))
        #expect(try cookie.withBytes { Array($0) } == data(vector["cookie"]))
        let responder = try #require(PublicKey(data(vector["responder_static_public"])))
        let initiation = try data(vector["initiation"])
        let reply = try data(vector["reply_packet"])
        let made = HandshakeGate.reply(
            receiver: initiation.withUnsafeBytes { Message.uint32($0, at: 4) }, mac1: try data(vector["mac1"]),
            nonce: try data(vector["nonce"]), cookie: cookie, key: Message.cookieKey(responder))
        #expect(made == reply)
        let key = Message.mac1Key(responder)
        #expect(initiation.withUnsafeBytes { Message.hasMAC1($0, key: key) })
        let mac1 = try #require(MAC(bytes: data(vector["mac1"])))
        let opened = try #require(
            HandshakeGate.open(reply: reply, mac1: mac1, key: Message.cookieKey(responder)))
        var message = Array(initiation.prefix(116))
        _ = Message.appendMACs(to: &message, receiver: responder, cookie: opened)
        #expect(try message == data(vector["initiation_with_mac2"]))
        for index in 8..<reply.count {
            var changed = reply
            changed[index] ^= 1
            #expect(HandshakeGate.open(reply: changed, mac1: mac1, key: Message.cookieKey(responder)) == nil)
        }
    }

    @Test(arguments: [0, 1]) func chain(_ number: Int) throws {
        let vector = try list(all["sessions"])[number]
        let (first, second) = (try object(vector["initiation"]), try object(vector["response"]))
        let initiator = try PrivateKey(data(object(vector["initiator"])["static_private"]))
        let responder = try PrivateKey(data(object(vector["responder"])["static_private"]))
        let statics = try #require(initiator.shared(with: responder.publicKey))
        #expect(try statics == SecretBytes(data(vector["static_static_shared"])))
        let ephemeral = try PrivateKey(data(first["ephemeral_private"]))
        #expect(try ephemeral.publicKey.bytes == data(first["ephemeral_public"]))
        let time = TAI64N(
            unixSeconds: Int64(try self.number(first["timestamp_unix_s"])),
            nanoseconds: UInt32(try self.number(first["timestamp_ns"])))
        #expect(try time.bytes == data(first["timestamp_tai64n"]))
        let made = try #require(
            Noise.initiation(
                from: initiator.publicKey, to: responder.publicKey, statics: statics, ephemeral: ephemeral,
                index: UInt32(try self.number(first["sender_index"])), time: time))
        #expect(try made.state.chain == SecretBytes(data(first["chain_key_after"])))
        #expect(try made.state.hash == data(first["hash_after"]))
        var state = made.state
        let preshared = try data(vector["preshared_key"])
        let response = state.response(
            to: initiator.publicKey, itsEphemeral: ephemeral.publicKey,
            preshared: preshared.isEmpty ? Peer.noPreshared : SecretBytes(preshared),
            ephemeral: try PrivateKey(data(second["ephemeral_private"])),
            index: UInt32(try self.number(second["sender_index"])),
            receiver: UInt32(try self.number(second["receiver_index"])))
        #expect(try response == Array(data(second["packet"]).prefix(60)))
        #expect(try state.chain == SecretBytes(data(second["chain_key_after"])))
        #expect(try state.hash == data(second["hash_after"]))
    }

    /// Both ends as nodes, with the ephemeral keys, indices and times of the record.
    @Test(arguments: [0, 1]) func session(_ number: Int) throws {
        let vector = try list(all["sessions"])[number]
        let (first, second) = (try object(vector["initiation"]), try object(vector["response"]))
        let time = try #require(TAI64N(data(first["timestamp_tai64n"])))
        let keys = [
            try PrivateKey(data(object(vector["initiator"])["static_private"])),
            try PrivateKey(data(object(vector["responder"])["static_private"])),
        ]
        var scripts = [ScriptedGenerator(seed: 1), ScriptedGenerator(seed: 2)]
        scripts[0].values = [1 << 63 | 1]  // the jitter
        scripts[0].script(try data(first["ephemeral_private"]))
        scripts[0].values.append(try self.number(first["sender_index"]))
        scripts[1].script(try data(second["ephemeral_private"]))
        scripts[1].values.append(try self.number(second["sender_index"]))
        let preshared = try data(vector["preshared_key"])
        let destination = try #require(IPAddress("fd7a:115c:a1e0:4222:8222:2222:2222:2222"))
        let allowed = try #require(IPPrefix("fd7a:115c:a1e0:4111:8111:1111:1111:1111/128"))
        var nodes: [WireGuardNode] = []
        var peers: [PeerID] = []
        for index in [0, 1] {
            nodes.append(
                WireGuardNode(key: keys[index], addresses: [destination], random: scripts[index], wall: { time }))
            peers.append(
                try nodes[index].addPeer(
                    keys[1 - index].publicKey, preshared: preshared.isEmpty ? nil : SecretBytes(preshared),
                    allowed: [allowed], now: .zero))
        }
        #expect(nodes[0].send(packet(from: 1, to: 2), to: peers[0], now: .zero).sealed == .staged)
        let initiated = nodes[0].transmission(now: .zero)
        let initiation = try #require(initiated)
        #expect(try initiation.datagram == data(first["packet"]) && initiation.destination == .peer(peers[0]))
        #expect(nodes[1].take(initiation.datagram, now: .zero).received == .authenticated(Authentic(peer: peers[1])))
        let responded = nodes[1].transmission(now: .zero)
        let response = try #require(responded)
        #expect(try response.datagram == data(second["packet"]) && response.destination == .peer(peers[1]))
        let fresh = Authentic(peer: peers[0], isNewSession: true)
        #expect(nodes[0].take(response.datagram, now: .zero).received == .authenticated(fresh))
        // The packet that waited is not in the record: an empty one is the first there.
        nodes[0].dropStaged(0, .peerRemoved)
        try transport(vector, &nodes, peers)
    }

    private func transport(_ vector: [String: Any], _ nodes: inout [WireGuardNode], _ peers: [PeerID]) throws {
        let keys = try object(vector["transport_keys"])
        let place = try #require(nodes[0].peers[0].current)
        let session = nodes[0].sessions[place]
        #expect(try session.sendKey == SecretBytes(data(keys["initiator_to_responder"])))
        #expect(try session.receiveKey == SecretBytes(data(keys["responder_to_initiator"])))
        let messages = try list(vector["transport"])
        #expect(messages.count == 6)
        for message in messages {
            let from = message["from"] as? String == "initiator" ? 0 : 1
            let (inner, datagram) = (try data(message["inner"]), try data(message["packet"]))
            #expect(datagram.count == Int(try number(message["padded_length"])) + 32)
            let current = try #require(nodes[from].peers[0].current)
            nodes[from].sessions[current].counter = try number(message["counter"])
            let to = 1 - from
            if inner.isEmpty {
                #expect(nodes[from].transmissions(now: .zero) == [datagram])
                let fresh = Authentic(peer: peers[to], isNewSession: true)
                #expect(nodes[to].take(datagram, now: .zero).received == .authenticated(fresh))
            } else {
                #expect(nodes[from].send(inner, to: peers[from], now: .zero).datagram == datagram)
                let taken = nodes[to].take(datagram, now: .zero)
                #expect(taken.packet == inner)
                #expect(taken.received == .packet(Authentic(peer: peers[to]), 16..<16 + inner.count))
                #expect(nodes[to].take(datagram, now: .zero).received == .dropped(.replayed))
            }
        }
    }
}
