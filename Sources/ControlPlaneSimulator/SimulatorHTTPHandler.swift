import ControlPlaneAPI
import FoundationEssentials
import NIOCore
import NIOHTTP1
import WebSockets

/// The HTTP side of one connection: answers requests until one becomes the RPC.
final class SimulatorHTTPHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let server: SimulatorServer
    private var head: HTTPRequestHead?
    private var body = Data()
    private var tooLong = false
    /// Nothing more is answered on this connection.
    private var isDone = false
    private var waiterID: Int?

    init(server: SimulatorServer) { self.server = server }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isDone else { return }
        switch unwrapInboundIn(data) {
        case .head(let head):
            self.head = head
            body = Data()
            tooLong = false
        case .body(let part):
            tooLong = tooLong || body.count + part.readableBytes > SimulatorLimits.requestBodyBytes
            if !tooLong { body.append(contentsOf: part.readableBytesView) }
        case .end:
            guard let head = head.take() else { return }
            handle(head, context)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if let waiterID { server.waiterEnded(waiterID) }
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    private func handle(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        guard !tooLong else {
            respond(
                RESTRoutes.problem(413, "at most \(SimulatorLimits.requestBodyBytes) bytes are taken"), head, context)
            return
        }
        let isRPC = head.uri.split(separator: "?").first?.hasSuffix("/me/rpc") == true
        let fault = isRPC ? server.service.faults.takeDial() : nil
        switch fault {
        case .hang: isDone = true
        case .reset:
            isDone = true
            SimulatorServer.reset(context.channel)
        case .refuse(let status, let body): respond(.json(status, Data(body.utf8)), head, context)
        default:
            let answer = RelayRoutes.answer(head, server.relay) ?? server.routes.answer(head, body)
            respond(answer, head, context, fault)
        }
    }

    private func respond(
        _ answer: HTTPAnswer, _ head: HTTPRequestHead, _ context: ChannelHandlerContext,
        _ fault: ConnectionFault? = nil
    ) {
        switch answer {
        case .rpc(let version, let role): upgrade(version, role, head, context, fault)
        case .reinit: stream(head, context)
        case .login: awaitLogin(head, context)
        case .derp(let response, let isWebSocket): upgradeToDERP(response, isWebSocket, head, context)
        case .json(let status, let body):
            end(status, ["Content-Type": "application/json; charset=utf-8"], body, head, context)
        case .text(let status, let body):
            end(
                status, ["Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"],
                Data(body.utf8), head, context)
        }
    }

    /// Sends a whole answer.
    private func end(
        _ status: Int, _ headers: HTTPHeaders, _ body: Data, _ head: HTTPRequestHead, _ context: ChannelHandlerContext
    ) {
        server.answered(head, status)
        // After an offer to upgrade the decoder reads no further request.
        let goesOn = head.isKeepAlive && !head.headers.contains(name: "Upgrade") && !tooLong
        isDone = !goesOn
        var response = HTTPResponseHead(version: .http1_1, status: .init(statusCode: status), headers: headers)
        response.headers.add(name: "Content-Length", value: "\(body.count)")
        if !goesOn { response.headers.add(name: "Connection", value: "close") }
        context.write(wrapOutboundOut(.head(response)), promise: nil)
        context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(bytes: body)))), promise: nil)
        let channel = context.channel
        context.writeAndFlush(wrapOutboundOut(.end(nil))).whenComplete { _ in
            if !goesOn { channel.close(promise: nil) }
        }
    }

    private func upgrade(
        _ version: APIVersion, _ role: String, _ head: HTTPRequestHead, _ context: ChannelHandlerContext,
        _ fault: ConnectionFault?
    ) {
        let response: HTTPResponseHead
        do {
            response = try WebSocketServerHandshake.response(to: head)
        } catch {
            respond(RESTRoutes.problem(400, error.message), head, context)
            return
        }
        replaceHTTP(response, context) { [server] in
            try server.upgraded(context.channel, version, role, fault)
        }
    }

    private func upgradeToDERP(
        _ response: HTTPResponseHead, _ isWebSocket: Bool, _ head: HTTPRequestHead, _ context: ChannelHandlerContext
    ) {
        server.answered(head, 101)
        let client = RelayClientHandler(relay: server.relay, isWebSocket: isWebSocket)
        let pipeline = context.pipeline.syncOperations
        replaceHTTP(response, context) { [times = server.webSocketTimes] in
            if isWebSocket { try pipeline.addHandler(WebSocketByteStream(role: .server, times: times)) }
            try pipeline.addHandler(client)
        }
        client.start()
    }

    /// Sends a 101, and puts other handlers in the place of HTTP's.
    private func replaceHTTP(
        _ response: HTTPResponseHead, _ context: ChannelHandlerContext, with install: () throws -> Void
    ) {
        isDone = true
        context.write(wrapOutboundOut(.head(response)), promise: nil)
        context.write(wrapOutboundOut(.end(nil)), promise: nil)
        let pipeline = context.pipeline.syncOperations
        let channel = context.channel
        do {
            // A client that has seen the 101 may count on the connection being known: to ``SimulatorServer/cut()``, say.
            defer { channel.flush() }
            try install()
            let decoder = try pipeline.context(handlerType: ByteToMessageHandler<HTTPRequestDecoder>.self)
            let encoder = try pipeline.context(handlerType: HTTPResponseEncoder.self)
            pipeline.removeHandler(context: encoder, promise: nil)
            pipeline.removeHandler(context: context, promise: nil)
            // Last: what it read past the request goes to the handlers that are there by then.
            // That happens at the loop's next turn, behind the end of the read that brought them.
            pipeline.removeHandler(context: decoder).whenComplete { _ in channel.pipeline.fireChannelReadComplete() }
        } catch {
            context.close(promise: nil)
        }
    }

    private func awaitLogin(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let loop = context.eventLoop
        let id = server.loginBegan { auth in
            loop.execute {
                let (handler, context) = bound.value
                guard context.channel.isActive else { return }
                handler.respond(RESTRoutes.json(auth), head, context)
            }
        }
        guard let id else { return respond(RESTRoutes.problem(503, "too many wait already"), head, context) }
        waiterID = id
    }

    private func stream(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let loop = context.eventLoop
        // Set before the first event can come, which is sent on the loop.
        guard
            let id = server.reinitBegan({ event in
                loop.execute {
                    let (handler, context) = bound.value
                    guard context.channel.isActive else { return }
                    context.writeAndFlush(
                        handler.wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: event)))), promise: nil)
                }
            })
        else { return respond(RESTRoutes.problem(503, "too many wait already"), head, context) }
        server.answered(head, 200)
        waiterID = id
        isDone = true
        let response = HTTPResponseHead(
            version: .http1_1, status: .ok,
            headers: [
                "Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Transfer-Encoding": "chunked",
            ])
        context.writeAndFlush(wrapOutboundOut(.head(response)), promise: nil)
    }
}
