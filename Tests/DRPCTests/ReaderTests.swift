import DRPC
import NIOCore
import Testing

@Suite struct ReaderTests {
    private func frame(
        _ kind: UInt8, _ stream: UInt64, _ message: UInt64, _ data: String = "", done: Bool = true,
        control: Bool = false
    ) -> ByteBuffer {
        var buffer = ByteBuffer()
        FrameHeader(
            kind: kind, stream: stream, message: message, length: UInt64(data.utf8.count), done: done, control: control
        ).write(into: &buffer)
        buffer.writeString(data)
        return buffer
    }

    private func read(_ frames: ByteBuffer...) throws -> [Packet] {
        var all = ByteBuffer()
        for frame in frames { all.writeImmutableBuffer(frame) }
        return try packets(all)
    }

    @Test func framesOfOnePacketAreJoined() throws {
        let result = try read(frame(2, 1, 1, "ab", done: false), frame(2, 1, 1, "", done: false), frame(2, 1, 1, "c"))
        #expect(result == [Packet(.message, stream: 1, message: 1, data: ByteBuffer(string: "abc"))])
    }

    @Test(
        arguments: [
            (1, 1, 1, 1), (2, 1, 1, 9), (1, 5, 1, 4), (1, 1, 0, 2),
        ] as [(UInt64, UInt64, UInt64, UInt64)])
    func idsThatGoBackAreRefused(first: UInt64, firstMessage: UInt64, second: UInt64, secondMessage: UInt64) {
        #expect(throws: DRPCError(.protocolViolation, "")) {
            try read(frame(2, first, firstMessage), frame(2, second, secondMessage))
        }
    }

    @Test func streamZeroIsRefused() {
        #expect(throws: DRPCError(.protocolViolation, "")) { try read(frame(2, 0, 1)) }
        #expect(throws: DRPCError(.protocolViolation, "")) { try read(frame(2, 1, 0)) }
    }

    @Test func aKindThatChangesInsideAPacketIsRefused() {
        #expect(throws: DRPCError(.protocolViolation, "")) { try read(frame(2, 1, 1, done: false), frame(3, 1, 1)) }
    }

    @Test(arguments: [0, 8, 63] as [UInt8])
    func unknownKindsNeedTheControlBit(kind: UInt8) throws {
        #expect(throws: DRPCError(.protocolViolation, "")) { try read(frame(kind, 1, 1)) }
        let result = try read(
            frame(kind, 1, 1, "x", done: false, control: true), frame(kind, 1, 1, "y", control: true), frame(5, 1, 2))
        #expect(result == [Packet(.close, stream: 1, message: 2)])
    }

    @Test func anUnfinishedPacketGivesWayToANewerOne() throws {
        #expect(
            try read(frame(2, 1, 1, "half", done: false), frame(4, 1, 2, control: true))
                == [Packet(.cancel, stream: 1, message: 2)])
        #expect(throws: DRPCError(.protocolViolation, "")) {
            try read(frame(2, 1, 1, "half", done: false), frame(4, 1, 2, control: true), frame(2, 1, 1))
        }
    }

    @Test(arguments: [-1, 0, 1])
    func aPacketOfFourMebibytesIsTheLongest(difference: Int) throws {
        let size = DRPCLimits.packetBytes + difference
        let encoded = Packet(.message, stream: 1, message: 1, data: ByteBuffer(repeating: 7, count: size)).encoded
        if difference <= 0 {
            #expect(try packets(encoded).first?.data.readableBytes == size)
        } else {
            #expect(throws: DRPCError(.protocolViolation, "")) { try packets(encoded) }
        }
        // The same in one frame, refused by its header alone.
        var single = ByteBuffer()
        FrameHeader(kind: 2, stream: 1, message: 1, length: UInt64(size)).write(into: &single)
        if difference > 0 {
            #expect(throws: DRPCError(.protocolViolation, "")) { try packets(single) }
        } else {
            single.writeRepeatingByte(7, count: size)
            #expect(try packets(single).count == 1)
        }
    }

    @Test func ignoredPacketsHaveTheSameLimit() {
        var all = ByteBuffer()
        for _ in 0...64 {
            FrameHeader(kind: 9, stream: 1, message: 1, length: 65_536, done: false, control: true).write(into: &all)
            all.writeRepeatingByte(0, count: 65_536)
        }
        #expect(throws: DRPCError(.protocolViolation, "")) { try packets(all) }
    }

    @Test(arguments: [65_535, 65_536, 65_537])
    func sendersSplitAtTheFrameSize(size: Int) {
        var encoded = Packet(.message, stream: 1, message: 1, data: ByteBuffer(repeating: 1, count: size)).encoded
        var sizes: [Int] = []
        while let frame = try? Frame.read(from: &encoded) { sizes.append(frame.data.readableBytes) }
        #expect(sizes == (size > 65_536 ? [65_536, size - 65_536] : [size]))
    }

    @Test func aFailedReaderStaysFailed() {
        var reader = PacketReader()
        reader.append(frame(2, 0, 1))
        #expect(throws: DRPCError.self) { try reader.next() }
        reader.append(frame(2, 1, 1))
        #expect(throws: DRPCError.self) { try reader.next() }
    }

    @Test func halfFramesHoldOnlyTheirBytes() throws {
        var reader = PacketReader()
        var big = ByteBuffer(repeating: 0, count: 100_000)
        big.clear()
        big.writeImmutableBuffer(frame(2, 1, 1, "abcdef").getSlice(at: 0, length: 7)!)
        reader.append(big)
        #expect(try reader.next() == nil)
        reader.compact()
        #expect(reader.heldBytes == 7)
        reader.append(ByteBuffer(string: "def"))
        #expect(try reader.next()?.data == ByteBuffer(string: "abcdef"))
        #expect(reader.heldBytes == 0)
    }

    /// Random packets, split at random places, come out as they went in.
    @Test func anySplittingGivesTheSamePackets() throws {
        let seed = testSeed()
        var random = SeededRandom(seed: seed)
        for _ in 0..<200 {
            var expected: [Packet] = []
            var wire = ByteBuffer()
            var (stream, message) = (UInt64(1), UInt64(0))
            for _ in 0..<Int.random(in: 1...12, using: &random) {
                if Bool.random(using: &random) {
                    message += UInt64.random(in: 1...300, using: &random)
                } else {
                    stream += UInt64.random(in: 1...(1 << 40), using: &random)
                    message = 1
                }
                let kind = PacketKind(rawValue: UInt8.random(in: 1...7, using: &random)) ?? .message
                let size = Int.random(in: 0...300, using: &random)
                let data = ByteBuffer(bytes: (0..<size).map { _ in UInt8.random(in: 0...255, using: &random) })
                expected.append(Packet(kind, stream: stream, message: message, data: data))
                var rest = data
                repeat {
                    let part = rest.readSlice(length: Int.random(in: 0...rest.readableBytes, using: &random)) ?? .init()
                    FrameHeader(
                        kind: kind.rawValue, stream: stream, message: message, length: UInt64(part.readableBytes),
                        done: rest.readableBytes == 0
                    ).write(into: &wire)
                    wire.writeImmutableBuffer(part)
                } while rest.readableBytes > 0
            }
            var reader = PacketReader()
            var result: [Packet] = []
            while let chunk = wire.readSlice(
                length: min(wire.readableBytes, Int.random(in: 1...100, using: &random))), chunk.readableBytes > 0
            {
                reader.append(chunk)
                while let packet = try reader.next() { result.append(packet) }
                if Bool.random(using: &random) { reader.compact() }
            }
            #expect(result == expected, "TEST_SEED=\(seed)")
            #expect(reader.heldBytes == 0, "TEST_SEED=\(seed)")
        }
    }

    /// Damaged conversations never trap, and what the server answers is well-formed.
    @Test func damagedBytesNeverTrap() throws {
        let seed = testSeed()
        var random = SeededRandom(seed: seed)
        let exchanges = try ExchangeVectorTests.exchanges().filter { $0.client.readableBytes < 5_000 }
        for _ in 0..<3_000 {
            var wire = exchanges.randomElement(using: &random)?.client ?? ByteBuffer()
            for _ in 0..<Int.random(in: 0...4, using: &random) where wire.readableBytes > 0 {
                let index = Int.random(in: 0..<wire.readableBytes, using: &random)
                wire.setInteger(UInt8.random(in: 0...255, using: &random), at: index)
            }
            var reader = PacketReader()
            var server = ServerConnection<Void>(methods: [
                "/coder.agentsocket.v1.AgentSocket/Ping": .init(kind: .unary, handler: ()),
                "/coder.agentsocket.v1.AgentSocket/SyncWant": .init(kind: .bidirectional, handler: ()),
            ])
            var output = ByteBuffer()
            reader.append(wire)
            do {
                while let packet = try reader.next() {
                    for case .start(let stream, _, _, _, _) in try server.receive(packet, into: &output)
                    where Bool.random(using: &random) {
                        server.finish(.success(ByteBuffer(string: "r")), stream: stream, into: &output)
                    }
                }
            } catch {
                #expect(error.code == .protocolViolation, "TEST_SEED=\(seed)")
            }
            _ = try packets(output)
        }
    }
}
