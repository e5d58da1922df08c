import NIOCore

/// The times of a WebSocket that carries a byte stream (docs/contracts/websockets.md#as-a-byte-stream).
public struct WebSocketTimes: Sendable {
    /// Between two pings of ours.
    public var pingInterval: TimeAmount
    /// From a ping to its pong, while we read; then the connection is dropped.
    public var pongTimeout: TimeAmount
    /// From our close frame to the peer's; then the connection is closed.
    public var closeTimeout: TimeAmount

    public init(pingInterval: TimeAmount, pongTimeout: TimeAmount, closeTimeout: TimeAmount = .seconds(2)) {
        self.pingInterval = pingInterval
        self.pongTimeout = pongTimeout
        self.closeTimeout = closeTimeout
    }

    /// The agent's.
    public static let client = WebSocketTimes(pingInterval: .seconds(15), pongTimeout: .seconds(15))
    /// The control plane's.
    public static let server = WebSocketTimes(pingInterval: .seconds(15), pongTimeout: .seconds(30))
}

/// Turns a WebSocket whose opening handshake is done into a byte stream: later handlers read and write `ByteBuffer`s;
/// message boundaries have no meaning.
///
/// - Reading: payload is passed on as it arrives, so memory is bounded by one read of the socket, and back-pressure (no
///   `read()` by later handlers) reaches the peer.
/// - Writing: what is written between two flushes shares frames of up to ``WebSocketLimits/frameBytes``.
/// - A regular close (1000, or no code) is only `channelInactive`; any other end first fires ``WebSocketError`` as an
///   error. `close()` of a later handler does the closing handshake with 1000, the outbound event ``WebSocketClose``
///   with another code.
/// - A peer that does not answer our pings is dropped; a client gets close code 1001.
public final class WebSocketByteStream: ChannelDuplexHandler {
    public typealias InboundIn = ByteBuffer
    public typealias InboundOut = ByteBuffer
    public typealias OutboundIn = ByteBuffer
    public typealias OutboundOut = ByteBuffer

    private let role: WebSocketRole
    private let times: WebSocketTimes
    private let makeMask: () -> UInt32
    private var state = ByteStreamState()
    private var reader: WebSocketFrameReader
    private var writer: WebSocketFrameWriter
    private var keepalive: Keepalive?
    private var context: ChannelHandlerContext?
    private var timer: Scheduled<Void>?
    private var closing: Scheduled<Void>?
    /// The answer to the last ping while our output is full: a newer one replaces it (RFC 6455
    /// section 5.5.3), so a peer that pings and does not read costs no memory.
    private var pendingPong: ByteBuffer?
    private var promises: [EventLoopPromise<Void>] = []
    private var closeReason = ""
    /// A later handler has called `read()`, and no data has been delivered since.
    private var wantsData = false
    private var inBatch = false
    private var delivered = false
    /// After a protocol violation frame boundaries are unknown.
    private var isBroken = false

    /// - Parameter makeMask: a new random masking key; only tests pass one.
    public init(
        role: WebSocketRole, times: WebSocketTimes? = nil,
        makeMask: @escaping () -> UInt32 = { .random(in: 0 ... .max) }
    ) {
        self.role = role
        self.times = times ?? (role == .client ? .client : .server)
        self.makeMask = makeMask
        reader = WebSocketFrameReader(role: role)
        writer = WebSocketFrameWriter(masks: role == .client)
    }

    // MARK: Lifecycle

    public func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        keepalive = Keepalive(
            interval: times.pingInterval, timeout: times.pongTimeout, now: context.eventLoop.now)
        schedule(times.pingInterval)
    }

    public func handlerRemoved(context: ChannelHandlerContext) { finish() }

    public func channelInactive(context: ChannelHandlerContext) {
        if let error = state.transportClosed() { context.fireErrorCaught(error) }
        finish()
        context.fireChannelInactive()
    }

    private func finish() {
        timer?.cancel()
        closing?.cancel()
        let waiting = promises
        promises = []
        writer = WebSocketFrameWriter(masks: role == .client)
        for promise in waiting { promise.fail(ChannelError.ioOnClosedChannel) }
        context = nil
    }

    public func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // After the close frames an error of the transport is irrelevant.
        if state.isReading { context.fireErrorCaught(error) }
    }

    public func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // A WebSocket has no half-closed state.
        if case ChannelEvent.inputClosed = event { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    // MARK: Reading

    public func read(context: ChannelHandlerContext) {
        wantsData = true
        keepalive?.reading(true, now: context.eventLoop.now)
        context.read()
    }

    public func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if !inBatch {
            inBatch = true
            delivered = false
            keepalive?.reading(false, now: context.eventLoop.now)
        }
        var input = unwrapInboundIn(data)
        do {
            while state.isReading, !isBroken, self.context != nil, let event = try reader.next(&input) {
                perform(state.received(event), context)
                if case .pong = event { keepalive?.pong() }
            }
        } catch {
            isBroken = true
            perform(state.failed(error), context)
        }
    }

    public func channelReadComplete(context: ChannelHandlerContext) {
        inBatch = false
        if delivered { wantsData = false }
        context.fireChannelReadComplete()
        // Control frames do not satisfy a read, and we wait for the peer's close frame even without a read.
        if self.context != nil, !delivered && wantsData || !state.isOpen { read(context: context) }
        delivered = false
    }

    // MARK: Writing

    public func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard state.isOpen else {
            promise?.fail(ChannelError.ioOnClosedChannel)
            return
        }
        writer.append(unwrapOutboundIn(data))
        if let promise { promises.append(promise) }
        // Written now, so that the channel's own water marks apply.
        if writer.isFull { emit(context) }
    }

    public func flush(context: ChannelHandlerContext) {
        emit(context)
        context.flush()
    }

    private func emit(_ context: ChannelHandlerContext) {
        let waiting = promises
        promises = []
        var last: EventLoopPromise<Void>?
        if let first = waiting.first {
            last = first
            for promise in waiting.dropFirst() { first.futureResult.cascade(to: promise) }
        }
        while let buffer = writer.next(mask: makeMask) {
            context.write(wrapOutboundOut(buffer), promise: writer.isEmpty ? last : nil)
            if writer.isEmpty { last = nil }
        }
        // Only empty buffers were written: done when all before them is.
        if let last { context.write(wrapOutboundOut(ByteBuffer()), promise: last) }
    }

    public func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable, let pong = pendingPong {
            pendingPong = nil
            if state.isOpen { send(.pong, pong, context) }
        }
        context.fireChannelWritabilityChanged()
    }

    private func send(_ opcode: WebSocketFrameHeader.Opcode, _ payload: ByteBuffer, _ context: ChannelHandlerContext) {
        emit(context)
        context.writeAndFlush(
            wrapOutboundOut(WebSocketFrameWriter.control(opcode, payload, mask: role == .client ? makeMask() : nil)),
            promise: nil)
    }

    private func sendClose(_ code: WebSocketCloseCode?, _ reason: String, _ context: ChannelHandlerContext) {
        send(.close, code?.payload(reason: reason) ?? ByteBuffer(), context)
    }

    // MARK: Closing

    public func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard mode == .all else {
            promise?.fail(ChannelError.operationUnsupported)
            return
        }
        guard context.channel.isActive, state.isReading else {
            context.close(promise: promise)
            return
        }
        if let promise { context.channel.closeFuture.cascade(to: promise) }
        perform(state.close(), context)
    }

    public func triggerUserOutboundEvent(
        context: ChannelHandlerContext, event: Any, promise: EventLoopPromise<Void>?
    ) {
        guard let wish = event as? WebSocketClose else {
            return context.triggerUserOutboundEvent(event, promise: promise)
        }
        promise?.succeed()
        guard context.channel.isActive, state.isReading else { return context.close(promise: nil) }
        closeReason = wish.reason
        perform(state.close(wish.code), context)
    }

    private func perform(_ action: ByteStreamState.Action, _ context: ChannelHandlerContext) {
        switch action {
        case .none: break
        case .deliver(let bytes):
            delivered = true
            if reader.isInsideData { keepalive?.dataCame() }
            context.fireChannelRead(wrapInboundOut(bytes))
        case .sendPong(let payload):
            if context.channel.isWritable { send(.pong, payload, context) } else { pendingPong = payload }
        case .sendClose(let code, let error):
            sendClose(code, error?.message ?? closeReason, context)
            timer?.cancel()
            closing = context.eventLoop.assumeIsolated().scheduleTask(in: times.closeTimeout) { [weak self] in
                guard let self, let context = self.context else { return }
                self.perform(self.state.closeTimedOut(), context)
            }
            if let error { context.fireErrorCaught(error) }
            if !inBatch, self.context != nil { read(context: context) }
        case .echoCloseAndEnd(let code, let error):
            sendClose(code, "", context)
            end(context, error)
        case .end(let error): end(context, error)
        }
    }

    private func end(_ context: ChannelHandlerContext, _ error: WebSocketError?) {
        if let error { context.fireErrorCaught(error) }
        context.close(promise: nil)
    }

    // MARK: Keepalive

    private func schedule(_ delay: TimeAmount) {
        guard let context, state.isOpen else { return }
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: delay) { [weak self] in
            guard let self, let context = self.context, self.state.isOpen,
                let (action, next) = self.keepalive?.timerFired(
                    now: context.eventLoop.now, insideData: self.reader.isInsideData)
            else { return }
            self.writer.shrink()
            self.reader.shrink()
            switch action {
            case .none: break
            case .ping: self.send(.ping, ByteBuffer(), context)
            case .gone:
                let seconds = self.times.pongTimeout.nanoseconds / 1_000_000_000
                if self.role == .server { self.sendClose(.goingAway, "no pong", context) }
                let error = WebSocketError(.noPong, "the peer answered no ping for \(seconds) s")
                return self.perform(self.state.peerGone(error), context)
            }
            self.schedule(next)
        }
    }
}

/// An outbound event that closes a ``WebSocketByteStream`` with this code, after everything that was written before. Its
/// promise succeeds immediately; the channel closes later.
public struct WebSocketClose: Sendable {
    public var code: WebSocketCloseCode
    /// At most ``WebSocketLimits/reasonBytes``; more is cut.
    public var reason: String

    public init(_ code: WebSocketCloseCode, reason: String = "") {
        self.code = code
        self.reason = reason
    }
}

@available(*, unavailable)
extension WebSocketByteStream: Sendable {}
