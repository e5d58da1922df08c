import AgentTestSupport
import Foundation
import IPAddresses
import Sodium
import Testing

@testable import Disco

@Suite struct DiscoVectorTests {
    private let vectors: [String: Any]
    private let sender: PrivateKey
    private let receiver: PrivateKey

    init() throws {
        vectors = try VectorFile.read("tailnet_disco.json")
        sender = try PrivateKey(#require(bytes(fromHex: vectors["sender_private"])))
        receiver = try PrivateKey(#require(bytes(fromHex: vectors["receiver_private"])))
    }

    private func message(_ json: [String: Any]) throws -> DiscoMessage {
        let tx = TransactionID(bytes(fromHex: json["tx"]) ?? [])
        switch json["type"] as? String {
        case "ping":
            let key = try #require(PublicKey(bytes(fromHex: json["node_key"]) ?? []))
            return .ping(try #require(tx), nodeKey: key.isZero ? nil : key)
        case "pong":
            let source = try #require(json["src"] as? String)
            return .pong(try #require(tx), source: try #require(Endpoint(source)))
        case "call-me-maybe":
            return .callMeMaybe(try #require(json["endpoints"] as? [String]).compactMap { Endpoint($0) })
        default:
            Issue.record("a type that the tests don't know: \(json)")
            return .callMeMaybe([])
        }
    }

    @Test func everyPacketIsThatOfTheRealProgram() throws {
        #expect(hex(sender.publicKey.bytes) == vectors["sender_public"] as? String)
        #expect(hex(receiver.publicKey.bytes) == vectors["receiver_public"] as? String)
        #expect("discokey:\(hex(sender.publicKey.bytes))" == vectors["sender_text"] as? String)
        let box = try #require(Box(sender, receiver.publicKey))
        let other = try #require(Box(receiver, sender.publicKey))
        let packets = try #require(vectors["packets"] as? [[String: Any]])
        #expect(packets.count == 7)
        for vector in packets {
            let message = try message(#require(vector["message"] as? [String: Any]))
            let packet = try #require(bytes(fromHex: vector["packet"]))
            #expect(hex(message.plaintext) == vector["plaintext"] as? String)
            #expect(packet.count == vector["length"] as? Int)
            var random = ScriptedGenerator(bytes: try #require(bytes(fromHex: vector["nonce"])))
            #expect(DiscoPacket.seal(message, from: sender.publicKey, box: box, random: &random) == packet)
            #expect(DiscoPacket.sender(of: packet) == sender.publicKey)
            #expect(try DiscoPacket.open(packet, box: other) == message)
            #expect(packet.withUnsafeBytes { DatagramKind($0) } == .disco)
            for count in packet.indices {
                let part = Array(packet.prefix(count))
                let drop: DiscoDrop = count < 62 ? .notDisco : .notAuthentic
                #expect(throws: drop) { try DiscoPacket.open(part, box: other) }
                #expect((DiscoPacket.sender(of: part) == nil) == (count < 62))
            }
        }
    }

    @Test func everyDecodedMessage() throws {
        let cases = try #require(vectors["decode"] as? [[String: Any]])
        #expect(cases.count == 14)
        for vector in cases {
            let plaintext = try #require(bytes(fromHex: vector["plaintext"]))
            if let json = vector["message"] as? [String: Any] {
                let message = try message(json)
                #expect(try DiscoMessage(plaintext: plaintext) == message, "\(hex(plaintext))")
            } else {
                let error = #expect(throws: DiscoDrop.self) { try DiscoMessage(plaintext: plaintext) }
                #expect(error?.description == vector["error"] as? String)
            }
        }
    }

    @Test func endpointsOfACallUpToTheLimit() throws {
        for count in [99, 100, 101] {
            let endpoints = (0..<count).map { Endpoint(IPAddress(v4: 0x0808_0000 + UInt32($0)), 1) }
            let read = try DiscoMessage(plaintext: DiscoMessage.callMeMaybe(endpoints).plaintext)
            #expect(read == .callMeMaybe(Array(endpoints.prefix(100))))
        }
        let long = DiscoPacket.magic + [UInt8](repeating: 1, count: DiscoLimits.packetBytes - 6)
        #expect(DiscoPacket.sender(of: long) != nil && DiscoPacket.sender(of: long + [1]) == nil)
    }

    @Test func whatADatagramIs() {
        func kind(_ bytes: [UInt8], _ count: Int) -> DatagramKind {
            (bytes + [UInt8](repeating: 0, count: max(0, count - bytes.count))).withUnsafeBytes { DatagramKind($0) }
        }
        for (type, count) in [(1, 148), (2, 92), (3, 64), (4, 32), (4, 1_312)] as [(UInt8, Int)] {
            #expect(kind([type, 0, 0, 0], count) == .wireGuard)
            #expect(kind([type, 0, 0, 1], count) == .other)
            if count < 1_000 { #expect(kind([type, 0, 0, 0], count - 1) == .other) }
        }
        #expect(kind([1, 0, 0, 0], 149) == .other && kind([5, 0, 0, 0], 64) == .other)
        #expect(kind([0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42], 20) == .stun)
        #expect(kind([0x40, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42], 20) == .other)
        #expect(kind([0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x43], 20) == .other)
        #expect(kind(DiscoPacket.magic, 62) == .disco && kind(DiscoPacket.magic, 61) == .other)
        for count in 0..<20 { #expect(kind([0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42], count) == .other || count >= 8) }
        #expect([UInt8]().withUnsafeBytes { DatagramKind($0) } == .other)
    }
}

@Suite struct STUNVectorTests {
    private let vectors: [String: Any]
    private let tx: TransactionID

    init() throws {
        vectors = try VectorFile.read("tailnet_stun.json")
        let text = try #require(bytes(fromHex: vectors["tx"]))
        tx = try #require(TransactionID(text))
    }

    @Test func requestAndAnswers() throws {
        let request = STUN.makeRequest(tx)
        #expect(hex(request) == vectors["request"] as? String)
        #expect(request.withUnsafeBytes { DatagramKind($0) } == .stun)
        let responses = try #require(vectors["responses"] as? [[String: Any]])
        #expect(responses.count == 3)
        for vector in responses {
            let text = try #require(vector["address"] as? String)
            let address = try #require(Endpoint(text))
            let packet = try #require(STUN.answer(request, from: address))
            #expect(hex(packet) == vector["packet"] as? String)
            let read = try STUN.readResponse(packet)
            #expect(read.tx == tx && read.address == address)
        }
        // As the real server, ours ignores a request that isn't wholly ours.
        for index in request.indices where !(8..<20).contains(index) {
            var changed = request
            changed[index] ^= 1
            #expect(STUN.answer(changed, from: Endpoint(IPAddress(v4: 1), 1)) == nil, "byte \(index)")
        }
        for count in request.indices {
            #expect(STUN.answer(Array(request.prefix(count)), from: Endpoint(IPAddress(v4: 1), 1)) == nil)
        }
    }

    @Test func everyDecodedAnswer() throws {
        let cases = try #require(vectors["decode"] as? [[String: Any]])
        #expect(cases.count == 7)
        for vector in cases {
            let packet = try #require(bytes(fromHex: vector["packet"]))
            if let text = vector["address"] as? String {
                let read = try STUN.readResponse(packet)
                #expect(read.address.description == text && hex(read.tx.bytes) == vector["tx"] as? String)
                for count in packet.indices {
                    #expect(throws: STUN.ReadError.self) { try STUN.readResponse(Array(packet.prefix(count))) }
                }
            } else {
                let error = #expect(throws: STUN.ReadError.self) { try STUN.readResponse(packet) }
                #expect(error?.description == vector["error"] as? String)
            }
        }
    }
}
