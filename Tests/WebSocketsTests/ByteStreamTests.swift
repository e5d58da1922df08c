import NIOCore
import NIOEmbedded
import Testing

@testable import WebSockets

/// ``WebSocketByteStream`` in an embedded channel, whose time the test moves.
@Suite struct ByteStreamTests {
    /// What the layers above see, in order.
    private final class Recorder: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        var data = ByteBuffer()
        var errors: [WebSocketError.Code] = []
        var isInactive = false
        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.data.writeImmutableBuffer(unwrapInboundIn(data))
        }
        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            if let error = error as? WebSocketError { errors.append(error.code) }
        }
        func channelInactive(context: ChannelHandlerContext) { isInactive = true }
    }

    private let channel = EmbeddedChannel()
    private let recorder = Recorder()
    private static let key: UInt32 = 0x0506_0708

    private func open(_ role: WebSocketRole = .client) throws {
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        try channel.pipeline.syncOperations.addHandlers([
            WebSocketByteStream(role: role, makeMask: { Self.key }), recorder,
        ])
    }

    /// All that was sent, decoded by the other side.
    private func sent(by role: WebSocketRole = .client) throws -> [WebSocketFrameReader.Event] {
        var wire = ByteBuffer()
        while let next = try channel.readOutbound(as: ByteBuffer.self) { wire.writeImmutableBuffer(next) }
        return try events(wire, role: role == .client ? .server : .client)
    }

    /// Waiting would block for ever, because nothing advances the embedded loop.
    private func result(_ future: EventLoopFuture<Void>) throws {
        channel.embeddedEventLoop.run()
        var result: Result<Void, any Error>?
        future.assumeIsolated().whenComplete { result = $0 }
        try #require(result, "not completed").get()
    }

    private func receive(_ buffer: ByteBuffer) throws { try channel.writeInbound(buffer) }

    @Test func bytesGoThroughBothWays() throws {
        try open()
        channel.write(ByteBuffer(string: "he"), promise: nil)
        channel.writeAndFlush(ByteBuffer(string: "llo"), promise: nil)
        #expect(try sent() == [.data(ByteBuffer(string: "hello"))])
        try receive(frame(0x02, Array("wor".utf8)))
        try receive(frame(0x80, Array("ld".utf8)))
        #expect(recorder.data == ByteBuffer(string: "world"))
    }

    @Test func everyWriteOfASharedFrameLearnsItsEnd() throws {
        try open()
        let writes = (0..<3).map { channel.write(ByteBuffer(repeating: 1, count: $0)) }
        channel.flush()
        for write in writes { try result(write) }
        let empty = channel.writeAndFlush(ByteBuffer())
        try result(empty)
    }

    @Test func anEmptyWriteIsDoneAfterThoseBeforeIt() throws {
        try open()
        var order: [Int] = []
        // So large that it goes to the transport before the flush.
        for (number, size) in [WebSocketLimits.fullBytes, 0].enumerated() {
            channel.write(ByteBuffer(repeating: 1, count: size)).assumeIsolated().whenSuccess { order.append(number) }
        }
        channel.flush()
        #expect(order == [0, 1])
    }

    @Test func aPingIsAnsweredWithItsPayload() throws {
        try open()
        try receive(frame(0x89, [1, 2, 3]))
        #expect(try sent() == [.pong(ByteBuffer(bytes: [1, 2, 3]))])
    }

    @Test func whileOurOutputIsFullOnlyTheLastPingIsAnswered() throws {
        try open()
        channel.isWritable = false
        for number in UInt8(1)...100 { try receive(frame(0x89, [number])) }
        #expect(try sent() == [])
        channel.isWritable = true
        channel.pipeline.fireChannelWritabilityChanged()
        #expect(try sent() == [.pong(ByteBuffer(bytes: [100]))])
    }

    @Test func aTextMessageClosesWith1003() throws {
        try open()
        try receive(frame(0x81, [65]))
        guard case .close(.unsupportedData, let reason)? = try sent().first else {
            Issue.record("no close")
            return
        }
        #expect(reason.contains("text"))
        #expect(recorder.errors == [.violation(.unsupportedData)])
        // What follows is not looked at; the time for the peer's answer is limited.
        try receive(frame(0x82, [1]))
        #expect(recorder.data.readableBytes == 0 && channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        #expect(!channel.isActive && recorder.isInactive)
    }

    @Test func closeIsAHandshakeWith1000() throws {
        try open()
        channel.write(ByteBuffer(string: "last"), promise: nil)
        let closed = channel.close()
        #expect(try sent() == [.data(ByteBuffer(string: "last")), .close(.normal, reason: "")])
        #expect(channel.isActive)
        let late = channel.writeAndFlush(ByteBuffer(string: "late"))
        #expect(throws: ChannelError.ioOnClosedChannel) { try result(late) }
        try receive(frame(0x82, [1]))
        try receive(frame(0x88, [0x03, 0xE8]))
        try result(closed)
        #expect(recorder.isInactive && recorder.errors == [] && recorder.data.readableBytes == 0)
    }

    @Test func aPeerThatDoesNotAnswerTheCloseIsClosed() throws {
        try open()
        let closed = channel.close()
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1_999))
        #expect(channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
        try result(closed)
    }

    @Test func thePeersCloseIsEchoedAndSaysWhy() throws {
        try open()
        try receive(frame(0x88, [0x03, 0xF3] + Array("restart".utf8)))
        #expect(try sent() == [.close(.internalError, reason: "")])
        #expect(recorder.errors == [.peerClosed(.internalError)])
        #expect(!channel.isActive)
    }

    @Test func thePeersCloseInOrderIsNoError() throws {
        for payload: [UInt8] in [[], [0x03, 0xE8]] {
            let test = ByteStreamTests()
            try test.open()
            try test.receive(frame(0x88, payload))
            #expect(try test.sent() == [.close(payload.isEmpty ? nil : .normal, reason: "")])
            #expect(test.recorder.errors == [] && test.recorder.isInactive)
        }
    }

    @Test func anEndWithoutACloseFrameIsAnError() throws {
        try open()
        channel.pipeline.fireChannelInactive()
        #expect(recorder.errors == [.cutOff])
    }

    @Test func aPeerThatAnswersNoPingIsDropped() throws {
        try open()
        for _ in 0..<4 {
            channel.embeddedEventLoop.advanceTime(by: .seconds(15))
            #expect(try sent() == [.ping(ByteBuffer())])
            channel.pipeline.read()
            try receive(frame(0x8A))
            channel.pipeline.read()
        }
        channel.embeddedEventLoop.advanceTime(by: .seconds(15))
        channel.embeddedEventLoop.advanceTime(by: .seconds(14))
        #expect(channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(recorder.errors == [.noPong] && !channel.isActive)
    }

    @Test func aServerPingsEvery15AndDropsAfter30Seconds() throws {
        try open(.server)
        channel.embeddedEventLoop.advanceTime(by: .seconds(15))
        #expect(try sent(by: .server) == [.ping(ByteBuffer())])
        channel.embeddedEventLoop.advanceTime(by: .seconds(29))
        #expect(channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(recorder.errors == [.noPong])
    }

    @Test func backPressureOfOursIsNoDeadPeer() throws {
        try open()
        // Data that is not followed by another read().
        try receive(frame(0x82, [1]))
        channel.embeddedEventLoop.advanceTime(by: .seconds(600))
        #expect(channel.isActive && recorder.errors == [])
        channel.pipeline.read()
        channel.embeddedEventLoop.advanceTime(by: .seconds(45))
        #expect(recorder.errors == [.noPong])
    }

    @Test func framesOfTheProtocolDoNotAnswerARead() throws {
        final class Reads: ChannelOutboundHandler {
            typealias OutboundIn = ByteBuffer
            var count = 0
            func read(context: ChannelHandlerContext) {
                count += 1
                context.read()
            }
        }
        try open()
        let reads = Reads()
        try channel.pipeline.syncOperations.addHandler(reads, position: .first)
        channel.pipeline.read()
        try receive(frame(0x89))
        #expect(reads.count == 2)
        try receive(frame(0x82, [1]))
        #expect(reads.count == 2)
    }
}
