import BenchSupport
import DRPC
import NIOCore
import NIOHTTP1
import NIOPosix
import Synchronization
import WebSockets
import Yamux

/// Counts the bytes of a connection, at its bottom.
final class ByteCount: ChannelDuplexHandler, Sendable {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    private let received = Atomic<Int>(0)
    private let sent = Atomic<Int>(0)

    var now: (sent: Int, received: Int) { (sent.load(ordering: .relaxed), received.load(ordering: .relaxed)) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        received.add(unwrapInboundIn(data).readableBytes, ordering: .relaxed)
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        sent.add(unwrapOutboundIn(data).readableBytes, ordering: .relaxed)
        context.write(data, promise: promise)
    }
}

private final class ClientUpgrade: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart
    private let path: String
    private let session: EventLoopPromise<YamuxMultiplexer>
    private let handshake = WebSocketClientHandshake()
    private var head: HTTPResponseHead?

    init(_ path: String, _ session: EventLoopPromise<YamuxMultiplexer>) {
        self.path = path
        self.session = session
    }

    func channelActive(context: ChannelHandlerContext) {
        context.write(wrapOutboundOut(.head(handshake.request(host: "127.0.0.1", uri: path))), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) { session.fail(ChannelError.eof) }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        session.fail(error)
        context.close(promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head): self.head = head
        case .body: break
        case .end:
            do {
                guard let head else { throw BenchFailure("no response") }
                try handshake.check(head)
                let pipeline = context.pipeline.syncOperations
                let encoder = try pipeline.context(handlerType: HTTPRequestEncoder.self)
                let decoder = try pipeline.context(handlerType: ByteToMessageHandler<HTTPResponseDecoder>.self)
                pipeline.removeHandler(context: encoder, promise: nil)
                pipeline.removeHandler(context: decoder).assumeIsolated().whenComplete { [self] _ in
                    session.completeWith(
                        Result {
                            let pipeline = context.pipeline.syncOperations
                            try pipeline.addHandler(WebSocketByteStream(role: .client))
                            let session = try YamuxMultiplexer.attachNow(to: context.channel, role: .client)
                            pipeline.removeHandler(context: context, promise: nil)
                            return session
                        })
                }
            } catch {
                errorCaught(context: context, error: error)
            }
        }
    }
}

/// A link as the daemon's dialler makes it: HTTP upgrade, WebSocket, yamux.
func dial(
    _ group: any EventLoopGroup, port: Int, path: String = Link.rpcPath, count: ByteCount? = nil
) async throws -> YamuxMultiplexer {
    let loop = group.next()
    let session = loop.makePromise(of: YamuxMultiplexer.self)
    do {
        _ = try await ClientBootstrap(group: loop)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            // TCP_NOTSENT_LOWAT
            .channelOption(.tcpOption(.init(rawValue: 25)), value: 128 << 10)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let count { try pipeline.addHandler(count) }
                    try pipeline.addHandlers([
                        HTTPRequestEncoder(),
                        ByteToMessageHandler(HTTPResponseDecoder(leftOverBytesStrategy: .forwardBytes)),
                        ClientUpgrade(path, session),
                    ])
                }
            }
            .connect(host: "127.0.0.1", port: port).get()
    } catch {
        session.fail(error)
    }
    return try await session.futureResult.get()
}

/// A call as the daemon makes it: on a stream of its own.
func call(_ session: YamuxMultiplexer) async throws {
    let client = try await session.openStream { RPCClient.attach(to: $0) }
    _ = try await client.unary(Link.banners, Empty())
    client.closeSoon()
}

/// Writes one copy whenever it is told to, and tells when it has arrived.
final class CopySource: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private var left = Link.copyBytes
    private let chunk = ByteBuffer(repeating: 7, count: 65_536)
    private let done: EventLoopPromise<Void>

    init(_ done: EventLoopPromise<Void>) { self.done = done }

    func handlerAdded(context: ChannelHandlerContext) { if context.channel.isActive { pump(context) } }
    func channelActive(context: ChannelHandlerContext) { pump(context) }
    func channelWritabilityChanged(context: ChannelHandlerContext) { pump(context) }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) { done.succeed() }
    func channelInactive(context: ChannelHandlerContext) { done.fail(ChannelError.eof) }

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
