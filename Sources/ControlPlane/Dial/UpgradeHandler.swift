import NIOCore
import NIOHTTP1
import WebSockets

/// Sends the request for the WebSocket and either turns the pipeline into its byte stream or reads
/// the refusal. Confined to its event loop.
final class UpgradeHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart

    private enum Phase {
        case waiting
        case upgrading(HTTPResponseHead)
        case refused(HTTPResponseHead, ByteBuffer)
        /// The codec is leaving; what came behind the 101 waits for the byte stream.
        case switching([NIOAny])
        case done
    }

    private let server: ServerAddress
    private let handshake = WebSocketClientHandshake()
    private let request: HTTPRequestHead
    private let deadline: NIODeadline
    private let limit: TimeAmount
    private let result: EventLoopPromise<HTTPFailure?>
    private let initializer: @Sendable (any Channel) throws -> Void
    private var phase = Phase.waiting
    private var timer: Scheduled<Void>?

    /// - Parameter result: nil once the byte stream is there.
    init(
        server: ServerAddress, uri: String, headers: HTTPHeaders, deadline: NIODeadline, limit: TimeAmount,
        result: EventLoopPromise<HTTPFailure?>, initializer: @escaping @Sendable (any Channel) throws -> Void
    ) {
        self.server = server
        request = handshake.request(host: server.authority, uri: server.path + uri, headers: headers)
        self.deadline = deadline
        self.limit = limit
        self.result = result
        self.initializer = initializer
    }

    /// Replaces the HTTP handlers that ``add(to:_:)`` made.
    static func add(to channel: any Channel, _ handler: UpgradeHandler) throws {
        var limits = NIOHTTPDecoderLimitConfiguration()
        limits.maxHeaderListSize = DialLimits.headerBytes
        limits.maxHeaderFieldSize = DialLimits.headerBytes
        try channel.pipeline.syncOperations.addHandlers([
            HTTPRequestEncoder(),
            // Frames that come with the 101 are for the byte stream.
            ByteToMessageHandler(
                HTTPResponseDecoder(leftOverBytesStrategy: .forwardBytes, limitConfiguration: limits)),
            handler,
        ])
    }

    func handlerAdded(context: ChannelHandlerContext) {
        timer = context.eventLoop.assumeIsolated().scheduleTask(deadline: deadline) { [weak self] in
            guard let self else { return }
            self.fail(
                ControlPlaneError(
                    .timeout, "\(self.server) gave no answer within \(self.limit.nanoseconds / 1_000_000_000) s"),
                context)
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        fail(ControlPlaneError(.unreachable, "\(server): the connection was given up"), nil)
    }

    func channelActive(context: ChannelHandlerContext) {
        context.write(wrapOutboundOut(.head(request)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        context.fireChannelActive()
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if case .switching = phase { return }
        context.fireChannelReadComplete()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if case .switching(let waiting) = phase {
            phase = .switching(waiting + [data])
            return
        }
        if case .done = phase { return }
        switch (unwrapInboundIn(data), phase) {
        case (.head(let head), .waiting):
            phase = head.status == .switchingProtocols ? .upgrading(head) : .refused(head, ByteBuffer())
        case (.body(let bytes), .refused(let head, var body)):
            phase = .waiting
            body.writeImmutableBuffer(bytes)
            phase = .refused(head, body)
            if body.readableBytes > DialLimits.errorBodyBytes { refuse(context) }
        case (.end, .refused): refuse(context)
        case (.end, .upgrading(let head)): upgrade(head, context)
        default: break
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if case .refused = phase {
            refuse(context)
        } else {
            fail(
                ControlPlaneError(.unreachable, "\(server): the connection ended before it answered"), context)
        }
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if case .refused = phase { return refuse(context) }
        if error is ControlPlaneError { return fail(error, context) }
        if let error = Trust.failure(error, to: server) { return fail(error, context) }
        if error is HTTPParserError || error is NIOHTTPDecoderError {
            return fail(
                ControlPlaneError(.protocolViolation, "\(server): what it answers is not HTTP", cause: error), context)
        }
        fail(ControlPlaneError(.unreachable, "\(server): the connection failed", cause: error), context)
    }

    private func refuse(_ context: ChannelHandlerContext) {
        guard case .refused(let head, let body) = phase else { return }
        finish(
            .success(
                HTTPFailure(status: Int(head.status.code), location: head.headers["Location"].first, body: body)))
        context.close(promise: nil)
    }

    private func fail(_ error: any Error, _ context: ChannelHandlerContext?) {
        if case .done = phase { return }
        finish(.failure(error))
        context?.close(promise: nil)
    }

    private func finish(_ outcome: Result<HTTPFailure?, any Error>) {
        phase = .done
        timer?.cancel()
        result.completeWith(outcome)
    }

    private func upgrade(_ head: HTTPResponseHead, _ context: ChannelHandlerContext) {
        do {
            try handshake.check(head)
            let pipeline = context.pipeline.syncOperations
            let encoder = try pipeline.context(handlerType: HTTPRequestEncoder.self)
            let decoder = try pipeline.context(handlerType: ByteToMessageHandler<HTTPResponseDecoder>.self)
            phase = .switching([])
            pipeline.removeHandler(context: encoder, promise: nil)
            // It leaves in a later turn of the loop and until then takes all writes for HTTP, so
            // nothing that may write is added before.
            let left = context.eventLoop.makePromise(of: Void.self)
            pipeline.removeHandler(context: decoder, promise: left)
            left.futureResult.assumeIsolated().whenComplete { _ in self.switched(context) }
        } catch let error as WebSocketError {
            fail(ControlPlaneError(.protocolViolation, "\(server): \(error.message)"), context)
        } catch {
            fail(error, context)
        }
    }

    private func switched(_ context: ChannelHandlerContext) {
        guard case .switching(let waiting) = phase else { return }
        do {
            try context.pipeline.syncOperations.addHandler(WebSocketByteStream(role: .client))
            try initializer(context.channel)
        } catch {
            return fail(error, context)
        }
        finish(.success(nil))
        for data in waiting { context.fireChannelRead(data) }
        context.fireChannelReadComplete()
        context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
    }
}
