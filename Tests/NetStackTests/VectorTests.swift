import AgentTestSupport
import Foundation
import IPAddresses
import NIOCore
import Testing

@testable import NetStack

/// Packets of a real client and a real agent (`tailnet_inner.json`).
@Suite struct VectorTests {
    private func vectors() throws -> [String: Any] { try VectorFile.read("tailnet_inner.json") }

    @Test func pingsAreAnsweredByteForByte() throws {
        let cases = try #require(try vectors()["tsmp"] as? [[String: Any]])
        #expect(!cases.isEmpty)
        for vector in cases {
            var peer = RawPeer()
            peer.stack.receive(try #require(bytes(fromHex: vector["ping"])), now: peer.now)
            #expect(peer.stack.packets(now: peer.now) == [try #require(bytes(fromHex: vector["pong"]))])
        }
    }

    /// The recorded client talks with our stack, whose numbers and clock differ from the recorded agent's.
    private struct Replay {
        var stack: NetStack
        /// What our number is above the recorded agent's.
        var shift: UInt32 = 0
        /// Our last timestamp.
        var stamp: UInt32 = 0
        var recordedSYN: [UInt8] = []
        var ourSYN: [UInt8] = []
        var id: ConnectionID?
        var received: [UInt8] = []
        var sent: [UInt8] = []
        var sawEnd = false
        var isClosed = false

        mutating func client(_ recorded: [UInt8], now: Duration) {
            var packet = recorded
            if recorded[53] & 16 != 0 {
                packet.replaceSubrange(48..<52, with: RawPeer.big(number(packet, 48) &+ shift))
                packet.replaceSubrange(68..<72, with: RawPeer.big(stamp))
                packet.replaceSubrange(56..<58, with: [0, 0])
                packet = RawPeer.packet(from: theirs, to: ours, next: 6, Array(packet[40...]), checksumAt: 16)
            }
            stack.receive(packet, now: now)
        }

        /// What the recorded agent said, our application says.
        mutating func agent(_ payload: [UInt8], isLast: Bool, now: Duration) {
            guard let id else { return }
            var buffer = ByteBuffer(bytes: payload)
            stack.write(id, &buffer, now: now)
            if isLast { stack.finish(id, now: now) }
        }

        mutating func drain(now: Duration) {
            for event in stack.allEvents() {
                switch event {
                case .connectionRequested(let new, _, _):
                    id = new
                    stack.accept(new, now: now)
                case .readable(let id):
                    while let data = stack.read(id, now: now) { received += data.readableBytesView }
                case .endOfInput: sawEnd = true
                case .closed: isClosed = true
                default: break
                }
            }
            for packet in stack.packets(now: now) {
                let isSYN = packet[53] & 2 != 0
                if isSYN {
                    ourSYN = packet
                    shift = number(packet, 44) &- number(recordedSYN, 44)
                }
                sent += packet[(40 + Int(packet[52] >> 4) * 4)...]
                stamp = number(packet, isSYN ? 68 : 64)
            }
        }

        private func number(_ packet: [UInt8], _ offset: Int) -> UInt32 {
            packet[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
        }
    }

    @Test(arguments: ["tcp_http_port_4", "tcp_forward_8123"]) func aRecordedConnection(name: String) throws {
        let steps = try #require(try vectors()[name] as? [[String: Any]])
        var random = SeededGenerator(name)
        var replay = Replay(stack: NetStack(addresses: [ours], random: &random))
        let isAgent = steps.map { $0["from"] as? String == "agent" }
        let packets = try steps.map { try #require(bytes(fromHex: $0["packet"])) }
        replay.recordedSYN = try #require(zip(isAgent, packets).first { $0.0 }?.1)
        var (wanted, client): ([UInt8], [UInt8]) = ([], [])
        for (index, packet) in packets.enumerated() {
            let now = Duration.seconds(1) + .microseconds(try #require(steps[index]["us"] as? Int))
            let payload = Array(packet[(40 + Int(packet[52] >> 4) * 4)...])
            if isAgent[index] {
                wanted += payload
                replay.agent(payload, isLast: packet[53] & 1 != 0, now: now)
            } else {
                client += payload
                replay.client(packet, now: now)
            }
            replay.drain(now: now)
        }
        #expect(replay.received == client && !client.isEmpty)
        #expect(replay.sent == wanted && !wanted.isEmpty)
        #expect(replay.sawEnd && replay.isClosed && replay.stack.connectionCount == 0)
        // The same options in the same order: MSS, SACK, timestamps, no operation, scale. Our MSS and scale are ours.
        let (our, recorded) = (replay.ourSYN, replay.recordedSYN)
        #expect(our.count == recorded.count && our[52] == recorded[52])
        #expect(Array(our[60..<64]) == [2, 4, 4, 0xc4])
        #expect(our[64..<68] == recorded[64..<68])
        #expect(our[76..<79] == recorded[76..<79] && our[79] >= 6)
    }

    @Test func aRefusal() throws {
        let steps = try #require(try vectors()["tcp_refused_8124"] as? [[String: Any]])
        let packets = try steps.map { try #require(bytes(fromHex: $0["packet"])) }
        var peer = RawPeer()
        peer.stack.receive(packets[0], now: peer.now)
        guard case .connectionRequested(let id, _, _)? = peer.stack.nextEvent() else {
            Issue.record("no request")
            return
        }
        peer.stack.refuse(id)
        #expect(peer.stack.packets(now: peer.now) == [packets[1]])
    }

    /// Every recorded packet cut at each byte, and with each bit flipped: nothing but a drop.
    @Test func whatIsDamagedIsDropped() throws {
        for (name, value) in try vectors() {
            guard let steps = value as? [[String: Any]] else { continue }
            for packet in steps.flatMap({ [$0["packet"], $0["ping"]] }).compactMap({ bytes(fromHex: $0) }) {
                for count in 0..<packet.count {
                    var peer = RawPeer()
                    peer.stack.receive(Array(packet.prefix(count)), now: peer.now)
                    #expect(
                        peer.stack.packets(now: peer.now).isEmpty && peer.stack.allEvents().isEmpty, "\(name) \(count)")
                }
                // Behind the addresses, which say who it is for. A ping has no checksum.
                guard packet[6] == 6 else { continue }
                for bit in 320..<packet.count * 8 {
                    var flipped = packet
                    flipped[bit / 8] ^= 1 << UInt8(bit % 8)
                    var peer = RawPeer()
                    peer.stack.receive(flipped, now: peer.now)
                    #expect(
                        peer.stack.packets(now: peer.now).isEmpty && peer.stack.allEvents().isEmpty, "\(name) \(bit)")
                }
            }
        }
    }
}
