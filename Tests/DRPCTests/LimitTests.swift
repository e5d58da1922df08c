import NIOCore
import NIOEmbedded
import Testing

@testable import DRPC

/// Bounds of connections, each below, at and above.
@Suite(.timeLimit(.minutes(3))) struct LimitTests {
    @Test(arguments: [-1, 0, 1])
    func callsThatWaitForTheirTurn(difference: Int) async throws {
        try await withSilentServer { server, client in
            let first = Task { try await client.unary(slow, Text()) }
            try await eventually("the first call runs") { try server.received().last == .closeSend }
            // Each starts at once, so they are in line in this order.
            let waiting = (0..<DRPCLimits.queuedCalls + difference).map { _ in
                Task.immediate { try await client.unary(echo, Text()) }
            }
            try await client.eventLoop.submit {}.get()
            server.close()
            if difference > 0 {
                let refused = try #require(waiting.last)
                await #expect(throws: DRPCError(.limit, "")) { try await refused.value }
            }
            for call in [first] + waiting.prefix(DRPCLimits.queuedCalls) {
                await #expect(throws: DRPCError(.closed, "")) { try await call.value }
            }
        }
    }

    /// Counts the reads that get as far as the socket.
    private final class ReadCounter: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        var reads = 0
        func read(context: ChannelHandlerContext) {
            reads += 1
            context.read()
        }
    }

    /// A call whose handler doesn't read its messages yet, and what the connection does then.
    private func hold(
        _ messages: [Int], _ check: (_ reads: () -> Int, _ budget: UnfinishedBudget) throws -> Void
    ) throws {
        let seen = Seen()
        let budget = UnfinishedBudget()
        let counter = ReadCounter()
        let channel = EmbeddedChannel()
        try channel.pipeline.syncOperations.addHandlers([
            counter, RPCServerHandler(router: testRouter(seen), budget: budget),
        ])
        try channel.connect(to: SocketAddress(unixDomainSocketPath: "/peer")).wait()
        var bytes = ByteBuffer()
        Packet(.invoke, stream: 1, message: 1, data: ByteBuffer(string: gated.name)).write(into: &bytes)
        for (number, size) in messages.enumerated() {
            // An unknown field of bytes, which any message takes.
            var data = ByteBuffer(bytes: [0x7A])
            var length = size - 5
            while data.readableBytes < 4 {
                data.writeInteger(UInt8(length & 0x7F) | 0x80)
                length >>= 7
            }
            data.writeInteger(UInt8(length))
            data.writeRepeatingByte(0, count: size - 5)
            Packet(.message, stream: 1, message: UInt64(number + 2), data: data).write(into: &bytes)
        }
        try channel.writeInbound(bytes)
        channel.embeddedEventLoop.run()
        counter.reads = 0
        channel.read()
        try check({ counter.reads }, budget)

        seen.gate.continuation.finish()
        channel.embeddedEventLoop.run()
        #expect(counter.reads == 1, "it is read again")
        #expect(budget.held == 0)
        var end = ByteBuffer()
        Packet(.closeSend, stream: 1, message: UInt64(messages.count + 2)).write(into: &end)
        try channel.writeInbound(end)
        channel.embeddedEventLoop.run()
        var answers = ByteBuffer()
        while var part = try channel.readOutbound(as: ByteBuffer.self) { answers.writeBuffer(&part) }
        let reply = try #require(try packets(answers).first)
        #expect(try Number(serializedBytes: Array(reply.data.readableBytesView)).value == Int64(messages.count))
        _ = try channel.finish()
    }

    @Test(arguments: [-1, 0, 1])
    func messagesThatWaitForAHandler(difference: Int) throws {
        try hold(Array(repeating: 100, count: DRPCLimits.queuedMessages + difference)) { reads, budget in
            #expect(reads() == (difference < 0 ? 1 : 0))
            #expect((budget.held > 100) == (difference > 0), "what it has no place for waits unread")
        }
    }

    @Test(arguments: [-1, 0, 1])
    func bytesThatWaitForAHandler(difference: Int) throws {
        let half = DRPCLimits.queuedMessageBytes / 2
        try hold([half, half + difference]) { reads, budget in
            #expect(reads() == (difference < 0 ? 1 : 0))
            #expect(budget.held == 0)
        }
        // The one that fills it may go past it, and the next one waits.
        try hold([DRPCLimits.queuedMessageBytes + difference, 100]) { reads, budget in
            #expect(reads() == 0)
            #expect((budget.held > 100) == (difference >= 0))
        }
    }

    @Test(arguments: [-1, 0, 1])
    func aGrantForSmallRequestsHoweverFullTheBudgetIs(difference: Int) throws {
        let budget = UnfinishedBudget(limit: 0)
        let channel = EmbeddedChannel(handler: RPCServerHandler(router: testRouter(Seen()), budget: budget))
        try channel.connect(to: SocketAddress(unixDomainSocketPath: "/peer")).wait()
        var bytes = ByteBuffer()
        FrameHeader(kind: 2, stream: 1, message: 1, length: UInt64(DRPCLimits.packetBytes)).write(into: &bytes)
        bytes.writeRepeatingByte(0, count: DRPCLimits.unfinishedBytesGranted + difference - bytes.readableBytes)
        try channel.writeInbound(bytes)
        #expect(channel.isActive == (difference <= 0))
        channel.embeddedEventLoop.run()
        #expect(budget.held == (difference <= 0 ? DRPCLimits.unfinishedBytesGranted + difference : 0))
        _ = try? channel.finish()
        #expect(budget.held == 0)
    }
}
