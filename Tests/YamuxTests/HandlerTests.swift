import NIOCore
import NIOEmbedded
import Testing

@testable import Yamux

/// What a stream's pipeline saw.
private final class Recorder: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    var received = ByteBuffer()
    var events: [String] = []
    func channelActive(context: ChannelHandlerContext) { events.append("active") }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var data = unwrapInboundIn(data)
        received.writeBuffer(&data)
    }
    func channelInactive(context: ChannelHandlerContext) { events.append("inactive") }
    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) { events.append("\(event)") }
    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        events.append((error as? YamuxError).map { "\($0.code)" } ?? "\(error)")
    }
}

/// A session on an embedded channel, whose loop has virtual time.
private struct Fixture {
    let channel = EmbeddedChannel()
    let handler: YamuxHandler

    init(
        _ role: YamuxSession.Role = .client, timing: YamuxHandler.Timing = .init(),
        _ initializer: YamuxHandler.InboundStreamInitializer? = nil
    ) throws {
        handler = YamuxHandler(
            role: role, eventLoop: channel.embeddedEventLoop, timing: timing, inboundStreamInitializer: initializer)
        try channel.pipeline.syncOperations.addHandler(handler)
        try channel.connect(to: SocketAddress(unixDomainSocketPath: "/peer")).wait()
    }

    func run() { channel.embeddedEventLoop.run() }

    func send(_ header: YamuxHeader, _ payload: ByteBuffer = ByteBuffer()) throws {
        var bytes = header.encoded
        bytes.writeImmutableBuffer(payload)
        try channel.writeInbound(bytes)
        run()
    }

    /// The headers of all that was sent since the last time.
    func sent() throws -> [YamuxHeader] {
        run()
        var bytes = ByteBuffer()
        while var part = try channel.readOutbound(as: ByteBuffer.self) { bytes.writeBuffer(&part) }
        return try elements(bytes).compactMap { if case .header(let header) = $0 { header } else { nil } }
    }

    func open(_ recorder: Recorder = Recorder(), autoRead: Bool = true, halfClosure: Bool = false) throws
        -> any Channel
    {
        let bound = NIOLoopBound(recorder, eventLoop: channel.embeddedEventLoop)
        let opened = handler.openStream { child in
            child.eventLoop.makeCompletedFuture {
                try child.syncOptions?.setOption(.autoRead, value: autoRead)
                try child.syncOptions?.setOption(.allowRemoteHalfClosure, value: halfClosure)
                try child.pipeline.syncOperations.addHandler(bound.value)
                return child
            }
        }
        run()
        return try opened.wait()
    }
}

private func syn(_ id: UInt32) -> YamuxHeader { YamuxHeader(.windowUpdate, .syn, stream: id) }
private func fin(_ id: UInt32) -> YamuxHeader { YamuxHeader(.windowUpdate, .fin, stream: id) }
private func rst(_ id: UInt32) -> YamuxHeader { YamuxHeader(.windowUpdate, .rst, stream: id) }

@Suite struct HandlerTests {
    @Test func pingsComeEveryThirtySecondsAndAreAwaitedForTen() throws {
        let fixture = try Fixture()
        let loop = fixture.channel.embeddedEventLoop
        loop.advanceTime(by: .seconds(30) - .nanoseconds(1))
        #expect(try fixture.sent() == [])
        loop.advanceTime(by: .nanoseconds(1))
        #expect(try fixture.sent() == [YamuxHeader(.ping, .syn, stream: 0, length: 0)])
        loop.advanceTime(by: .seconds(9))
        try fixture.send(YamuxHeader(.ping, .ack, stream: 0, length: 0))
        loop.advanceTime(by: .seconds(21))
        #expect(try fixture.sent() == [YamuxHeader(.ping, .syn, stream: 0, length: 1)])
        loop.advanceTime(by: .seconds(10) - .nanoseconds(1))
        #expect(fixture.channel.isActive)
        loop.advanceTime(by: .nanoseconds(1))
        #expect(!fixture.channel.isActive)
        #expect(try fixture.handler.ended.futureResult.wait().code == .keepAliveTimeout)
    }

    @Test func aViolationIsToldAndTheTransportClosed() throws {
        let fixture = try Fixture()
        let recorder = Recorder()
        let child = try fixture.open(recorder)
        _ = try fixture.sent()
        try fixture.channel.writeInbound(bytes(hex: "010000000000000000000000"))
        #expect(try fixture.sent() == [YamuxHeader(.goAway, stream: 0, length: 1)])
        #expect(!fixture.channel.isActive && !child.isActive)
        #expect(recorder.events == ["active", "protocolViolation", "inactive"])
        try child.closeFuture.wait()
        #expect(throws: YamuxError(.protocolViolation, "")) { try fixture.open() }
    }

    @Test func theOthersFinClosesTheChannel() throws {
        let fixture = try Fixture()
        let recorder = Recorder()
        let child = try fixture.open(recorder)
        try fixture.send(YamuxHeader(.data, .fin, stream: 1, length: 3), ByteBuffer(string: "end"))
        #expect(recorder.received == ByteBuffer(string: "end") && recorder.events == ["active", "inactive"])
        #expect(try fixture.sent() == [syn(1), fin(1)])
        try child.closeFuture.wait()
        #expect(fixture.handler.counters.openStreams + fixture.handler.counters.lingeringStreams == 0)
    }

    @Test func halfClosureGoesBothWays() throws {
        let fixture = try Fixture()
        let recorder = Recorder()
        let child = try fixture.open(recorder, halfClosure: true)
        try fixture.send(fin(1))
        #expect(recorder.events == ["active", "inputClosed"] && child.isActive)
        child.write(ByteBuffer(string: "more"), promise: nil)
        let closed = child.close(mode: .output)
        #expect(try fixture.sent() == [syn(1), YamuxHeader(.data, stream: 1, length: 4), fin(1)])
        try closed.wait()
        #expect(recorder.events == ["active", "inputClosed", "outputClosed"])
        #expect(throws: ChannelError.outputClosed) { try child.writeAndFlush(ByteBuffer(string: "x")).wait() }
        child.close(promise: nil)
        #expect(try fixture.sent() == [])
    }

    @Test func unreadBytesWaitInTheWindowAndCloseResetsThem() throws {
        let fixture = try Fixture()
        let recorder = Recorder()
        let child = try fixture.open(recorder, autoRead: false)
        _ = try fixture.sent()
        try fixture.send(YamuxHeader(.data, stream: 1, length: 200_000), pattern(0, 200_000))
        #expect(recorder.received.readableBytes == 0 && fixture.handler.counters.bufferedBytes == 200_000)
        #expect(try fixture.sent() == [])
        child.read()
        #expect(recorder.received == pattern(0, 200_000) && fixture.handler.counters.bufferedBytes == 0)
        #expect(try fixture.sent() == [YamuxHeader(.windowUpdate, stream: 1, length: 200_000)])
        try fixture.send(YamuxHeader(.data, stream: 1, length: 1), pattern(0, 1))
        child.close(promise: nil)
        #expect(try fixture.sent() == [rst(1)])
        #expect(fixture.handler.counters.bufferedBytes == 0)
    }

    @Test func writabilityFollowsWindowQueueAndTransport() throws {
        let fixture = try Fixture()
        let child = try fixture.open()
        let first = child.writeAndFlush(pattern(0, 262_144))
        #expect(!child.isWritable)
        fixture.run()
        try first.wait()
        // All is sent, but the window is used up.
        #expect(!child.isWritable && fixture.handler.counters.queuedBytes == 0)
        let second = child.writeAndFlush(ByteBuffer(string: "x"))
        fixture.run()
        #expect(fixture.handler.counters.queuedBytes == 1)
        try fixture.send(YamuxHeader(.windowUpdate, stream: 1, length: 10))
        try second.wait()
        #expect(child.isWritable)
        fixture.channel.isWritable = false
        fixture.channel.pipeline.fireChannelWritabilityChanged()
        #expect(!child.isWritable)
        _ = try fixture.sent()
        let third = child.writeAndFlush(ByteBuffer(string: "y"))
        #expect(try fixture.sent() == [])
        fixture.channel.isWritable = true
        fixture.channel.pipeline.fireChannelWritabilityChanged()
        #expect(child.isWritable)
        try third.wait()
        #expect(try fixture.sent() == [YamuxHeader(.data, stream: 1, length: 1)])
    }

    @Test func aFloodOfPingsStopsTheReads() throws {
        let fixture = try Fixture()
        fixture.channel.isWritable = false
        let flood = YamuxLimits.stalledHeaderBytes / YamuxHeader.byteCount + 1
        var pings = ByteBuffer()
        for _ in 0..<flood - 1 { YamuxHeader(.ping, .syn, stream: 0, length: 9).write(into: &pings) }
        try fixture.channel.writeInbound(pings)
        fixture.channel.pipeline.read()
        // The next one is the last that is answered while the transport takes no answers.
        _ = try fixture.open()
        try fixture.send(YamuxHeader(.ping, .syn, stream: 0, length: 9))
        #expect(throws: YamuxError(.limit, "")) { try fixture.open() }
        fixture.channel.isWritable = true
        fixture.channel.pipeline.fireChannelWritabilityChanged()
        _ = try fixture.open()
        #expect(try fixture.sent().count == flood + 2)
    }

    @Test func streamsAreAcceptedWhenTheirInitializerIsDone() throws {
        let gate = EmbeddedEventLoop().makePromise(of: Void.self)
        let fixture = try Fixture(.server) { _ in gate.futureResult }
        try fixture.send(syn(1))
        try fixture.send(YamuxHeader(.data, stream: 1, length: 2), ByteBuffer(string: "ab"))
        #expect(try fixture.sent() == [])
        #expect(fixture.handler.counters.bufferedBytes == 2)
        gate.succeed()
        #expect(try fixture.sent() == [YamuxHeader(.windowUpdate, .ack, stream: 1)])
        #expect(fixture.handler.counters.bufferedBytes == 0)
    }

    @Test func unacceptedStreamsAreReset() throws {
        let fixture = try Fixture(.server) { $0.eventLoop.makeFailedFuture(ChannelError.eof) }
        try fixture.send(syn(1))
        #expect(try fixture.sent() == [rst(1)])
        let deaf = try Fixture(.server)
        try deaf.send(syn(1))
        #expect(try deaf.sent() == [rst(1)])
    }

    @Test func aResetFailsTheStreamAlone() throws {
        let fixture = try Fixture()
        let recorder = Recorder()
        let (child, other) = (try fixture.open(recorder), try fixture.open())
        let write = child.write(ByteBuffer(string: "x"))
        try fixture.send(rst(1))
        #expect(recorder.events == ["active", "reset", "inactive"])
        #expect(throws: YamuxError(.reset, "")) { try write.wait() }
        #expect(other.isActive && fixture.handler.counters.resetStreams == 1)
    }

    @Test func closedStreamsAreResetAfterTheirTime() throws {
        let fixture = try Fixture()
        let child = try fixture.open()
        try fixture.send(YamuxHeader(.windowUpdate, .ack, stream: 1))
        child.close(promise: nil)
        #expect(try fixture.sent() == [syn(1), fin(1)])
        #expect(fixture.handler.counters.lingeringStreams == 1)
        for value in 0..<10 as Range<UInt32> {
            fixture.channel.embeddedEventLoop.advanceTime(by: .seconds(30) - .nanoseconds(value == 9 ? 1 : 0))
            if value < 9 { try fixture.send(YamuxHeader(.ping, .ack, stream: 0, length: value)) }
        }
        #expect(try fixture.sent().allSatisfy { $0.kind == .ping })
        fixture.channel.embeddedEventLoop.advanceTime(by: .nanoseconds(1))
        #expect(try fixture.sent().contains(rst(1)))
        #expect(fixture.handler.counters.lingeringStreams == 0)
    }

    @Test func aGracefulCloseSaysGoAwayAndWaitsForStreams() throws {
        let fixture = try Fixture()
        let child = try fixture.open()
        fixture.handler.close(draining: .seconds(5))
        #expect(try fixture.sent() == [syn(1), YamuxHeader(.goAway, stream: 0)])
        #expect(throws: YamuxError(.notAccepting, "")) { try fixture.open() }
        #expect(fixture.channel.isActive)
        child.close(promise: nil)
        #expect(try fixture.sent() == [fin(1)])
        #expect(!fixture.channel.isActive)
        #expect(try fixture.handler.ended.futureResult.wait().code == .closed)

        let second = try Fixture()
        _ = try second.open()
        second.handler.close(draining: .seconds(5))
        second.channel.embeddedEventLoop.advanceTime(by: .seconds(5))
        #expect(!second.channel.isActive)
        let third = try Fixture()
        third.handler.close()
        #expect(try third.sent() == [YamuxHeader(.goAway, stream: 0)])
        #expect(!third.channel.isActive)
    }

    @Test func theTransportsEndEndsTheStreams() throws {
        let fixture = try Fixture()
        let recorder = Recorder()
        _ = try fixture.open(recorder)
        try fixture.channel.close().wait()
        #expect(recorder.events == ["active", "transportClosed", "inactive"])
        #expect(try fixture.handler.ended.futureResult.wait().code == .transportClosed)
        #expect(throws: YamuxError(.transportClosed, "")) { try fixture.open() }
    }

    @Test func aGoAwayOfThePeerFailsOpens() throws {
        let fixture = try Fixture()
        let child = try fixture.open()
        try fixture.send(YamuxHeader(.goAway, stream: 0))
        #expect(throws: YamuxError(.notAccepting, "")) { try fixture.open() }
        #expect(child.isActive)
        try fixture.send(YamuxHeader(.goAway, stream: 0, length: 2))
        #expect(!child.isActive && !fixture.channel.isActive)
    }
}
