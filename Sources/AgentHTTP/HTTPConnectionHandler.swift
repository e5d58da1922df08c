import AgentCore
import DequeModule
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import NIOHTTP1
import NIOHTTPTypesHTTP1
import WebSockets

/// Drives ``HTTPConnectionState`` over a channel: decodes requests, collects their bodies, runs one
/// task a request on the connection's event loop and writes the answers.
///
/// Hummingbird's own connection loop is not used: it takes a truncated body for a complete one, has
/// no header or body time-out, answers malformed requests without a body and does not notify a route
/// when its client disconnects. Its router, request and response types are used.
final class HTTPConnectionHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    /// A decoded part of a request.
    private enum Part {
        case head(RequestHead)
        case body(ByteBuffer)
        case end
    }

    let service: HTTPService
    private let info: ConnectionInfo
    private let policy: AccessPolicy
    private let executor: EventLoopTaskExecutor
    let logger: Logger

    private(set) var state = HTTPConnectionState()
    private(set) var context: ChannelHandlerContext?
    private var waitingParts = Deque<Part>()
    private var head: RequestHead?
    private var announced: (body: RequestFraming.Body, isLast: Bool)?
    private var body = ByteBuffer()
    /// The body of a request whose route takes it as it comes, until that has answered.
    var streamed: StreamedBody?
    var continueIsDue = false
    private var caller: CallerPresence?
    var timer = DeadlineTimer()
    private var discarded = 0
    /// Bytes that arrived behind the request under way.
    private var pipelined = 0
    /// Reports to the registry whether a request is under way.
    var activity: ConnectionActivity?
    private var isBusy = false
    let output: ResponseOutput
    /// What waits for a client that reads slowly.
    lazy var outputQueue = makeOutputQueue()
    var hasOutputQueue = false
    /// Bytes that arrived.
    private(set) var arrived = 0
    /// How far a request that waited for its client had got at the last look.
    var progress: (arrived: Int, written: Int)?
    /// Closes the WebSocket that the connection has become.
    private var closeUpgraded: ((WebSocketCloseCode) -> Void)?

    init(
        service: HTTPService, info: ConnectionInfo, policy: AccessPolicy, executor: EventLoopTaskExecutor,
        logger: Logger
    ) {
        self.service = service
        self.info = info
        self.policy = policy
        self.executor = executor
        self.logger = logger
        output = ResponseOutput(stallTimeout: service.limits.writeTimeout)
    }

    // MARK: Channel events

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        output.context = context
        perform(state.connected())
    }

    func channelActive(context: ChannelHandlerContext) {
        readIfWanted()
        context.fireChannelActive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        timer.cancel()
        output.fail(ChannelError.ioOnClosedChannel)
        output.context = nil
        self.context = nil
        if hasOutputQueue {
            outputQueue.clear()
            outputQueue.onOverflow = {}
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let isWaiting: Bool
        switch state.phase {
        case .responding: isWaiting = true
        case .lingering, .closed, .upgraded: return
        case .idle, .header, .body, .streaming: isWaiting = false
        }
        let part: Part
        switch unwrapInboundIn(data) {
        case .head(let received):
            let head = RequestHead(received, plan: service.plan)
            announced = (head.body, head.offersUpgrade)
            part = .head(head)
        case .body(let bytes): part = .body(bytes)
        case .end: part = .end
        }
        if isWaiting { waitingParts.append(part) } else { handle(part) }
    }

    /// The body announced by the head that the decoder has just produced.
    func takeAnnounced() -> (body: RequestFraming.Body, isLast: Bool)? {
        defer { announced = nil }
        return announced
    }

    /// The bytes of a body exceed its limits or are invalid; the decoder gets no more.
    func framingFailed(_ problem: HTTPProblem) { perform(state.parserFailed(problem)) }

    func channelReadComplete(context: ChannelHandlerContext) { readIfWanted() }

    func channelInactive(context: ChannelHandlerContext) {
        perform(state.closed())
        output.fail(ChannelError.ioOnClosedChannel)
        timer.cancel()
        context.fireChannelInactive()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case ChannelEvent.inputClosed = event { perform(state.inputClosed()) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { output.becameWritable() }
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        case HTTPParserError.headerOverflow: perform(state.parserFailed(.headersTooLarge))
        case HTTPParserError.invalidEOFState: perform(state.parserFailed(.truncated))
        case is HTTPParserError: perform(state.parserFailed(.malformed))
        case is ByteToMessageDecoderError:
            // Bytes after a malformed request. Discarded like the rest of it, so that the client can read
            // the answer.
            if state.phase != .responding, state.phase != .lingering { context.close(promise: nil) }
        default:
            logger.debug("connection failed", metadata: ["peer": "\(info.peer)", "error": "\(error)"])
            context.close(promise: nil)
        }
    }

    /// Bytes arrived that the decoder has not seen.
    /// - Returns: whether to pass them on to it.
    func bytesArrived(_ count: Int) -> Bool {
        arrived &+= count
        if state.phase == .lingering {
            discarded += count
            if discarded > HTTPLimits.lingerBytes { context?.close(promise: nil) }
            return false
        }
        if state.phase == .responding { pipelined += count }
        perform(state.bytesArrived())
        return true
    }

    /// Shutdown began: finish the running request, accept no more.
    func shutdown() {
        closeUpgraded?(.goingAway)
        perform(state.shutdown())
    }

    /// The time that a new connection has for its first request is up.
    func graceEnded() {
        if let context, !isBusy { activity?.end(now: context.eventLoop.now) }
    }

    /// Makes room for another connection.
    /// - Returns: false when a request is under way.
    func closeUnlessBusy() -> Bool {
        guard !isBusy else { return false }
        logger.debug("closed an idle connection to make room", metadata: ["peer": "\(info.peer)"])
        context?.close(promise: nil)
        return true
    }

    /// Closes the connection, also during a request.
    func abort() { context?.close(promise: nil) }

    // MARK: Requests

    private func handle(_ part: Part) {
        switch part {
        case .head(let head):
            self.head = head
            body.clear()
            perform(
                state.headArrived(
                    keepAlive: head.keepsAlive && !head.offersUpgrade && !service.isShuttingDown,
                    expectsContinue: head.expectsContinue, body: head.expectedBody, refusal: refusal(of: head)))
        case .body(var bytes):
            let action = state.bodyArrived(count: bytes.readableBytes)
            guard action == .append else { return perform(action) }
            guard let streamed else { return _ = body.writeBuffer(&bytes) }
            streamed.append(bytes)
            watchBody(streamed)
        case .end:
            perform(state.endArrived())
        }
    }

    private func refusal(of head: RequestHead) -> HTTPProblem? {
        head.problem
            ?? policy.refusal(
                of: head.request, from: info, targetHost: head.targetHost,
                hasBody: head.hasBody && !head.plan.streamsBody,
                takesQueryToken: head.plan.isWebSocket && WebSocketUpgrade.isRequested(by: head.request),
                changes: head.plan.changes)
    }

    private func perform(_ action: HTTPConnectionState.Action) {
        guard let context else { return }
        switch action {
        case .none, .append: break
        case .start(let kind): start(kind)
        case .collect(let sendContinue):
            isBusy = true
            activity?.begin()
            start(.body)
            if sendContinue { writeContinue() }
        case .dispatch:
            timer.stop()
            let collected = body
            body = ByteBuffer()
            dispatch(RequestBody(buffer: collected))
        case .stream(let sendContinue):
            isBusy = true
            activity?.begin()
            timer.stop()
            stream(sendContinue)
        case .endBody:
            timer.stop()
            streamed?.end(.success(()))
        case .failBody(let problem):
            timer.stop()
            streamed?.end(.failure(problem))
            if !state.inputOpen || state.phase == .closed { caller?.markGone() }
        case .refuse(let problem):
            timer.stop()
            refuse(problem)
        case .next:
            start(.idle)
            while state.phase != .responding, let part = waitingParts.popFirst() {
                if case .head = part { _ = state.bytesArrived() }
                handle(part)
            }
            if waitingParts.isEmpty { pipelined = 0 }
            if state.phase != .responding, waitingParts.isEmpty { perform(state.drained()) }
            readIfWanted()
        case .linger:
            waitingParts.removeAll()
            start(.linger)
            context.close(mode: .output, promise: nil)
            readIfWanted()
        case .cancel:
            caller?.markGone()
        case .close:
            context.close(promise: nil)
        }
    }

    func start(_ kind: HTTPConnectionState.Timer) {
        guard let context else { return }
        let limits = service.limits
        let delay =
            switch kind {
            case .idle: limits.idleTimeout
            case .header: limits.headerTimeout
            case .body: limits.bodyTimeout
            case .linger: limits.lingerTimeout
            }
        timer.start(after: delay, on: context.eventLoop) { [weak self] in
            guard let self else { return }
            self.perform(self.state.timerFired(kind))
        }
    }

    /// Reading goes on while a request is answered, since each pause costs two system calls. Not behind the last
    /// request of a connection: what comes may belong to another protocol.
    func readIfWanted() {
        switch state.phase {
        case .idle, .header, .body, .lingering: context?.read()
        case .streaming: if streamed?.wantsMore == true { context?.read() }
        case .responding: if !state.mustClose, pipelined < HTTPLimits.pipelinedBytes { context?.read() }
        case .upgraded, .closed: break
        }
    }

    // MARK: Answers

    func dispatch(_ body: RequestBody) {
        guard let context, let request = head?.request else { return refuse(.malformed) }
        let caller = CallerPresence()
        self.caller = caller
        if !state.inputOpen { caller.markGone() }
        let upgrade = UpgradeSlot()
        let writer = NIOLoopBound(self, eventLoop: context.eventLoop)
        let (service, info) = (service, info)
        // Unstructured: the connection outlives the read that started it, and ends the task by notifying
        // the route that its client has disconnected.
        Task(executorPreference: executor) {
            let (response, exchange) = await service.respond(
                to: request, body: body, from: info, caller: caller, upgrade: upgrade)
            await ResponseWriterTask(handler: writer).write(response, exchange, upgrade: upgrade.take())
        }
    }

    private func refuse(_ problem: HTTPProblem) {
        guard let context else { return }
        let (response, exchange) = service.refuse(problem, head: head?.request, from: info)
        begin(response, streaming: false)
        let writer = NIOLoopBound(self, eventLoop: context.eventLoop)
        Task(executorPreference: executor) {
            await ResponseWriterTask(handler: writer).writeBody(response, exchange)
        }
    }

    /// Writes the head of an answer.
    func begin(_ response: Response, streaming: Bool) {
        state.responseBegins()
        streamed?.end(.failure(ChannelError.inputClosed))
        timer.stop()
        var headers = HTTPHeaders(response.headers)
        if response.status == .switchingProtocols {
            // Has "Connection: upgrade" already.
        } else if state.mustClose || service.isShuttingDown {
            headers.replaceOrAdd(name: "connection", value: "close")
        } else if head?.version == .http1_0 {
            headers.replaceOrAdd(name: "connection", value: "keep-alive")
        }
        let status = HTTPResponseStatus(
            statusCode: response.status.code, reasonPhrase: response.status.reasonPhrase)
        output.begin(HTTPResponseHead(version: .http1_1, status: status, headers: headers), streaming: streaming)
    }

    /// An answer to HEAD has the header of the one to GET and no body.
    var isHead: Bool { head?.request.method == .head }

    /// The answer is written, or fits into the channel's buffers.
    func responseFinished() {
        head = nil
        caller = nil
        streamed = nil
        if let context, isBusy {
            isBusy = false
            activity?.end(now: context.eventLoop.now)
        }
        output.whenWritable { [weak self] in
            guard let self else { return }
            if self.service.isShuttingDown { _ = self.state.shutdown() }
            self.perform(self.state.responseFinished())
        }
    }

    /// The answer was cut off; the connection can't be used any more.
    func responseFailed() { context?.close(promise: nil) }

    /// The 101 is written: from here on the connection belongs to the WebSocket.
    /// - Parameter close: begins to close it with a code.
    func upgraded(close: @escaping (WebSocketCloseCode) -> Void) {
        state.upgradeFinished()
        timer.cancel()
        caller = nil
        closeUpgraded = close
    }

    /// Closes the connection of a peer that closed its sending side right after the request: a WebSocket has no
    /// half-closed state, gets no event for it, and would notice only by its pings. Earlier bytes are read first.
    func endUpgradedIfInputEnded(_ channel: any Channel) {
        guard !state.inputOpen else { return }
        channel.eventLoop.execute { channel.close(promise: nil) }
    }
}
