import NIOCore

/// Drives a ``YamuxSession`` at the end of a pipeline that carries bytes, and gives each stream a
/// channel of its own. Use ``YamuxMultiplexer`` from other threads.
///
/// The transport is read without pause: what comes for a stream whose reader is slow waits in that
/// stream's channel, which is bounded by its window.
public final class YamuxHandler: ChannelDuplexHandler {
    public typealias InboundIn = ByteBuffer
    public typealias OutboundIn = Never
    public typealias OutboundOut = ByteBuffer

    /// Times of a session. The defaults are the reference's.
    public struct Timing: Sendable {
        public var keepAliveInterval = YamuxLimits.keepAliveInterval
        public var pingTimeout = YamuxLimits.pingTimeout
        public var closeTimeout = YamuxLimits.closeTimeout
        public init() {}
    }

    /// Sets up the channel of a stream that the other side opened. The stream is accepted when the
    /// future succeeds, and reset when it fails.
    public typealias InboundStreamInitializer = @Sendable (any Channel) -> EventLoopFuture<Void>

    public let counters = YamuxCounters()
    /// Completes with the reason once the session is over.
    let ended: EventLoopPromise<YamuxError>
    private(set) var session: YamuxSession
    private var decoder = YamuxDecoder()
    private let timing: Timing
    private let inboundStreamInitializer: InboundStreamInitializer?
    private var context: ChannelHandlerContext?
    private var children: [UInt32: YamuxStreamChannel] = [:]
    /// Channels of ours whose initializers run; they have no id yet.
    private var opening = 0
    /// Children that got bytes during the running read.
    private var touched: [YamuxStreamChannel] = []
    private var out = ByteBuffer()
    private var isReading = false
    private var isPerforming = false
    private var isPumping = false
    private var pumpScheduled = false
    private var readWanted = false
    private var stalledHeaderBytes = 0
    /// The transport's writability that the children know.
    private(set) var transportIsWritable = true
    private var keepAlive: Scheduled<Void>?
    private var pingDeadline: Scheduled<Void>?
    private var closeTimer: Scheduled<Void>?
    private var drainDeadline: Scheduled<Void>?
    private var isDraining = false
    private var isOver = false

    /// - Parameter inboundStreamInitializer: nil resets all streams that the other side opens.
    public init(
        role: YamuxSession.Role, eventLoop: any EventLoop, timing: Timing = Timing(),
        inboundStreamInitializer: InboundStreamInitializer? = nil
    ) {
        session = YamuxSession(role: role, closeTimeout: timing.closeTimeout)
        self.timing = timing
        self.inboundStreamInitializer = inboundStreamInitializer
        ended = eventLoop.makePromise(of: YamuxError.self)
    }

    public func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        transportIsWritable = context.channel.isWritable
        if context.channel.isActive { scheduleKeepAlive() }
    }

    public func handlerRemoved(context: ChannelHandlerContext) {
        finish(YamuxError(.closed, "the session's handler was removed"))
        self.context = nil
    }

    public func channelActive(context: ChannelHandlerContext) {
        scheduleKeepAlive()
        context.fireChannelActive()
    }

    public func channelInactive(context: ChannelHandlerContext) {
        finish(YamuxError(.transportClosed, "the transport was closed"))
        context.fireChannelInactive()
    }

    public func errorCaught(context: ChannelHandlerContext, error: any Error) {
        finish(YamuxError(.transportClosed, "the transport failed", cause: error))
    }

    // MARK: Reading

    public func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        isReading = true
        var buffer = unwrapInboundIn(data)
        do throws(YamuxError) {
            while !isOver, let element = try decoder.next(from: &buffer) {
                session.receive(element)
                perform()
            }
        } catch {
            finish(error)
        }
    }

    public func channelReadComplete(context: ChannelHandlerContext) {
        // A child that reads on may get more bytes that came meanwhile.
        while !touched.isEmpty {
            let readers = touched
            touched.removeAll(keepingCapacity: true)
            for child in readers { child.readComplete() }
        }
        isReading = false
        pump()
        context.fireChannelReadComplete()
    }

    public func read(context: ChannelHandlerContext) {
        if stalledHeaderBytes < YamuxLimits.stalledHeaderBytes { context.read() } else { readWanted = true }
    }

    public func channelWritabilityChanged(context: ChannelHandlerContext) {
        if !isPumping { pump() }
        context.fireChannelWritabilityChanged()
    }

    // MARK: Actions

    private func perform() {
        guard !isPerforming else { return }
        isPerforming = true
        while let action = session.nextAction() { perform(action) }
        isPerforming = false
        counters.note(session)
        if isDraining, !isOver, session.openStreams == 0 { finish(YamuxError(.closed, "the session was closed")) }
    }

    private func perform(_ action: YamuxSession.Action) {
        switch action {
        case .send(let header):
            header.write(into: &out)
            if context?.channel.isWritable != true { stalledHeaderBytes += YamuxHeader.byteCount }
        case .sendData(let header, let payload):
            header.write(into: &out)
            if payload.readableBytes <= YamuxLimits.copiedPayloadBytes {
                out.writeImmutableBuffer(payload)
            } else {
                writeOut()
                context?.write(wrapOutboundOut(payload), promise: nil)
            }
            children[header.stream]?.sent(payload.readableBytes)
        case .opened(let id): initialize(id)
        case .deliver(let id, let data): children[id]?.receive(data)
        case .inputEnded(let id): children[id]?.receiveEnd()
        case .outputEnded(let id): children[id]?.outputEnded()
        case .windowOpened(let id): children[id]?.updateWritability()
        case .reset(let id):
            counters.noteReset()
            children[id]?.fail(YamuxError(.reset, "stream \(id) was reset"))
        case .lingers(let deadline): armCloseTimer(deadline)
        case .pong:
            pingDeadline?.cancel()
            pingDeadline = nil
        case .forgotten, .goingAway: break
        case .end(let error): sessionEnded(error)
        }
    }

    private func writeOut() {
        guard out.readableBytes > 0 else { return }
        let bytes = out
        out = ByteBuffer()
        context?.write(wrapOutboundOut(bytes), promise: nil)
    }

    /// Performs the actions of an event; the bytes are sent together with those of other events.
    func advance() {
        perform()
        guard !isReading, !pumpScheduled, !isPumping, let context, !isOver else { return }
        guard out.readableBytes > 0 || session.hasData && context.channel.isWritable else { return }
        pumpScheduled = true
        context.eventLoop.assumeIsolated().execute {
            self.pumpScheduled = false
            self.pump()
        }
    }

    /// Sends what is due, and data as long as the transport takes any.
    private func pump() {
        guard let context, !isPumping, !isOver else { return }
        isPumping = true
        perform()
        var budget = YamuxLimits.bytesInARow
        repeat {
            var batch = 0
            while !isOver, batch < YamuxLimits.batchBytes, context.channel.isWritable {
                let count = session.transmit()
                perform()
                guard count > 0 else { break }
                batch += count
            }
            budget -= batch
            writeOut()
            context.flush()
        } while !isOver && budget > 0 && session.hasData && context.channel.isWritable
        isPumping = false
        noteTransportWritability()
        // Continues after other connections had their turn, also with what the flush caused.
        advance()
    }

    private func noteTransportWritability() {
        guard let context, !isOver else { return }
        if context.channel.isWritable {
            stalledHeaderBytes = 0
            if readWanted {
                readWanted = false
                context.read()
            }
        }
        guard context.channel.isWritable != transportIsWritable else { return }
        transportIsWritable.toggle()
        for child in children.values { child.updateWritability() }
    }

    // MARK: Streams

    /// Opens a stream. The initializer sets its channel up; its result is this future's.
    public func openStream<Output: Sendable>(
        _ initializer: @escaping @Sendable (any Channel) -> EventLoopFuture<Output>
    ) -> EventLoopFuture<Output> {
        let loop = ended.futureResult.eventLoop
        do throws(YamuxError) {
            try checkOpen()
        } catch {
            return loop.makeFailedFuture(error)
        }
        guard let context, context.channel.isActive else {
            return loop.makeFailedFuture(YamuxError(.closed, "the session has no transport yet"))
        }
        let child = YamuxStreamChannel(handler: self, parent: context.channel)
        let promise = loop.makePromise(of: Output.self)
        opening += 1
        initializer(child).hop(to: loop).assumeIsolated().whenComplete { result in
            self.opening -= 1
            switch result {
            case .success(let output):
                do {
                    guard !child.isClosed else { throw ChannelError.alreadyClosed }
                    try self.checkOpen()
                    let id = try self.session.open()
                    self.children[id] = child
                    self.counters.noteOpened()
                    child.activate(id)
                    promise.succeed(output)
                    self.advance()
                } catch {
                    child.fail(error)
                    promise.fail(error)
                }
            case .failure(let error):
                child.fail(error)
                promise.fail(error)
            }
        }
        return promise.futureResult
    }

    private func checkOpen() throws(YamuxError) {
        try session.checkOpen()
        guard opening + session.openStreams < YamuxLimits.streams else {
            throw YamuxError(.limit, "\(YamuxLimits.streams) streams are open on this session already")
        }
        guard stalledHeaderBytes < YamuxLimits.stalledHeaderBytes else {
            throw YamuxError(.limit, "the transport takes no bytes; no stream can be opened now")
        }
    }

    private func initialize(_ id: UInt32) {
        guard let context, let initializer = inboundStreamInitializer else { return session.reset(id) }
        counters.noteOpened()
        let child = YamuxStreamChannel(handler: self, parent: context.channel, id: id)
        children[id] = child
        initializer(child).hop(to: context.eventLoop).assumeIsolated().whenComplete { result in
            guard !child.isClosed else { return }
            switch result {
            case .success:
                guard self.session.accept(id) else { return }
                child.activate(id)
            case .failure(let error):
                self.session.reset(id)
                child.fail(error)
            }
            self.advance()
        }
    }

    // Requests of a child. Each is followed by ``advance()``.

    func write(_ data: ByteBuffer, _ id: UInt32) { session.write(data, stream: id) }
    func finishOutput(_ id: UInt32) { session.finish(id) }
    func consumed(_ count: Int, _ id: UInt32) { session.consumed(count, stream: id) }

    func reset(_ id: UInt32) { session.reset(id) }

    /// Whether all that was written is sent.
    func close(_ id: UInt32) -> Bool {
        guard let context else { return false }
        return session.close(id, now: context.eventLoop.now)
    }

    func gone(_ id: UInt32) { children[id] = nil }
    func touch(_ child: YamuxStreamChannel) { touched.append(child) }
    var isInRead: Bool { isReading }

    // MARK: Time

    private func scheduleKeepAlive() {
        guard let context, !isOver, keepAlive == nil else { return }
        keepAlive = context.eventLoop.assumeIsolated().scheduleTask(in: timing.keepAliveInterval) {
            self.keepAlive = nil
            self.sendPing()
            self.scheduleKeepAlive()
        }
    }

    private func sendPing() {
        guard let context, let value = session.ping() else { return }
        pingDeadline = context.eventLoop.assumeIsolated().scheduleTask(in: timing.pingTimeout) {
            self.pingDeadline = nil
            self.session.pingTimedOut(value)
            self.perform()
        }
        perform()
        pump()
    }

    private func armCloseTimer(_ deadline: NIODeadline) {
        guard let context, closeTimer == nil else { return }
        closeTimer = context.eventLoop.assumeIsolated().scheduleTask(deadline: deadline) {
            self.closeTimer = nil
            guard let context = self.context else { return }
            if let next = self.session.expire(now: context.eventLoop.now) { self.armCloseTimer(next) }
            self.advance()
        }
    }

    // MARK: Ends

    /// Takes no new streams (GoAway), and closes the transport when no stream is open any more or the
    /// time is over.
    public func close(draining time: TimeAmount = .zero) {
        guard let context, !isOver else { return }
        session.goAway()
        isDraining = true
        perform()
        guard !isOver else { return }
        if time <= .zero { return finish(YamuxError(.closed, "the session was closed")) }
        pump()
        drainDeadline = context.eventLoop.assumeIsolated().scheduleTask(in: time) {
            self.finish(YamuxError(.closed, "the session was closed while streams were open"))
        }
    }

    private func finish(_ error: YamuxError) {
        session.end(error)
        // May be called within an action; then the end is performed after it.
        perform()
    }

    private func sessionEnded(_ error: YamuxError) {
        guard !isOver else { return }
        isOver = true
        for timer in [keepAlive, pingDeadline, closeTimer, drainDeadline] { timer?.cancel() }
        (keepAlive, pingDeadline, closeTimer, drainDeadline) = (nil, nil, nil, nil)
        let orphans = children
        children = [:]
        for child in orphans.values { child.fail(error) }
        counters.note(session)
        ended.succeed(error)
        closeTransport()
    }

    /// Closes the transport after the last bytes are sent, or after ``YamuxLimits/farewellTimeout``.
    private func closeTransport() {
        guard let context, context.channel.isActive else { return }
        guard out.readableBytes > 0 else { return context.close(promise: nil) }
        let written = context.eventLoop.makePromise(of: Void.self)
        let deadline = context.eventLoop.assumeIsolated().scheduleTask(in: YamuxLimits.farewellTimeout) {
            self.context?.close(promise: nil)
        }
        written.futureResult.assumeIsolated().whenComplete { _ in
            deadline.cancel()
            self.context?.close(promise: nil)
        }
        let bytes = out
        out = ByteBuffer()
        context.writeAndFlush(wrapOutboundOut(bytes), promise: written)
    }
}
