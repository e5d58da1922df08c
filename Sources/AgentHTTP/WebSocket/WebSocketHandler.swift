import AgentCore
import DequeModule
import NIOCore
import NIOHTTP1
import NIOWebSocket
import WebSockets

/// Drives ``WebSocketState`` over a channel and passes messages to one consumer, reading only as fast as it consumes
/// them. Confined to its event loop.
final class WebSocketHandler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    /// Bytes of waiting messages at which reading pauses, besides the limit on their count.
    private static let inboundBytes = 256 << 10
    private static let closeTimeout = TimeAmount.seconds(2)

    private var state: WebSocketState
    private let limits: HTTPLimits
    private var context: ChannelHandlerContext?
    private var inbound = Deque<WebSocketMessage>()
    private var inboundCount = 0
    private var ended = false
    private var reader: CheckedContinuation<WebSocketMessage?, Never>?
    private var writers: [CheckedContinuation<Void, any Error>] = []
    /// Fulfilled when the connection is closed.
    let closed = Promise<Void>()
    private var ping: Scheduled<Void>?
    private var pong: Scheduled<Void>?
    private var closing: Scheduled<Void>?

    init(role: WebSocketState.Role, maximumMessage: Int?, limits: HTTPLimits) {
        state = WebSocketState(role: role, maximumMessage: maximumMessage)
        self.limits = limits
    }

    /// Swaps the HTTP handlers of a connection, whose 101 is written, for WebSocket ones.
    static func start(
        replacing http: HTTPConnectionHandler, limits: HTTPLimits, maximumMessage: Int?
    ) throws -> WebSocket {
        guard let context = http.context else { throw ChannelError.ioOnClosedChannel }
        let pipeline = context.pipeline.syncOperations
        let handler = WebSocketHandler(role: .server, maximumMessage: maximumMessage, limits: limits)
        let encoder = try pipeline.context(handlerType: HTTPResponseEncoder.self)
        let decoder = try pipeline.context(handlerType: ByteToMessageHandler<HTTPRequestDecoder>.self)
        http.upgraded { handler.close($0) }
        try pipeline.addHandlers([
            WebSocketFrameEncoder(),
            ByteToMessageHandler(WebSocketFrameDecoder(maxFrameSize: maximumMessage ?? Int(UInt32.max))),
            handler,
        ])
        pipeline.removeHandler(context: context, promise: nil)
        pipeline.removeHandler(context: encoder, promise: nil)
        // Last, since it passes on the bytes that came behind the request.
        pipeline.removeHandler(context: decoder, promise: nil)
        http.endUpgradedIfInputEnded(context.channel)
        return WebSocket(handler: NIOLoopBound(handler, eventLoop: context.eventLoop), loop: context.eventLoop)
    }

    // MARK: Channel events

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        schedulePing(after: limits.webSocketPingInterval)
        context.read()
    }

    func handlerRemoved(context: ChannelHandlerContext) { finish() }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        perform(state.received(unwrapInboundIn(data)))
    }

    func channelReadComplete(context: ChannelHandlerContext) { readIfWanted() }

    func channelInactive(context: ChannelHandlerContext) {
        state.transportClosed()
        finish()
        context.fireChannelInactive()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // A WebSocket has no half-closed state.
        if case ChannelEvent.inputClosed = event { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable {
            let waiting = writers
            writers = []
            for writer in waiting { writer.resume() }
            readIfWanted()
        }
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? NIOWebSocketError {
            perform(state.decoderFailed(error))
        } else {
            context.close(promise: nil)
        }
    }

    // MARK: For the consumer

    func next(_ continuation: CheckedContinuation<WebSocketMessage?, Never>, isCancelled: () -> Bool) {
        if isCancelled() {
            continuation.resume(returning: nil)
        } else if let message = inbound.popFirst() {
            inboundCount -= message.byteCount
            continuation.resume(returning: message)
            readIfWanted()
        } else if ended || reader != nil {
            continuation.resume(returning: nil)
        } else {
            reader = continuation
        }
    }

    func cancelNext() {
        reader?.resume(returning: nil)
        reader = nil
    }

    /// - Returns: whether more may be sent at once.
    func send(_ opcode: WebSocketOpcode, _ data: ByteBuffer) throws -> Bool {
        guard let context, state.isOpen, context.channel.isActive else { throw ChannelError.ioOnClosedChannel }
        write(opcode, data)
        return context.channel.isWritable
    }

    func waitWritable(_ continuation: CheckedContinuation<Void, any Error>) {
        guard let context, context.channel.isActive else {
            return continuation.resume(throwing: ChannelError.ioOnClosedChannel)
        }
        if context.channel.isWritable { continuation.resume() } else { writers.append(continuation) }
    }

    func close(_ code: WebSocketCloseCode, reason: String = "") { perform(state.close(code, reason)) }

    // MARK: Actions

    private func perform(_ action: WebSocketState.Action) {
        guard let context else { return }
        switch action {
        case .none: break
        case .deliver(let message): deliver(message)
        case .sendPong(let data): write(.pong, data)
        case .sendPing: write(.ping, ByteBuffer())
        case .sendClose(let code, let reason):
            writeClose(code, reason)
            endDelivery()
            closing = context.eventLoop.assumeIsolated().scheduleTask(in: Self.closeTimeout) { [weak self] in
                guard let self else { return }
                self.perform(self.state.closeTimedOut())
            }
            context.read()
        case .answerCloseAndEnd(let code):
            writeClose(code, "")
            context.close(promise: nil)
        case .end: context.close(promise: nil)
        }
    }

    private func deliver(_ message: WebSocketMessage) {
        if let reader {
            self.reader = nil
            reader.resume(returning: message)
        } else {
            inbound.append(message)
            inboundCount += message.byteCount
        }
    }

    // A peer that does not read our pongs is not read either: the pongs would pile up.
    private var wantsMore: Bool {
        guard context?.channel.isWritable ?? false else { return false }
        return !state.isOpen
            || (inbound.count < HTTPLimits.webSocketInboundMessages && inboundCount < Self.inboundBytes)
    }

    private func readIfWanted() { if wantsMore { context?.read() } }

    private func write(_ opcode: WebSocketOpcode, _ data: ByteBuffer) {
        guard let context else { return }
        var mask: WebSocketMaskingKey?
        if state.role == .client { mask = .random() }
        let frame = WebSocketFrame(fin: true, opcode: opcode, maskKey: mask, data: data)
        context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
    }

    private func writeClose(_ code: WebSocketCloseCode, _ reason: String) {
        var data = ByteBuffer(integer: code.value)
        // A control frame holds at most 125 bytes.
        data.writeString(String(reason.prefix(100)))
        write(.connectionClose, data)
    }

    /// Never sends a second ping before the first is answered: the check of the first would take the second for
    /// unanswered.
    private func schedulePing(after delay: TimeAmount) {
        guard let context else { return }
        ping = context.eventLoop.assumeIsolated().scheduleTask(in: delay) { [weak self] in
            guard let self else { return }
            self.perform(self.state.pingDue())
            self.schedulePongCheck()
        }
    }

    private func schedulePongCheck() {
        guard let context else { return }
        pong = context.eventLoop.assumeIsolated().scheduleTask(in: limits.webSocketPongTimeout) { [weak self] in
            guard let self else { return }
            self.perform(self.state.pongDue(reading: self.wantsMore))
            self.schedulePing(after: max(.zero, self.limits.webSocketPingInterval - self.limits.webSocketPongTimeout))
        }
    }

    private func endDelivery() {
        ended = true
        if inbound.isEmpty {
            reader?.resume(returning: nil)
            reader = nil
        }
    }

    private func finish() {
        endDelivery()
        for timer in [ping, pong, closing] { timer?.cancel() }
        for writer in writers { writer.resume(throwing: ChannelError.ioOnClosedChannel) }
        writers = []
        context = nil
        closed.fulfill()
    }
}
