import AgentCore
import CPlatform
import DequeModule
import NIOCore
import NIOHTTP1
import NIOWebSocket
import WebSockets

/// Drives ``WebSocketState`` over a channel and passes messages to one consumer, reading only as fast as it consumes
/// them. Confined to its event loop.
final class WebSocketHandler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = ByteBuffer

    /// Bytes of waiting messages at which reading pauses, besides the limit on their count.
    private static let inboundBytes = 256 << 10
    private static let closeTimeout = TimeAmount.seconds(2)

    private var state: WebSocketState
    private let limits: HTTPLimits
    private let queue: OutputQueues.Queue
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
    /// Bytes handed to the channel.
    private var written = 0
    private var progress = PeerProgress()

    init(maximumMessage: Int?, limits: HTTPLimits, queue: OutputQueues.Queue) {
        state = WebSocketState(role: .server, maximumMessage: maximumMessage)
        (self.limits, self.queue) = (limits, queue)
    }

    /// Swaps the HTTP handlers of a connection, whose 101 is written, for WebSocket ones.
    static func start(
        replacing http: HTTPConnectionHandler, limits: HTTPLimits, maximumMessage: Int?, queues: OutputQueues
    ) throws -> WebSocket {
        guard let context = http.context else { throw ChannelError.ioOnClosedChannel }
        let pipeline = context.pipeline.syncOperations
        let queue = queues.make()
        let handler = WebSocketHandler(maximumMessage: maximumMessage, limits: limits, queue: queue)
        let bound = NIOLoopBound(handler, eventLoop: context.eventLoop)
        queue.onOverflow = { [loop = context.eventLoop] in loop.execute { bound.value.overflowed() } }
        let encoder = try pipeline.context(handlerType: HTTPResponseEncoder.self)
        let decoder = try pipeline.context(handlerType: ByteToMessageHandler<HTTPRequestDecoder>.self)
        http.upgraded { handler.close($0) }
        try pipeline.addHandlers([
            ByteToMessageHandler(WebSocketFrameDecoder(maxFrameSize: maximumMessage ?? Int(UInt32.max))),
            handler,
        ])
        pipeline.removeHandler(context: context, promise: nil)
        pipeline.removeHandler(context: encoder, promise: nil)
        // Last, since it passes on the bytes that came behind the request.
        pipeline.removeHandler(context: decoder, promise: nil)
        http.endUpgradedIfInputEnded(context.channel)
        return WebSocket(handler: bound, loop: context.eventLoop)
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
            queue.clear()
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

    /// - Parameter parts: of the message, one after the other.
    /// - Returns: whether more may be sent at once.
    func send(_ opcode: WebSocketFrameHeader.Opcode, _ parts: [ByteBuffer]) throws -> Bool {
        guard let context, state.isOpen, context.channel.isActive else { throw ChannelError.ioOnClosedChannel }
        write(opcode, parts)
        if context.channel.isWritable { return true }
        queue.add(parts)
        return false
    }

    /// All connections together have queued too much, and this one's client has not read for the longest time.
    private func overflowed() { context?.close(promise: nil) }

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
        case .sendPong(let data): write(.pong, [data])
        case .sendPing: write(.ping, [])
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

    private func readIfWanted() { if wantsMore { context?.read() } else { progress.paused() } }

    private func write(_ opcode: WebSocketFrameHeader.Opcode, _ parts: [ByteBuffer]) {
        guard let context else { return }
        let length = parts.reduce(0) { $0 + $1.readableBytes }
        var header = ByteBuffer()
        WebSocketFrameHeader(opcode: opcode, mask: nil, length: length).write(into: &header)
        written += header.readableBytes + length
        context.write(wrapOutboundOut(header), promise: nil)
        for part in parts { context.write(wrapOutboundOut(part), promise: nil) }
        context.flush()
    }

    private func writeClose(_ code: WebSocketCloseCode, _ reason: String) {
        write(.close, [code.payload(reason: reason)])
    }

    /// Never sends a second ping before the first is answered: the check of the first would take the second for
    /// unanswered.
    private func schedulePing(after delay: TimeAmount) {
        guard let context else { return }
        ping = context.eventLoop.assumeIsolated().scheduleTask(in: delay) { [weak self] in
            guard let self else { return }
            self.perform(self.state.pingDue())
            self.progress.pinged(isReading: self.wantsMore, written: self.written, unsent: self.unsent)
            self.schedulePongCheck()
        }
    }

    private func schedulePongCheck() {
        guard let context else { return }
        pong = context.eventLoop.assumeIsolated().scheduleTask(in: limits.webSocketPongTimeout) { [weak self] in
            guard let self else { return }
            self.perform(
                self.state.pongDue(isSilent: self.progress.isSilent(written: self.written, unsent: self.unsent)))
            self.schedulePing(after: max(.zero, self.limits.webSocketPingInterval - self.limits.webSocketPongTimeout))
        }
    }

    /// Bytes of ``written`` that the peer has not got.
    private var unsent: Int {
        guard let context else { return 0 }
        let queued = try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)
        let sent = try? context.pipeline.syncOperations.withUnsafeTransportIfAvailable { (socket: CInt) in
            wa_unsent_bytes(socket)
        }
        return (queued ?? 0) + Int(max(0, sent ?? 0))
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
        queue.clear()
        queue.onOverflow = {}
        for writer in writers { writer.resume(throwing: ChannelError.ioOnClosedChannel) }
        writers = []
        context = nil
        closed.fulfill()
    }
}
