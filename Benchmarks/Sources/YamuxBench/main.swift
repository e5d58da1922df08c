// What yamux costs, over loopback TCP: a copy through one stream beside the same copy over the bare
// connection, and a unary call on a stream of its own beside the same call on a connection that is
// open already.
//
//     swift run -c release YamuxBench
import DRPC
import NIOCore
import NIOPosix
import SwiftProtobuf
import Yamux

typealias Text = Google_Protobuf_StringValue
let echo = Method<Text, Text>("/test.Test/Echo")
let total = 256 * 1_048_576
let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)

/// Counts what arrives until all is there.
final class Sink: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private var left = total
    private let done: EventLoopPromise<Void>
    init(_ done: EventLoopPromise<Void>) { self.done = done }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        left -= unwrapInboundIn(data).readableBytes
        if left == 0 { done.succeed() }
    }
}

/// Writes all, whenever the channel says that it may.
final class Source: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private var left = total
    private let chunk = ByteBuffer(repeating: 7, count: 65_536)
    func handlerAdded(context: ChannelHandlerContext) { if context.channel.isActive { pump(context) } }
    func channelActive(context: ChannelHandlerContext) { pump(context) }
    func channelWritabilityChanged(context: ChannelHandlerContext) { pump(context) }
    private func pump(_ context: ChannelHandlerContext) {
        var wrote = false
        while left > 0, context.channel.isWritable {
            left -= chunk.readableBytes
            wrote = true
            context.write(wrapOutboundOut(chunk), promise: nil)
        }
        if wrote { context.flush() }
    }
}

func timed(_ body: () async throws -> Void) async rethrows -> Double {
    let start = ContinuousClock.now
    try await body()
    return (ContinuousClock.now - start) / .seconds(1)
}

func add(_ handler: @escaping @Sendable () -> any ChannelHandler) -> @Sendable (any Channel) -> EventLoopFuture<Void> {
    { channel in channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(handler()) } }
}

func connect(_ accepted: @escaping @Sendable (any Channel) -> EventLoopFuture<Void>) async throws -> any Channel {
    let server = try await ServerBootstrap(group: group).childChannelInitializer(accepted)
        .bind(host: "127.0.0.1", port: 0).get()
    guard let address = server.localAddress else { throw ChannelError.unknownLocalAddress }
    return try await ClientBootstrap(group: group).connect(to: address).get()
}

func session(
    _ initializer: @escaping YamuxHandler.InboundStreamInitializer
) async throws -> YamuxMultiplexer {
    let channel = try await connect { channel in
        YamuxMultiplexer.attach(to: channel, role: .server, inboundStreamInitializer: initializer).map { _ in }
    }
    return try await YamuxMultiplexer.attach(to: channel, role: .client).get()
}

for _ in 0..<3 {
    let bareDone = group.next().makePromise(of: Void.self)
    let bare = try await connect(add { Sink(bareDone) })
    let bareSeconds = try await timed {
        try await add { Source() }(bare).get()
        try await bareDone.futureResult.get()
    }
    let done = group.next().makePromise(of: Void.self)
    let multiplexer = try await session(add { Sink(done) })
    let seconds = try await timed {
        let opened: Void = try await multiplexer.openStream(add { Source() })
        _ = opened
        try await done.futureResult.get()
    }
    func rate(_ seconds: Double) -> Int { Int(Double(total) / 1_048_576 / seconds) }
    print("copy: bare \(rate(bareSeconds)) MiB/s, one stream \(rate(seconds)) MiB/s (× \(bareSeconds / seconds))")
}

var router = Router()
router.immediate(echo) { request, _ in request }
let methods = router
let serve = add { RPCServerHandler(router: methods) }
let rounds = 5_000
let plain = try await RPCClient.attach(to: connect(serve)).get()
let multiplexer = try await session(serve)
for _ in 0..<3 {
    let bare = try await timed {
        for _ in 0..<rounds { _ = try await plain.unary(echo, Text("x")) }
    }
    let yamux = try await timed {
        for _ in 0..<rounds {
            let client = try await multiplexer.openStream { RPCClient.attach(to: $0) }
            _ = try await client.unary(echo, Text("x"))
            await client.close()
        }
    }
    let many = try await timed {
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for _ in 0..<100 {
                tasks.addTask {
                    for _ in 0..<rounds / 100 {
                        let client = try await multiplexer.openStream { RPCClient.attach(to: $0) }
                        _ = try await client.unary(echo, Text("x"))
                        await client.close()
                    }
                }
            }
            try await tasks.waitForAll()
        }
    }
    func each(_ seconds: Double) -> Double { (seconds / Double(rounds) * 10_000_000).rounded() / 10 }
    print("call: on a connection \(each(bare)) µs, on a new stream \(each(yamux)) µs, of 100 at once \(each(many)) µs")
}
