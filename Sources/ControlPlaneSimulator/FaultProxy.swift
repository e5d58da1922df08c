import DequeModule
import Glibc
import NIOCore
import NIOPosix
import Synchronization

/// A TCP proxy between an agent and its server that does to connections what networks do.
///
/// Every command takes effect for all connections that are open, and has when it returns. Back-pressure goes through: what
/// one side doesn't read, the other can't send beyond ``SimulatorLimits/proxyBufferBytes``.
package final class FaultProxy: Sendable {
    /// One of the two ways.
    package enum Direction: Sendable, Hashable {
        case toServer
        case toClient
    }

    /// A place at which a connection ends.
    package struct Cut: Sendable, Equatable, CustomStringConvertible {
        /// So many bytes of this way are passed on; further ones are lost.
        package var bytes: Int
        package var direction: Direction
        /// RST instead of FIN.
        package var reset: Bool

        package init(after bytes: Int, _ direction: Direction, reset: Bool) {
            (self.bytes, self.direction, self.reset) = (bytes, direction, reset)
        }

        package var description: String { "\(direction) \(bytes)\(reset ? " RST" : "")" }
    }

    private struct State {
        var cuts: Deque<Cut> = []
        var listener: (any Channel)?
        var address: SocketAddress?
        var pairs: [Int: NIOLoopBound<ProxyPair>] = [:]
        var accepted = 0
        var settings = FaultProxySettings()
        var stopped = false
    }

    private let group: any EventLoopGroup
    private let target: SocketAddress
    private let state = Mutex(State())

    /// Where it listens, which never changes; nil before it does.
    package var address: SocketAddress? { state.withLock { $0.address } }

    /// Listens on a free port of 127.0.0.1.
    package static func start(to target: SocketAddress, group: any EventLoopGroup) async throws -> FaultProxy {
        let proxy = FaultProxy(target: target, group: group)
        try await proxy.listen()
        return proxy
    }

    private init(target: SocketAddress, group: any EventLoopGroup) {
        self.target = target
        self.group = group
    }

    package var port: Int { address?.port ?? 0 }

    /// Connections accepted so far.
    package var accepted: Int { state.withLock { $0.accepted } }

    /// Connections that are open now.
    package var open: Int { state.withLock { $0.pairs.count } }

    /// Listens again after ``refuse()``.
    package func listen() async throws {
        guard state.withLock({ $0.listener == nil && !$0.stopped }) else { return }
        let listener = try await ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.autoRead, value: false)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { [self] client in
                client.eventLoop.makeCompletedFuture { try self.take(client) }
            }.bind(to: address ?? SocketAddress(ipAddress: "127.0.0.1", port: 0)).get()
        state.withLock {
            $0.listener = listener
            $0.address = listener.localAddress
        }
    }

    /// New connections are refused by the kernel from now on; open ones go on.
    package func refuse() async throws {
        guard let listener = state.withLock({ $0.listener.take() }) else { return }
        try await listener.eventLoop.submit {
            // A child that another thread is about to start has the socket, too, until it executes its
            // program; closing ours alone would leave the port listening until then.
            try listener.pipeline.syncOperations.withUnsafeTransportIfAvailable(of: NIOBSDSocket.Handle.self) {
                _ = shutdown($0, CInt(SHUT_RD))
            }
            return listener.close()
        }.get().get()
    }

    /// Ends every connection with a FIN both ways.
    package func cut() async { await each { $0.end(reset: false) } }

    /// Ends every connection with a RST both ways.
    package func reset() async { await each { $0.end(reset: true) } }

    /// Moves nothing any more, neither bytes nor ends, on new connections neither: what a dead network
    /// looks like to both sides. Undone by ``resume()``.
    package func stall() async { await change { $0.stalled = true } }

    /// Moves on what waited since ``stall()``.
    package func resume() async { await change { $0.stalled = false } }

    /// Holds every byte back for this time, in order. Zero undoes it.
    package func delay(_ time: Duration) async { await change { $0.delay = TimeAmount(time) } }

    /// Each connection, open or new, is cut (or reset) once so many bytes went this way, counted
    /// from now on; those past them are lost. nil undoes it.
    package func cut(after bytes: Int?, _ direction: Direction, reset: Bool = false) async {
        await change { $0.cutAfter[direction] = bytes.map { ($0, reset) } }
    }

    /// The next connections are cut one after the other, each at its own place; those behind them are not.
    /// Another command on the bytes of connections undoes it for the one that is open.
    package func cutNext(_ cuts: [Cut]) { state.withLock { $0.cuts.append(contentsOf: cuts) } }

    /// Connections to come that are to be cut.
    package var cutsLeft: Int { state.withLock { $0.cuts.count } }

    /// Closes the listener and every connection.
    package func stop() async {
        let listener = state.withLock { state in
            state.stopped = true
            return state.listener.take()
        }
        try? await listener?.close()
        await each { $0.end(reset: false) }
    }

    private func change(_ body: (inout FaultProxySettings) -> Void) async {
        let settings = state.withLock { state in
            body(&state.settings)
            return state.settings
        }
        await each { $0.apply(settings) }
    }

    private func each(_ body: @escaping @Sendable (ProxyPair) -> Void) async {
        for pair in state.withLock({ Array($0.pairs.values) }) {
            try? await pair.eventLoop.submit { body(pair.value) }.get()
        }
    }

    private func take(_ client: any Channel) throws {
        let loop = client.eventLoop
        let pair = ProxyPair(client: client)
        let bound = NIOLoopBound(pair, eventLoop: loop)
        let (number, settings) = state.withLock { state in
            state.accepted += 1
            state.pairs[state.accepted] = bound
            var settings = state.settings
            if let cut = state.cuts.popFirst() { settings.cutAfter[cut.direction] = (cut.bytes, cut.reset) }
            return (state.accepted, settings)
        }
        // While the network is stalled one end may be gone without the other knowing.
        pair.onceGone { [self] in _ = state.withLock { $0.pairs.removeValue(forKey: number) } }
        try client.pipeline.syncOperations.addHandler(ProxyEnd(pair: pair, direction: .toServer))
        pair.apply(settings)
        // On the same loop, so that the two ends share their state without a lock.
        ClientBootstrap(group: loop)
            .channelOption(.autoRead, value: false)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { server in
                server.eventLoop.makeCompletedFuture {
                    let end = ProxyEnd(pair: bound.value, direction: .toClient)
                    try server.pipeline.syncOperations.addHandler(end)
                }
            }
            .connect(to: target)
            .whenComplete { result in
                switch result {
                case .success(let server): bound.value.connected(server)
                case .failure: bound.value.end(reset: true)
                }
            }
    }
}

/// What is done to connections.
struct FaultProxySettings: Sendable {
    var stalled = false
    var delay = TimeAmount.zero
    var cutAfter: [FaultProxy.Direction: (bytes: Int, reset: Bool)] = [:]
}

/// The two ends of one connection and what is on its way between them. Used on one event loop.
final class ProxyPair {
    private enum Item {
        case bytes(ByteBuffer)
        case end
    }

    private struct Way {
        var queue: Deque<(item: Item, due: NIODeadline)> = []
        var queuedBytes = 0
        var waitsForTime = false
        var left: Int?
        var resetsAtCut = false
    }

    private let client: any Channel
    private var server: (any Channel)?
    private var settings = FaultProxySettings()
    private var ways: [FaultProxy.Direction: Way] = [.toServer: Way(), .toClient: Way()]
    private var ended = false
    private var wasReset = false
    private var lostEnd = false
    private var openEnds = 1
    private var gone: @Sendable () -> Void = {}

    init(client: any Channel) { self.client = client }

    /// Does something when neither end is there any more.
    func onceGone(_ body: @escaping @Sendable () -> Void) {
        gone = body
        watch(client)
    }

    private func watch(_ end: any Channel) {
        let bound = NIOLoopBound(self, eventLoop: client.eventLoop)
        end.closeFuture.whenComplete { _ in
            bound.value.openEnds -= 1
            if bound.value.openEnds == 0 { bound.value.gone() }
        }
    }

    func connected(_ server: any Channel) {
        guard !ended, !lostEnd else { return Self.close(server, reset: wasReset) }
        self.server = server
        openEnds += 1
        watch(server)
        readMore(.toServer)
        readMore(.toClient)
        pump(.toServer)
    }

    func apply(_ settings: FaultProxySettings) {
        for direction in [FaultProxy.Direction.toServer, .toClient] {
            let new = settings.cutAfter[direction]
            let old = self.settings.cutAfter[direction]
            guard new?.bytes != old?.bytes || new?.reset != old?.reset || ways[direction]?.left == nil else { continue }
            ways[direction]?.left = new?.bytes
            ways[direction]?.resetsAtCut = new?.reset ?? false
        }
        self.settings = settings
        if lostEnd, !settings.stalled { end(reset: false) }
        for direction in [FaultProxy.Direction.toServer, .toClient] {
            pump(direction)
            readMore(direction)
        }
    }

    /// Ends both sides; with a reset neither gets what is on its way.
    func end(reset: Bool) {
        guard !ended else { return }
        ended = true
        wasReset = reset
        for channel in [client, server].compactMap({ $0 }) { Self.close(channel, reset: reset) }
    }

    private static func close(_ channel: any Channel, reset: Bool) {
        guard reset, let socket = channel as? any SocketOptionProvider else { return channel.close(promise: nil) }
        // A linger time of none makes the close a reset.
        socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).whenComplete { _ in channel.close(promise: nil) }
    }

    func received(_ bytes: ByteBuffer, _ direction: FaultProxy.Direction) {
        ways[direction]?.queue.append((.bytes(bytes), .now() + settings.delay))
        ways[direction]?.queuedBytes += bytes.readableBytes
        pump(direction)
    }

    /// The sending side of one end is finished.
    func receivedEnd(_ direction: FaultProxy.Direction) {
        ways[direction]?.queue.append((.end, .now() + settings.delay))
        pump(direction)
    }

    func closed() {
        lostEnd = true
        // Nothing gets through a network that is dead, the end of a side neither.
        if !settings.stalled { end(reset: false) }
    }

    func readMore(_ direction: FaultProxy.Direction) {
        guard !settings.stalled, !ended, let server, let way = ways[direction] else { return }
        guard way.queuedBytes < SimulatorLimits.proxyBufferBytes else { return }
        let (source, sink) = direction == .toServer ? (client, server) : (server, client)
        if sink.isWritable { source.read() }
    }

    private func pump(_ direction: FaultProxy.Direction) {
        guard !settings.stalled, !ended, let server else { return }
        let sink = direction == .toServer ? server : client
        while let first = ways[direction]?.queue.first {
            let now = NIODeadline.now()
            guard first.due <= now else {
                guard ways[direction]?.waitsForTime == false else { return }
                ways[direction]?.waitsForTime = true
                let bound = NIOLoopBound(self, eventLoop: client.eventLoop)
                client.eventLoop.scheduleTask(deadline: first.due) {
                    bound.value.ways[direction]?.waitsForTime = false
                    bound.value.pump(direction)
                    bound.value.readMore(direction)
                }
                return
            }
            ways[direction]?.queue.removeFirst()
            switch first.item {
            case .end:
                sink.close(mode: .output, promise: nil)
            case .bytes(var bytes):
                ways[direction]?.queuedBytes -= bytes.readableBytes
                guard forward(&bytes, to: sink, direction) else { return }
            }
        }
    }

    /// - Returns: false when the connection was cut.
    private func forward(_ bytes: inout ByteBuffer, to sink: any Channel, _ direction: FaultProxy.Direction) -> Bool {
        guard let left = ways[direction]?.left else {
            sink.writeAndFlush(bytes, promise: nil)
            return true
        }
        if let part = bytes.readSlice(length: min(left, bytes.readableBytes)) {
            ways[direction]?.left = left - part.readableBytes
            let reset = ways[direction]?.resetsAtCut ?? false
            guard left - part.readableBytes == 0 else {
                sink.writeAndFlush(part, promise: nil)
                return true
            }
            let bound = NIOLoopBound(self, eventLoop: client.eventLoop)
            sink.writeAndFlush(part).whenComplete { _ in bound.value.end(reset: reset) }
        }
        return false
    }
}

/// One end of a proxied connection.
private final class ProxyEnd: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let pair: ProxyPair
    /// The way of what this end reads.
    private let direction: FaultProxy.Direction

    init(pair: ProxyPair, direction: FaultProxy.Direction) {
        self.pair = pair
        self.direction = direction
    }

    func channelActive(context: ChannelHandlerContext) { pair.readMore(direction) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { pair.received(unwrapInboundIn(data), direction) }

    func channelReadComplete(context: ChannelHandlerContext) { pair.readMore(direction) }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        // What this end writes comes from the other.
        if context.channel.isWritable { pair.readMore(direction == .toServer ? .toClient : .toServer) }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent { pair.receivedEnd(direction) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) { pair.closed() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { pair.end(reset: true) }
}
