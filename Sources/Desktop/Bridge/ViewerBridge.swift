import AgentCore
import AgentHTTP
import Glibc
import Logging
import NIOCore
import NIOPosix

/// Forwards the bytes of one viewer to the VNC server and back.
///
/// Its two channels are on one event loop; neither is read while the other is not writable, so that a viewer that
/// does not read stalls only its own connection.
final class ViewerBridge {
    struct Context: Sendable {
        var desktop: RunningDesktop
        var hub: ViewerHub
        var metrics: DesktopMetrics
        var executor: any TaskExecutor
        var logger: Logger
    }

    private enum Phase {
        case connecting
        case open
        /// One side has ended; the last bytes to the other are being sent.
        case ending
        case ended
    }

    private let context: Context
    private var inspector = RFBClientInspector()
    private var phase = Phase.connecting
    private weak var viewer: ViewerSide?
    private var server: ServerSide?
    /// What the viewer sent before the server was connected; nothing more is read meanwhile.
    private var early: [ByteBuffer] = []
    private var leaveTimer: Scheduled<Void>?
    private var isCounted = false
    /// Whether the driver knows that the viewer holds a button.
    private var holds = false

    private init(_ context: Context) { self.context = context }

    /// Adds the bridge to the channel of a WebSocket that carries a byte stream. On its event loop.
    static func install(_ context: Context, on channel: any Channel) throws {
        let bridge = ViewerBridge(context)
        let side = ViewerSide(bridge)
        bridge.viewer = side
        let options = channel.syncOptions
        try options?.setOption(.writeBufferWaterMark, value: marks)
        if channel.localAddress?.port != nil { try options?.setOption(.tcpOption(.tcp_nodelay), value: 1) }
        try channel.pipeline.syncOperations.addHandler(side)
        context.hub.came()
        context.desktop.driver.viewerCame()
        context.metrics.viewers.add(1)
        bridge.isCounted = true
        bridge.connect(channel.eventLoop, until: .now() + TimeAmount(SessionLimits.viewerConnect))
    }

    private static let marks = ChannelOptions.Types.WriteBufferWaterMark(
        low: SessionLimits.viewerBufferBytes / 4, high: SessionLimits.viewerBufferBytes)

    private func connect(_ loop: any EventLoop, until deadline: NIODeadline) {
        let side = ServerSide(self)
        server = side
        let bound = NIOLoopBound(side, eventLoop: loop)
        let bootstrap = ClientBootstrap(group: loop)
            .channelOption(.autoRead, value: false)
            .channelOption(.writeBufferWaterMark, value: Self.marks)
            .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 64 << 10))
            .connectTimeout(TimeAmount(SessionLimits.viewerConnect))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(bound.value)
                }
            }
        let connecting =
            switch context.desktop.endpoint {
            case .unix(let path): bootstrap.connect(unixDomainSocketPath: path)
            case .tcp(let host, let port): bootstrap.connect(host: host, port: port)
            }
        connecting.assumeIsolated().whenComplete { [self] result in
            switch result {
            case .success(let channel):
                guard phase == .connecting else { return channel.close(promise: nil) }
                phase = .open
                for bytes in early { fromViewer(bytes) }
                early = []
                server?.context?.flush()
                server?.context?.read()
                viewer?.context?.read()
            case .failure(let error):
                server = nil
                // connect() fails with EAGAIN when the backlog of a unix socket (Xvnc's is 5) is full.
                if phase == .connecting, (error as? IOError)?.errnoCode == EAGAIN, loop.now < deadline {
                    loop.assumeIsolated().scheduleTask(in: .milliseconds(10)) { [self] in
                        if phase == .connecting { connect(loop, until: deadline) }
                    }
                    return
                }
                context.logger.warning("a viewer cannot be connected", metadata: ["error": "\(error)"])
                if phase == .connecting {
                    phase = .ended
                    closeViewer(.init(.internalError, reason: "the VNC server cannot be reached"))
                }
                settle(held: false)
            }
        }
    }

    // MARK: From the viewer

    fileprivate func fromViewer(_ bytes: ByteBuffer) {
        switch phase {
        case .connecting: early.append(bytes)
        case .open:
            let (events, presses) = (inspector.events, inspector.presses)
            bytes.withUnsafeReadableBytes { inspector.consume($0) }
            if inspector.events != events || !inspector.isInspecting { context.desktop.driver.viewerSentInput() }
            // Before the server gets the press, so that no action of ours takes itself for the first.
            if inspector.presses != presses, inspector.isInspecting { setHolds(true) }
            context.metrics.bytesIn.increment(by: bytes.readableBytes)
            server?.context?.write(NIOAny(bytes), promise: nil)
        case .ending, .ended: break
        }
    }

    fileprivate func viewerReadComplete() {
        guard phase == .open, let server = server?.context else { return }
        server.flush()
        // After the server has got the release. What a viewer that cannot be followed holds is unknown.
        if inspector.mask == 0 || !inspector.isInspecting { setHolds(false) }
        if server.channel.isWritable { viewer?.context?.read() }
    }

    private func setHolds(_ new: Bool) {
        guard new != holds else { return }
        holds = new
        context.desktop.driver.viewerHolds(new)
    }

    fileprivate func viewerWritable() {
        if phase == .open { server?.context?.read() }
    }

    /// The viewer disconnected: the buttons it holds are released before the connection to the server is closed.
    fileprivate func viewerEnded() {
        switch phase {
        case .connecting:
            phase = .ended
            beginToLeave()
            settle(held: false)
        case .open:
            phase = .ending
            beginToLeave()
            guard let server = server?.context else { return settle(held: inspector.mayHoldButtons) }
            // The server closes the connection once it has read the last bytes; what it sends until then is
            // discarded.
            let last = ByteBuffer(bytes: inspector.releasingEvent ?? [])
            let written = server.eventLoop.makePromise(of: Void.self)
            server.writeAndFlush(NIOAny(last), promise: written)
            written.futureResult.assumeIsolated().whenComplete { _ in
                self.server?.context?.close(mode: .output, promise: nil)
            }
            server.read()
            leaveTimer = server.eventLoop.assumeIsolated().scheduleTask(
                in: TimeAmount(SessionLimits.viewerLeave)
            ) { [self] in
                self.server?.context?.close(promise: nil)
            }
        case .ending: beginToLeave()
        case .ended:
            beginToLeave()
            settle(held: inspector.mayHoldButtons)
        }
    }

    private func beginToLeave() {
        guard isCounted else { return }
        isCounted = false
        context.hub.beganToLeave()
        context.metrics.viewers.add(-1)
        isLeaving = true
    }

    private var isLeaving = false

    /// Notifies the driver: the pointer may be elsewhere and its button released.
    private func settle(held: Bool) {
        guard isLeaving else { return }
        isLeaving = false
        setHolds(false)
        let (driver, hub) = (context.desktop.driver, context.hub)
        Task(executorPreference: context.executor) {
            await driver.viewerLeft(heldButtons: held)
            hub.left()
        }
    }

    // MARK: From the server

    fileprivate func fromServer(_ bytes: ByteBuffer) {
        guard phase == .open else { return }
        context.metrics.bytesOut.increment(by: bytes.readableBytes)
        viewer?.context?.write(NIOAny(bytes), promise: nil)
    }

    fileprivate func serverReadComplete() {
        switch phase {
        case .open:
            guard let viewer = viewer?.context else { return }
            viewer.flush()
            if viewer.channel.isWritable { server?.context?.read() }
        case .ending: server?.context?.read()
        case .connecting, .ended: break
        }
    }

    fileprivate func serverWritable() {
        if phase == .open { viewer?.context?.read() }
    }

    fileprivate func serverEnded(_ error: (any Error)?) {
        leaveTimer?.cancel()
        leaveTimer = nil
        server = nil
        switch phase {
        case .open:
            phase = .ended
            if let error {
                context.logger.debug("a viewer's connection to the VNC server broke", metadata: ["error": "\(error)"])
                closeViewer(.init(.internalError, reason: "the connection to the VNC server broke"))
            } else {
                closeViewer(.init(.normal, reason: "the VNC server ended the connection"))
            }
        case .ending:
            phase = .ended
            settle(held: inspector.mayHoldButtons)
        case .connecting, .ended: break
        }
    }

    private func closeViewer(_ closing: WebSocketClosing) {
        viewer?.context?.triggerUserOutboundEvent(closing, promise: nil)
    }
}

/// The viewer's side: the handler behind that of the WebSocket.
private final class ViewerSide: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let bridge: ViewerBridge
    fileprivate var context: ChannelHandlerContext?

    init(_ bridge: ViewerBridge) { self.bridge = bridge }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        bridge.viewerEnded()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { bridge.fromViewer(unwrapInboundIn(data)) }
    func channelReadComplete(context: ChannelHandlerContext) { bridge.viewerReadComplete() }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { bridge.viewerWritable() }
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.context = nil
        bridge.viewerEnded()
    }

    // A WebSocket error is followed by the end of the channel.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {}
}

/// The VNC server's side.
private final class ServerSide: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let bridge: ViewerBridge
    fileprivate var context: ChannelHandlerContext?
    private var error: (any Error)?

    init(_ bridge: ViewerBridge) { self.bridge = bridge }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { bridge.fromServer(unwrapInboundIn(data)) }
    func channelReadComplete(context: ChannelHandlerContext) { bridge.serverReadComplete() }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { bridge.serverWritable() }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.error = error
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.context = nil
        bridge.serverEnded(error)
    }
}
