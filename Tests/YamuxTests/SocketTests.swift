import AgentTestSupport
import DRPC
import Glibc
import NIOCore
import NIOPosix
import SwiftProtobuf
import Synchronization
import Testing

@testable import Yamux

private typealias Text = Google_Protobuf_StringValue
private typealias Number = Google_Protobuf_UInt64Value
private typealias Blob = Google_Protobuf_BytesValue

private let echo = Method<Text, Text>("/test.Test/Echo")
private let large = Method<Number, Blob>("/test.Test/Large")
private let count = Method<Number, Number>("/test.Test/Count", .serverStreaming)
private let sum = Method<Number, Number>("/test.Test/Sum", .clientStreaming)

private func router() -> Router {
    var router = Router()
    router.immediate(echo) { request, _ in request }
    router.unary(large) { request, _ in Blob([UInt8](repeating: 7, count: Int(request.value))) }
    router.serverStreaming(count) { request, responses, _ in
        for value in 0..<request.value { try await responses.send(Number(value)) }
    }
    router.clientStreaming(sum) { requests, _ in
        var sum: UInt64 = 0
        for try await request in requests { sum += request.value }
        return Number(sum)
    }
    return router
}

extension Google_Protobuf_BytesValue {
    fileprivate init(_ bytes: [UInt8]) {
        self.init()
        value = .init(bytes)
    }
}

/// Two sessions on the ends of a real socket pair.
private struct Pair {
    let client: YamuxMultiplexer
    let server: YamuxMultiplexer

    init(_ initializer: @escaping YamuxHandler.InboundStreamInitializer) async throws {
        var descriptors: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &descriptors) == 0)
        let group = MultiThreadedEventLoopGroup.singleton
        func attach(_ descriptor: CInt, _ role: YamuxSession.Role) async throws -> YamuxMultiplexer {
            let channel = try await ClientBootstrap(group: group).withConnectedSocket(descriptor).get()
            return try await YamuxMultiplexer.attach(
                to: channel, role: role, inboundStreamInitializer: initializer
            ).get()
        }
        client = try await attach(descriptors[0], .client)
        server = try await attach(descriptors[1], .server)
    }

    static func rpc() async throws -> Pair {
        try await Pair { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(RPCServerHandler(router: router()))
            }
        }
    }

    func call<Result: Sendable>(_ body: (RPCClient) async throws -> Result) async throws -> Result {
        let rpc = try await client.openStream { RPCClient.attach(to: $0) }
        let result = try await body(rpc)
        await rpc.close()
        return result
    }

    /// Closes in order; nothing may be left.
    func finish() async throws {
        try await eventually("streams are gone") {
            [client, server].allSatisfy { $0.counters.openStreams + $0.counters.lingeringStreams == 0 }
        }
        await client.close()
        #expect(try await client.ended.get().code == .closed)
        #expect(try await server.ended.get().code == .transportClosed)
        for side in [client, server] {
            #expect(side.counters.bufferedBytes == 0 && side.counters.queuedBytes == 0)
        }
    }
}

/// Counts what arrives until all is there.
private final class Sink: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private var left: Int
    private let done: EventLoopPromise<Void>

    init(_ wanted: Int, _ done: EventLoopPromise<Void>) {
        left = wanted
        self.done = done
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        left -= unwrapInboundIn(data).readableBytes
        if left == 0 { done.succeed() }
    }

    func channelInactive(context: ChannelHandlerContext) { done.fail(ChannelError.eof) }
}

/// Writes until so many bytes are written, whenever the channel says that it may.
private final class Source: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private var left: Int
    private let chunk: ByteBuffer

    init(_ total: Int, chunk: Int = 65_536) {
        left = total
        self.chunk = pattern(0, chunk)
    }

    func channelActive(context: ChannelHandlerContext) { pump(context) }
    func channelWritabilityChanged(context: ChannelHandlerContext) { pump(context) }

    private func pump(_ context: ChannelHandlerContext) {
        var wrote = false
        while left > 0, context.channel.isWritable {
            let piece = chunk.getSlice(at: 0, length: min(left, chunk.readableBytes)) ?? chunk
            left -= piece.readableBytes
            wrote = true
            context.write(wrapOutboundOut(piece), promise: nil)
        }
        if wrote { context.flush() }
    }
}

@Suite(.timeLimit(.minutes(5)), .serialized) struct SocketTests {
    @Test func unaryAndStreamingCallsWork() async throws {
        let pair = try await Pair.rpc()
        let text = try await pair.call { try await $0.unary(echo, Text("hello")) }
        #expect(text.value == "hello")
        let numbers = try await pair.call { rpc in
            try await rpc.withServerStream(count, Number(5_000)) { responses in
                var numbers: [UInt64] = []
                for try await number in responses { numbers.append(number.value) }
                return numbers
            }
        }
        #expect(numbers == Array(0..<5_000))
        let total = try await pair.call { rpc in
            try await rpc.withClientStream(sum) { requests in
                for value in 1...1_000 as ClosedRange<UInt64> { try await requests.send(Number(value)) }
            }
        }
        #expect(total.value == 500_500)
        try await pair.finish()
    }

    @Test func aThousandCallsAtOnce() async throws {
        let pair = try await Pair.rpc()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<1_000 {
                group.addTask {
                    let answer = try await pair.call { try await $0.unary(echo, Text("call \(number)")) }
                    #expect(answer.value == "call \(number)")
                }
            }
            try await group.waitForAll()
        }
        #expect(pair.client.counters.openedStreams == 1_000)
        try await pair.finish()
    }

    @Test func aLargeAnswerComesWhole() async throws {
        let pair = try await Pair.rpc()
        let size = 3_670_016
        let answer = try await pair.call { try await $0.unary(large, Number(UInt64(size))) }
        #expect(answer.value.count == size && answer.value.allSatisfy { $0 == 7 })
        try await pair.finish()
    }

    @Test func aStalledReaderDelaysNoOtherAndBuffersItsWindow() async throws {
        // The server reads nothing on its first stream.
        let first = Mutex<(any Channel)?>(nil)
        let pair = try await Pair { channel in
            channel.eventLoop.makeCompletedFuture {
                let isFirst = first.withLock { held in
                    defer { held = held ?? channel }
                    return held == nil
                }
                if isFirst {
                    try channel.syncOptions?.setOption(.autoRead, value: false)
                } else {
                    try channel.pipeline.syncOperations.addHandler(RPCServerHandler(router: router()))
                }
            }
        }
        let flood = try await pair.client.openStream { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(Source(8 * 1_048_576))
                return channel
            }
        }
        try await eventually("the window is full") {
            pair.server.counters.bufferedBytes == Int(YamuxLimits.window)
        }
        for _ in 0..<50 {
            let answer = try await pair.call { try await $0.unary(large, Number(300_000)) }
            #expect(answer.value.count == 300_000)
        }
        #expect(pair.server.counters.bufferedBytes == Int(YamuxLimits.window))
        #expect(pair.client.counters.queuedBytes <= 2 * 65_536)
        // It reads again, and everything comes.
        let channel = try #require(first.withLock { $0 })
        let done = channel.eventLoop.makePromise(of: Void.self)
        try await channel.eventLoop.submit {
            try channel.pipeline.syncOperations.addHandler(Sink(8 * 1_048_576, done))
            try channel.syncOptions?.setOption(.autoRead, value: true)
        }.get()
        try await done.futureResult.get()
        try await flood.close().get()
        try await pair.finish()
    }

    @Test func aGreedyStreamStarvesNoOther() async throws {
        let pair = try await Pair { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(RPCServerHandler(router: router()))
            }
        }
        // Ten answers of 3 MiB each and small calls between them.
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<10 {
                group.addTask {
                    let answer = try await pair.call { try await $0.unary(large, Number(3_000_000)) }
                    #expect(answer.value.count == 3_000_000)
                }
            }
            for number in 0..<200 {
                group.addTask { _ = try await pair.call { try await $0.unary(echo, Text("\(number)")) } }
            }
            try await group.waitForAll()
        }
        try await pair.finish()
    }

    /// Figures for a person; the bound is loose, since machines are busy and builds are not optimized.
    @Test func throughput() async throws {
        let total = 64 * 1_048_576
        let done = MultiThreadedEventLoopGroup.singleton.any().makePromise(of: Void.self)
        let pair = try await Pair { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(Sink(total, done))
            }
        }
        let clock = ContinuousClock()
        let start = clock.now
        let channel = try await pair.client.openStream { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(Source(total))
                return channel
            }
        }
        try await done.futureResult.get()
        print("yamux: 64 MiB in \(clock.now - start)")
        try await channel.close().get()
        try await pair.finish()

        let calls = try await Pair.rpc()
        let begin = clock.now
        for _ in 0..<1_000 { _ = try await calls.call { try await $0.unary(echo, Text("x")) } }
        print("yamux: a unary call on a stream of its own in \((clock.now - begin) / 1_000)")
        try await calls.finish()
    }
}
