import AgentTestSupport
import NIOCore
import Sodium
import Testing

@testable import DERP

@Suite struct ConnectionTests {
    private let own: PrivateKey
    private let relay: PrivateKey
    private let peer: PublicKey

    init() throws {
        (own, relay, peer) = (try makeKey(1), try makeKey(2), try makeKey(3).publicKey)
    }

    private func new(dialled: Duration = .zero, now: Duration = .zero) -> DERPConnection {
        var random = SystemRandomNumberGenerator()
        return DERPConnection(key: own, isHome: false, dialled: dialled, now: now, random: &random)
    }

    private func bytes(_ frames: DERPFrame...) -> ByteBuffer {
        var out = ByteBuffer()
        for frame in frames { frame.write(into: &out) }
        return out
    }

    @Test func theGreeting() throws {
        var connection = new(dialled: .seconds(1), now: .seconds(4))
        #expect(connection.nextDeadline == .seconds(11))
        connection.send(ByteBuffer(string: "early"), to: peer)
        #expect(!connection.hasOutput)
        let greeting = connection.events(of: bytes(.serverKey(relay.publicKey)), now: .seconds(5))
        #expect(greeting == [.greeted(server: relay.publicKey)] && !connection.isConnected)
        let said = try frames(connection.output())
        #expect(said.count == 3 && said[1] == .notePreferred(false))
        #expect(said[2] == .send(to: peer, ByteBuffer(string: "early")))
        // A relay that says no more hasn't taken us.
        connection.advance(now: .milliseconds(10_999))
        #expect(connection.nextEvent(now: .zero) == nil)
        var late = connection
        late.advance(now: .seconds(11))
        #expect(late.allEvents() == [.ended(.greetingTimeout)] && late.nextDeadline == nil)
        // Server info may come after other frames.
        let packet = connection.events(of: bytes(.received(from: peer, ByteBuffer(string: "x"))), now: .seconds(6))
        #expect(packet == [.connected, .packet(from: peer, ByteBuffer(string: "x"))])
        #expect(connection.isConnected && connection.nextDeadline == .seconds(126))
        let info = connection.events(of: bytes(serverInfo("{}", client: own.publicKey, relay: relay)))
        #expect(info == [])
    }

    @Test func whatEndsTheGreeting() throws {
        var connection = new()
        #expect(connection.events(of: bytes(.keepAlive)) == [.ended(.noServerKey(type: 6))])
        connection = new()
        let zero = try #require(PublicKey([UInt8](repeating: 0, count: 32)))
        #expect(connection.events(of: bytes(.serverKey(zero))) == [.ended(.badServerKey)])
        // A key without its magic is no server key.
        var wrong = bytes(.serverKey(relay.publicKey))
        wrong.setInteger(0x45, at: 5, as: UInt8.self)
        connection = new()
        #expect(connection.events(of: wrong) == [] && connection.counters.skippedFrames == 1)
        for (json, name) in [("[]", "no object"), ("{", "no JSON"), (#"{"TokenBucketBytesBurst":"x"}"#, "a text")] {
            var connection = greeted(own, relay: relay)
            let events = connection.events(of: bytes(serverInfo(json, client: own.publicKey, relay: relay)))
            #expect(events == [.ended(.badServerInfo("is no JSON object as expected"))], "\(name)")
        }
        var foreign = greeted(own, relay: relay)
        let events = foreign.events(of: bytes(serverInfo("{}", client: own.publicKey, relay: try makeKey(9))))
        #expect(events == [.ended(.badServerInfo("is not authentic"))])
        foreign.receive(bytes(.keepAlive), now: .zero)
        let (isSent, isAsked) = (foreign.send(ByteBuffer(), to: peer), foreign.ping(1))
        #expect(foreign.nextEvent(now: .zero) == nil && !isSent && !isAsked && !foreign.hasOutput)
        for count in [DERPLimits.infoBytes - 1, DERPLimits.infoBytes, DERPLimits.infoBytes + 1] {
            var connection = greeted(own, relay: relay)
            let json = "{}" + String(repeating: " ", count: count - 2 - Box.overhead)
            let events = connection.events(of: bytes(serverInfo(json, client: own.publicKey, relay: relay)))
            #expect(events == (count > DERPLimits.infoBytes ? [.ended(.badServerInfo("is too long"))] : []), "\(count)")
        }
    }

    @Test func silence() {
        var connection = greeted(own, relay: relay, now: .seconds(100))
        #expect(connection.nextDeadline == .seconds(220))
        // Half a frame is life, too.
        _ = connection.events(of: ByteBuffer(bytes: [6]), now: .seconds(219))
        connection.advance(now: .seconds(338))
        #expect(connection.allEvents() == [])
        connection.advance(now: .seconds(339))
        #expect(connection.allEvents() == [.ended(.silence)])
    }

    @Test func theQueueDropsTheNewest() throws {
        var connection = greeted(own, relay: relay)
        for number in 0..<DERPLimits.queuedPackets + 2 {
            let isTaken = connection.send(ByteBuffer(integer: UInt32(number)), to: peer)
            #expect(isTaken == (number < DERPLimits.queuedPackets))
        }
        #expect(connection.queuedPackets == 512 && connection.counters.droppedQueueFull == 2)
        let part = try frames(connection.output(upTo: 41))
        #expect(part == [.send(to: peer, ByteBuffer(integer: UInt32(0)))] && connection.queuedPackets == 511)
        #expect(try frames(connection.output()).last == .send(to: peer, ByteBuffer(integer: UInt32(511))))
        #expect(connection.counters.sentPackets == 512 && connection.counters.sentBytes == 2_048)
    }

    @Test func packetsUpToTheLongest() throws {
        var connection = greeted(own, relay: relay)
        for count in [DERPLimits.packetBytes - 1, DERPLimits.packetBytes, DERPLimits.packetBytes + 1] {
            let packet = ByteBuffer(repeating: 7, count: count)
            let isTaken = connection.send(packet, to: peer)
            #expect(isTaken == (count <= DERPLimits.packetBytes))
            let events = connection.events(of: bytes(.received(from: peer, packet)))
            #expect(events == (count <= DERPLimits.packetBytes ? [.packet(from: peer, packet)] : []))
        }
        #expect(connection.counters.droppedTooLong == 1 && connection.counters.droppedReceivedTooLong == 1)
        #expect(connection.counters.receivedPackets == 2 && connection.counters.receivedBytes == 131_071)
    }

    @Test(arguments: [-1, 0, 1]) func framesUpToTheLongest(_ more: Int) throws {
        var connection = greeted(own, relay: relay)
        let count = DERPLimits.frameBytes + more
        var frame = ByteBuffer()
        frame.writeFrameHeader(0x14, count)
        frame.writeRepeatingByte(0x61, count: count)
        let events = connection.events(of: frame)
        let text = String(repeating: "a", count: DERPLimits.healthBytes)
        #expect(events == (more > 0 ? [.ended(.frameTooLong(type: 0x14, bytes: count))] : [.health(text)]))
        // A long frame of unknown type isn't kept.
        var reader = DERPFrameReader()
        var unknown = ByteBuffer()
        unknown.writeFrameHeader(0x99, DERPLimits.frameBytes)
        reader.append(unknown)
        for _ in 0..<16 {
            #expect(try reader.next() == nil)
            reader.append(ByteBuffer(repeating: 1, count: 65_536))
        }
        #expect(try reader.next() == nil)
        #expect(reader.buffered == 0 && reader.skipped == 1)
    }

    @Test func theRelayLimitsOurSending() throws {
        let info = #"{"version":2,"TokenBucketBytesPerSecond":1000,"TokenBucketBytesBurst":3000}"#
        var connection = greeted(own, relay: relay, info: info, now: .zero)
        func sent(_ count: Int, at now: Duration) throws -> Int {
            for _ in 0..<count { connection.send(ByteBuffer(repeating: 1, count: 963), to: peer) }
            return try frames(connection.output(now: now)).count
        }
        #expect(try sent(4, at: .zero) == 3 && connection.counters.droppedRateLimit == 1)
        #expect(try sent(1, at: .milliseconds(999)) == 0)
        #expect(try sent(2, at: .milliseconds(1_000)) == 1)
        // No more than the burst gathers.
        #expect(try sent(5, at: .seconds(100)) == 3)
        // Pings are answered all the same, and without a limit all goes out again.
        let none = connection.events(of: bytes(.ping(5), serverInfo("{}", client: own.publicKey, relay: relay)))
        #expect(none == [])
        #expect(try sent(400, at: .seconds(100)) == 401)
        for odd in ["-5", "0", "1e300"] {
            let info = "{\"TokenBucketBytesPerSecond\":\(odd),\"TokenBucketBytesBurst\":-1}"
            var connection = greeted(own, relay: relay, info: info)
            connection.send(ByteBuffer(repeating: 1, count: 1_310), to: peer)
            #expect(try frames(connection.output(now: .seconds(9))).count == 1, "\(odd)")
        }
    }

    @Test func pingsAreAnsweredWhileThereIsRoom() throws {
        var connection = greeted(own, relay: relay)
        let most = (DERPLimits.controlBytes + 12) / 13
        for number in 0..<UInt64(most) + 5 { _ = connection.events(of: bytes(.ping(number))) }
        #expect(connection.counters.unansweredPings == 5)
        let said = try frames(connection.output())
        #expect(said == (0..<UInt64(most)).map { .pong($0) })
        let isAsked = connection.ping(77)
        #expect(try isAsked && frames(connection.output()) == [.ping(77)])
        #expect(connection.events(of: bytes(.pong(77))) == [.pong(77)])
    }

    @Test func homeIsToldAtEachChange() throws {
        var connection = greeted(own, relay: relay, home: true)
        connection.notePreferred(true)
        #expect(!connection.hasOutput)
        connection.notePreferred(false)
        connection.notePreferred(true)
        #expect(!connection.hasOutput)
        connection.notePreferred(false)
        #expect(try frames(connection.output()) == [.notePreferred(false)] && !connection.hasOutput)
    }

    /// What only a client or a mesh says, said by a relay.
    @Test func framesForOthersAreSkipped() {
        var connection = greeted(own, relay: relay)
        var all = bytes(
            .serverKey(peer),
            .clientInfo(peer, nonce: .init(repeating: 0, count: 24), box: .init(repeating: 0, count: 16)),
            .send(to: peer, ByteBuffer(string: "x")), .notePreferred(true))
        for type: UInt8 in [0x00, 0x09, 0x0a, 0x10, 0x11, 0x16, 0xff] {
            all.writeFrameHeader(type, 3)
            all.writeString("abc")
        }
        DERPFrame.health("").write(into: &all)
        #expect(connection.events(of: all) == [.health(nil)] && connection.counters.skippedFrames == 11)
    }
}
