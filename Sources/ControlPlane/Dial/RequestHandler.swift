import NIOCore
import NIOHTTP1

/// The one request that is sent over a new connection.
struct OpeningRequest: Sendable {
    /// An answer that leaves the connection what it was.
    struct Answer: Sendable {
        var status: Int
        var location: String?
        /// Where an upgrade was asked for: of its refusal, what ``DialLimits/errorBodyBytes`` leaves of it.
        var body = ByteBuffer()
        /// From the request to the head of the answer.
        var delay: Duration
    }

    /// Value of the Host field.
    var host: String
    /// Path and query.
    var uri: String
    /// Further fields.
    var headers: HTTPHeaders
    /// What is asked for, made anew for each connection (RFC 6455 section 4.1); nil for nothing but an answer: then the
    /// connection is closed as soon as the answer's head is here.
    var upgrade: @Sendable () -> Upgrade?
    /// For all of it, connecting included.
    var deadline: NIODeadline
    /// The time that there was until the deadline, for messages.
    var limit: TimeAmount
    /// Adds the handlers of the upgraded connection, before any byte of it is read.
    var initializer: @Sendable (any Channel) throws -> Void

    fileprivate func head(_ upgrade: Upgrade?) -> HTTPRequestHead {
        if let upgrade { return upgrade.request(host: host, uri: uri, headers: headers) }
        var fields: HTTPHeaders = ["Host": host, "Connection": "close"]
        fields.add(contentsOf: headers)
        return HTTPRequestHead(version: .http1_1, method: .GET, uri: uri, headers: fields)
    }
}

/// Sends the request and either turns the pipeline into the upgraded connection's byte stream or reads
/// the answer. Confined to its event loop.
final class RequestHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart

    private enum Phase {
        case waiting
        case upgrading(HTTPResponseHead)
        case answered(OpeningRequest.Answer)
        /// The codec is leaving; what came behind the 101 waits for the byte stream.
        case switching([NIOAny])
        case done
    }

    private let server: ServerAddress
    private let request: OpeningRequest
    private let upgrade: Upgrade?
    private let result: EventLoopPromise<OpeningRequest.Answer?>
    private var phase = Phase.waiting
    private var sent = NIODeadline.now()
    private var timer: Scheduled<Void>?

    /// - Parameters:
    ///   - server: for messages.
    ///   - result: nil once the byte stream is there.
    init(server: ServerAddress, _ request: OpeningRequest, result: EventLoopPromise<OpeningRequest.Answer?>) {
        self.server = server
        self.request = request
        upgrade = request.upgrade()
        self.result = result
    }

    /// Replaces the HTTP handlers that ``add(to:_:)`` made.
    static func add(to channel: any Channel, _ handler: RequestHandler) throws {
        var limits = NIOHTTPDecoderLimitConfiguration()
        limits.maxHeaderListSize = DialLimits.headerBytes
        limits.maxHeaderFieldSize = DialLimits.headerBytes
        try channel.pipeline.syncOperations.addHandlers([
            HTTPRequestEncoder(),
            // Bytes that come with the 101 are for the byte stream.
            ByteToMessageHandler(
                HTTPResponseDecoder(leftOverBytesStrategy: .forwardBytes, limitConfiguration: limits)),
            handler,
        ])
    }

    func handlerAdded(context: ChannelHandlerContext) {
        timer = context.eventLoop.assumeIsolated().scheduleTask(deadline: request.deadline) { [weak self] in
            guard let self else { return }
            self.fail(
                ControlPlaneError(
                    .timeout,
                    "\(self.server) gave no answer within \(self.request.limit.nanoseconds / 1_000_000_000) s"),
                context)
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        fail(ControlPlaneError(.unreachable, "\(server): the connection was given up"), nil)
    }

    func channelActive(context: ChannelHandlerContext) {
        sent = .now()
        context.write(wrapOutboundOut(.head(request.head(upgrade))), promise: nil)
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
        case (.head(let head), .waiting): received(head, context)
        case (.body(let bytes), .answered(var answer)):
            phase = .waiting
            answer.body.writeImmutableBuffer(bytes)
            phase = .answered(answer)
            if answer.body.readableBytes > DialLimits.errorBodyBytes { finishAnswered(context) }
        case (.end, .answered): finishAnswered(context)
        case (.end, .upgrading(let head)): switchOver(head, context)
        default: break
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if case .answered = phase {
            finishAnswered(context)
        } else {
            fail(
                ControlPlaneError(.unreachable, "\(server): the connection ended before it answered"), context)
        }
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if case .answered = phase { return finishAnswered(context) }
        if error is ControlPlaneError { return fail(error, context) }
        if let error = Trust.failure(error, to: server) { return fail(error, context) }
        if error is HTTPParserError || error is NIOHTTPDecoderError {
            return fail(
                ControlPlaneError(.protocolViolation, "\(server): what it answers is not HTTP", cause: error), context)
        }
        fail(ControlPlaneError(.unreachable, "\(server): the connection failed", cause: error), context)
    }

    private func received(_ head: HTTPResponseHead, _ context: ChannelHandlerContext) {
        if head.status == .switchingProtocols, upgrade != nil {
            phase = .upgrading(head)
            return
        }
        phase = .answered(
            OpeningRequest.Answer(
                status: Int(head.status.code), location: head.headers["Location"].first,
                delay: .nanoseconds((NIODeadline.now() - sent).nanoseconds)))
        if upgrade == nil { finishAnswered(context) }
    }

    private func finishAnswered(_ context: ChannelHandlerContext) {
        guard case .answered(let answer) = phase else { return }
        finish(.success(answer))
        context.close(promise: nil)
    }

    private func fail(_ error: any Error, _ context: ChannelHandlerContext?) {
        if case .done = phase { return }
        finish(.failure(error))
        context?.close(promise: nil)
    }

    private func finish(_ outcome: Result<OpeningRequest.Answer?, any Error>) {
        phase = .done
        timer?.cancel()
        result.completeWith(outcome)
    }

    private func switchOver(_ head: HTTPResponseHead, _ context: ChannelHandlerContext) {
        if let problem = upgrade?.problem(of: head) {
            return fail(ControlPlaneError(.protocolViolation, "\(server): \(problem)"), context)
        }
        do {
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
        } catch {
            fail(error, context)
        }
    }

    private func switched(_ context: ChannelHandlerContext) {
        guard case .switching(let waiting) = phase else { return }
        do {
            try upgrade?.addCodec(to: context.pipeline.syncOperations)
            try request.initializer(context.channel)
        } catch {
            return fail(error, context)
        }
        finish(.success(nil))
        for data in waiting { context.fireChannelRead(data) }
        context.fireChannelReadComplete()
        context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
    }
}
