import BenchSupport
import DRPC
import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import SwiftProtobuf
import WebSockets
import Yamux

typealias Empty = Google_Protobuf_Empty

enum Link {
    static let service = "/coder.agent.v2.Agent/"
    /// The smallest call of the agent API.
    static let banners = Method<Empty, Empty>(service + "GetAnnouncementBanners")
    static let copyBytes = 64 << 20
    static let rpcPath = "/api/v2/workspaceagents/me/rpc"
    /// As ``rpcPath``, but streams are drained and answered by one byte for each ``copyBytes``.
    static let sinkPath = "/sink"
}

/// A control plane that asks for nothing: no script, no metadata, statistics once an hour, no
/// resource monitoring. Messages are given as wire bytes, which `Empty` keeps as unknown fields.
private func makeRouter() throws -> Router {
    var router = Router()
    let manifest: [UInt8] = [0x0a, 16] + [UInt8](repeating: 1, count: 16)
    let answers: [String: [UInt8]] = ["GetManifest": manifest, "UpdateStats": [0x0a, 3, 0x08, 0x90, 0x1c]]
    for name in [
        "GetManifest", "GetAnnouncementBanners", "UpdateStats", "UpdateLifecycle", "UpdateStartup", "BatchCreateLogs",
        "GetResourcesMonitoringConfiguration", "BatchUpdateMetadata", "BatchUpdateAppHealths",
    ] {
        let answer = try Empty(serializedBytes: answers[name] ?? [])
        router.immediate(Method<Empty, Empty>(Link.service + name)) { _, _ in
            if name == "UpdateLifecycle" { say("lifecycle") }
            return answer
        }
    }
    return router
}

private final class Upgrade: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart
    private let router: Router
    private var head: HTTPRequestHead?

    init(_ router: Router) { self.router = router }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head): self.head = head
        case .body: break
        case .end:
            do {
                guard let head else { throw BenchFailure("no request") }
                try upgrade(head, context)
            } catch {
                context.close(promise: nil)
            }
        }
    }

    private func upgrade(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) throws {
        if head.uri.hasPrefix("/api/v2/workspaceagents/me/reinit") {
            // Never to be claimed: the agent asks no more.
            let fields: HTTPHeaders = ["Content-Length": "0", "Connection": "close"]
            context.write(
                wrapOutboundOut(.head(.init(version: .http1_1, status: .conflict, headers: fields))), promise: nil)
            context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
            return
        }
        let response = try WebSocketServerHandshake.response(to: head)
        context.write(wrapOutboundOut(.head(response)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        let pipeline = context.pipeline.syncOperations
        let decoder = try pipeline.context(handlerType: ByteToMessageHandler<HTTPRequestDecoder>.self)
        pipeline.removeHandler(
            context: try pipeline.context(handlerType: HTTPResponseEncoder.self), promise: nil)
        pipeline.removeHandler(context: context, promise: nil)
        try pipeline.addHandler(WebSocketByteStream(role: .server))
        let isSink = head.uri == Link.sinkPath
        let router = router
        try pipeline.addHandler(
            YamuxHandler(role: .server, eventLoop: context.eventLoop) { stream in
                stream.eventLoop.makeCompletedFuture {
                    let pipeline = stream.pipeline.syncOperations
                    if isSink {
                        try pipeline.addHandler(Sink())
                    } else {
                        try pipeline.addHandler(RPCServerHandler(router: router))
                    }
                }
            })
        // Last: what it read past the request is for the handlers that are there by then.
        let channel = context.channel
        pipeline.removeHandler(context: decoder).whenComplete { _ in channel.pipeline.fireChannelReadComplete() }
    }
}

private final class Sink: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private var left = Link.copyBytes

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        left -= unwrapInboundIn(data).readableBytes
        guard left <= 0 else { return }
        left += Link.copyBytes
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: [1])), promise: nil)
    }
}

/// Serves until stdin ends. Prints "PORT FLOOR-PORT", then a line for each change of a lifecycle.
/// - Parameter identity: a PEM file with certificate and key, for TLS.
func serve(_ identity: String?) async throws {
    let tls = try identity.map { file in
        let chain = try NIOSSLCertificate.fromPEMFile(file).map { NIOSSLCertificateSource.certificate($0) }
        let key = NIOSSLPrivateKeySource.privateKey(try NIOSSLPrivateKey(file: file, format: .pem))
        return try NIOSSLContext(
            configuration: .makeServerConfiguration(certificateChain: chain, privateKey: key))
    }
    _ = raiseDescriptorLimit()
    let router = try makeRouter()
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let listener = try await ServerBootstrap(group: group)
        .serverChannelOption(.backlog, value: 4_096)
        .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
        .childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                if let tls { try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls)) }
                try channel.pipeline.syncOperations.addHandlers([
                    HTTPResponseEncoder(),
                    ByteToMessageHandler(HTTPRequestDecoder(leftOverBytesStrategy: .forwardBytes)), Upgrade(router),
                ])
            }
        }
        .bind(host: "127.0.0.1", port: 0).get()
    say("\(listener.localAddress?.port ?? 0) \(try serveFloor())")
    try await NIOThreadPool.singleton.runIfActive {
        var byte: UInt8 = 0
        while read(0, &byte, 1) > 0 {}
    }
}
