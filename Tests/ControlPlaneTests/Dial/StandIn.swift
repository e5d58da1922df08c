import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Synchronization
import WebSockets

/// A local server whose every byte a test decides.
final class StandIn: Sendable {
    struct Request: Sendable {
        var method = ""
        var uri = ""
        var headers = HTTPHeaders()
        var body = ""
    }

    /// One connection of a client, for the script.
    struct Connection: Sendable {
        let channel: any Channel

        func send(_ text: String) { channel.writeAndFlush(ByteBuffer(string: text), promise: nil) }

        func answer(_ status: Int, _ body: String = "", _ fields: [String] = [], type: String = "application/json") {
            let lines =
                ["HTTP/1.1 \(status) X", "Content-Type: \(type)", "Content-Length: \(body.utf8.count)"] + fields
            send(lines.joined(separator: "\r\n") + "\r\n\r\n" + body)
        }

        func close() { channel.close(promise: nil) }

        /// Answers 101, `behind` in the same write, and echoes the byte stream from then on.
        /// - Parameter fields: further ones of the answer, each as a line.
        func upgrade(_ request: Request, behind: ByteBuffer = ByteBuffer(), fields: [String] = []) {
            let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: request.uri, headers: request.headers)
            guard let response = try? WebSocketServerHandshake.response(to: head) else { return answer(400) }
            let lines = response.headers.map { "\($0.name): \($0.value)" } + fields
            become(
                "HTTP/1.1 101 Switching Protocols\r\n\(lines.joined(separator: "\r\n"))\r\n\r\n", behind: behind,
                [WebSocketByteStream(role: .server), Echo()])
        }

        /// Answers with a relay's 101, `behind` in the same write, and echoes all bytes from then on.
        func upgradeToDERP(
            _ head: String = "HTTP/1.1 101 X\r\nUpgrade: DERP\r\nConnection: Upgrade\r\n\r\n",
            behind: ByteBuffer = ByteBuffer()
        ) {
            become(head, behind: behind, [Echo()])
        }

        private func become(_ head: String, behind: ByteBuffer, _ handlers: [any ChannelHandler]) {
            var bytes = ByteBuffer(string: head)
            bytes.writeImmutableBuffer(behind)
            channel.writeAndFlush(bytes, promise: nil)
            let pipeline = channel.pipeline.syncOperations
            try? pipeline.addHandlers(handlers)
            if let context = try? pipeline.context(handlerType: Handler.self) {
                pipeline.removeHandler(context: context, promise: nil)
            }
        }

        /// Becomes a tunnel to a local port, as a proxy does.
        func tunnel(to port: Int) {
            let (inner, outer) = (Glue(), Glue())
            (inner.peer, outer.peer) = (
                NIOLoopBound(outer, eventLoop: channel.eventLoop), NIOLoopBound(inner, eventLoop: channel.eventLoop)
            )
            let bound = NIOLoopBound((inner, outer), eventLoop: channel.eventLoop)
            ClientBootstrap(group: channel.eventLoop)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(bound.value.0)
                    }
                }
                .connect(host: "127.0.0.1", port: port).assumeIsolated().whenComplete { _ in
                    let pipeline = channel.pipeline.syncOperations
                    try? pipeline.addHandler(bound.value.1)
                    if let context = try? pipeline.context(handlerType: Handler.self) {
                        pipeline.removeHandler(context: context, promise: nil)
                    }
                    send("HTTP/1.1 200 Connection established\r\n\r\n")
                }
        }
    }

    typealias Script = @Sendable (Request, Connection) -> Void

    private let channel: any Channel
    private let record: Recorder
    var requests: [Request] { record.requests.withLock { $0 } }
    var port: Int { channel.localAddress?.port ?? 0 }

    /// - Parameter onConnect: when it returns true, nothing is read from the connection.
    init(
        host: String = "127.0.0.1", tls: NIOSSLContext? = nil,
        onConnect: @escaping @Sendable (Connection) -> Bool = { _ in false }, _ script: @escaping Script
    ) async throws {
        let record = Recorder()
        self.record = record
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let connection = Connection(channel: channel)
                    if onConnect(connection) { return }
                    if let tls { try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls)) }
                    try channel.pipeline.syncOperations.addHandler(Handler(connection, record, script))
                }
            }
            .bind(host: host, port: 0).get()
    }

    func stop() async { try? await channel.close() }

    private final class Recorder: Sendable { let requests = Mutex<[Request]>([]) }

    private final class Handler: ChannelInboundHandler, RemovableChannelHandler {
        typealias InboundIn = ByteBuffer
        private let connection: Connection
        private let record: Recorder
        private let script: Script
        private var input = ""

        init(_ connection: Connection, _ record: Recorder, _ script: @escaping Script) {
            (self.connection, self.record, self.script) = (connection, record, script)
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            input += String(buffer: unwrapInboundIn(data))
            while let end = input.range(of: "\r\n\r\n") {
                var lines = input[..<end.lowerBound].components(separatedBy: "\r\n")
                let first = lines.removeFirst().components(separatedBy: " ")
                var request = Request(method: first[0], uri: first.count > 1 ? first[1] : "")
                for line in lines {
                    let parts = line.split(separator: ":", maxSplits: 1).map { $0.trimmingCharacters(in: .whitespaces) }
                    request.headers.add(name: parts[0], value: parts.count > 1 ? parts[1] : "")
                }
                let length = request.headers["content-length"].first.flatMap { Int($0) } ?? 0
                let rest = input[end.upperBound...]
                guard rest.utf8.count >= length else { return }
                request.body = String(decoding: rest.utf8.prefix(length), as: UTF8.self)
                input = String(decoding: rest.utf8.dropFirst(length), as: UTF8.self)
                record.requests.withLock { $0.append(request) }
                script(request, connection)
            }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    private final class Echo: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer
        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            context.writeAndFlush(wrapOutboundOut(unwrapInboundIn(data)), promise: nil)
        }
    }

    private final class Glue: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer
        var peer: NIOLoopBound<Glue>?
        private var context: ChannelHandlerContext?
        func handlerAdded(context: ChannelHandlerContext) { self.context = context }
        func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let bytes = unwrapInboundIn(data)
            guard let other = peer?.value.context else { return }
            other.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        }
        func channelInactive(context: ChannelHandlerContext) { peer?.value.context?.close(promise: nil) }
    }
}
