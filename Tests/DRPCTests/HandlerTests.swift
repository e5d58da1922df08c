import NIOCore
import NIOEmbedded
import Synchronization
import Testing

@testable import DRPC

/// A peer that disconnects: after some writes the channel closes within the next one, as a socket
/// does.
private final class LeavingPeer: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    private var left: Int

    init(after writes: Int) { left = writes }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        left -= 1
        if left >= 0 { return context.write(data, promise: promise) }
        promise?.fail(ChannelError.ioOnClosedChannel)
        context.close(promise: nil)
    }
}

@Suite(.timeLimit(.minutes(3))) struct HandlerTests {
    private func client(
        peerLeavesAfter writes: Int, _ cancelStyle: CancelStyle = .closeTransport
    ) async throws -> (RPCClient, NIOAsyncTestingChannel) {
        let channel = NIOAsyncTestingChannel()
        try await channel.eventLoop.submit {
            try channel.pipeline.syncOperations.addHandler(LeavingPeer(after: writes))
        }.get()
        let client = try await RPCClient.attach(to: channel, cancelStyle: cancelStyle).get()
        try await channel.connect(to: SocketAddress(unixDomainSocketPath: "/peer")).get()
        return (client, channel)
    }

    @Test func aUnaryCallWhosePeerIsGoneFails() async throws {
        let (client, _) = try await client(peerLeavesAfter: 0)
        await #expect(throws: DRPCError(.closed, "")) { try await client.unary(echo, Text()) }
        await #expect(throws: DRPCError(.closed, "")) { try await client.unary(echo, Text()) }
    }

    @Test func aStreamWhosePeerIsGoneFails() async throws {
        let (client, _) = try await client(peerLeavesAfter: 0)
        await #expect(throws: DRPCError(.closed, "")) {
            try await client.withServerStream(count, Number(1)) { responses in
                for try await _ in responses {}
            }
        }
    }

    @Test func aCallIsGivenUpOnceThoughThePeerIsGone() async throws {
        let (client, channel) = try await client(peerLeavesAfter: 1, .cancelPacket)
        let call = Task { try await client.unary(slow, Text()) }
        _ = try await channel.waitForOutboundWrite(as: ByteBuffer.self)
        call.cancel()
        await #expect(throws: DRPCError.self) { try await call.value }
        await #expect(throws: DRPCError(.closed, "")) { try await client.unary(echo, Text()) }
    }

    @Test func aReplyThatCameIsKeptThoughThePeerIsGone() async throws {
        let (client, channel) = try await client(peerLeavesAfter: 1)
        let reply = try await client.withClientStream(sum) { _ in
            _ = try await channel.waitForOutboundWrite(as: ByteBuffer.self)
            let data = ByteBuffer(bytes: try Number(5).serializedBytes() as [UInt8])
            _ = try? await channel.writeInbound(Packet(.message, stream: 1, message: 1, data: data).encoded)
        }
        #expect(reply.value == 5)
    }

    @Test func anOpenPacketKeepsNoReadBuffer() throws {
        var read = ByteBuffer()
        FrameHeader(kind: 2, stream: 1, message: 1, length: 10, done: false).write(into: &read)
        read.writeRepeatingByte(7, count: 1_048_576)
        var assembler = PacketAssembler()
        let frame = try #require(try Frame.read(from: &read))
        #expect(try assembler.receive(frame) == nil)
        #expect(assembler.heldBytes == 10)
        #expect(assembler.retainedBytes < 1_024)
        let rest = Frame(.message, stream: 1, message: 1, data: ByteBuffer(string: "rest"))
        #expect(
            try assembler.receive(rest)?.data
                == ByteBuffer(bytes: [UInt8](repeating: 7, count: 10) + Array("rest".utf8)))
    }

    @Test func aConnectionGivesWayToOthers() throws {
        let served = Mutex(0)
        var router = Router()
        router.immediate(echo) { request, _ in
            served.withLock { $0 += 1 }
            return request
        }
        let channel = EmbeddedChannel(handler: RPCServerHandler(router: router))
        var bytes = ByteBuffer()
        for stream in 1...1_000 as ClosedRange<UInt64> {
            Packet(.invoke, stream: stream, message: 1, data: ByteBuffer(string: echo.name)).write(into: &bytes)
            Packet(.message, stream: stream, message: 2).write(into: &bytes)
        }
        try channel.writeInbound(bytes)
        #expect(served.withLock { $0 } == DRPCLimits.packetsInARow / 2)
        channel.embeddedEventLoop.run()
        #expect(served.withLock { $0 } == 1_000)
        var answers = ByteBuffer()
        while var part = try channel.readOutbound(as: ByteBuffer.self) { answers.writeBuffer(&part) }
        #expect(try packets(answers).count == 2_000)
        _ = try channel.finish()
    }
}
