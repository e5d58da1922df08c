import AgentCore
import CPlatform
import Glibc
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import ServiceLifecycle
import Synchronization

/// Serves an ``HTTPService`` on any number of listeners until shutdown: then it stops accepting, lets requests finish
/// within the grace and closes the rest.
///
/// Listeners are bound first: their clients are not refused, and wait until ``start(_:)``.
public final class HTTPServer: Service {
    private struct Serving {
        /// nil until the start.
        var service: HTTPService?
        var channels: [any Channel] = []
        var sockets: [UnixListener] = []
    }

    private let group: any EventLoopGroup
    private let limits: HTTPLimits
    private let acceptPauses: CounterSeries
    private let logger: Logger
    private let executors: [ObjectIdentifier: EventLoopTaskExecutor]
    private let connections: ConnectionRegistry
    private let serving = Mutex(Serving())

    /// - Parameter metrics: where connections are counted.
    public init(
        group: any EventLoopGroup, metrics: MetricsRegistry, limits: HTTPLimits = HTTPLimits(), logger: Logger
    ) {
        (self.group, self.limits, self.logger) = (group, limits, logger)
        connections = ConnectionRegistry(
            gauge: metrics.gauge("agent_http_open_connections", help: "Open HTTP connections.").with(), limits: limits)
        acceptPauses =
            metrics.counter(
                "agent_http_accept_pauses_total", help: "Times that accepting paused for want of descriptors."
            ).with()
        var executors: [ObjectIdentifier: EventLoopTaskExecutor] = [:]
        for loop in group.makeIterator() { executors[ObjectIdentifier(loop)] = EventLoopTaskExecutor(loop) }
        self.executors = executors
    }

    /// Answers with the service from now on: connections that wait are accepted.
    public func start(_ service: HTTPService) {
        let channels = serving.withLock { serving in
            serving.service = service
            return serving.channels
        }
        for channel in channels { channel.setOption(.autoRead, value: true).whenFailure { _ in } }
    }

    /// Open connections by the kind of their listener.
    public var openConnections: [String: Int64] { connections.open }

    /// Whether one of the listeners has this TCP port.
    public func listens(on port: Int) -> Bool {
        serving.withLock { $0.channels.contains { $0.localAddress?.port == port } }
    }

    /// Listens on a unix socket that is bound already; its file is removed at shutdown.
    public func serve(_ listener: UnixListener, policy: AccessPolicy) async throws {
        let channel = try await bootstrap(policy, .unix).withBoundSocket(listener.descriptor).get()
        listener.restoreBacklog()
        add(channel, listener)
    }

    /// Listens on an inherited socket (socket activation).
    public func serve(descriptor: CInt, policy: AccessPolicy) async throws {
        let kind: ConnectionRegistry.Kind = wa_socket_family(descriptor) == AF_UNIX ? .unix : .tcp
        add(try await bootstrap(policy, kind).withBoundSocket(descriptor).get())
    }

    private func add(_ channel: any Channel, _ socket: UnixListener? = nil) {
        let isStarted = serving.withLock { serving in
            serving.channels.append(channel)
            if let socket { serving.sockets.append(socket) }
            return serving.service != nil
        }
        if isStarted { channel.setOption(.autoRead, value: true).whenFailure { _ in } }
    }

    /// Serves a connection that came through a tunnel. To be called on its event loop, which is one of the server's.
    /// - Parameter peer: as the access log names the client.
    /// - Throws: ``CoreError`` when there are as many connections as may be, all of them with a request under way.
    public func serve(_ channel: any Channel, peer: String, policy: AccessPolicy) throws {
        guard !connections.isFull(.tunnel) else {
            throw CoreError(.invalid, "there are \(HTTPLimits.connections) connections, and all are in use")
        }
        try channel.syncOptions?.setOption(.autoRead, value: false)
        try channel.syncOptions?.setOption(.allowRemoteHalfClosure, value: true)
        try configure(channel, ConnectionInfo(transport: .tunnel, peer: peer), policy)
    }

    /// Listens on a TCP address.
    /// - Parameters:
    ///   - host: a literal address or a name; the first address that it resolves to is used.
    ///   - port: 0 lets the kernel choose.
    /// - Returns: the port that was bound.
    public func serve(host: String, port: Int, policy: AccessPolicy) async throws -> Int {
        do {
            let channel = try await bootstrap(policy, .tcp).bind(host: host, port: port).get()
            add(channel)
            return channel.localAddress?.port ?? port
        } catch {
            let address = host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
            throw CoreError(.invalid, "cannot listen on \(address): \(Self.problem(error))")
        }
    }

    /// Why an address cannot be used and what to try, as the end of a sentence.
    private static func problem(_ error: any Error) -> String {
        switch error {
        case let error as SocketAddressError.UnknownHost:
            return "the host is not known (\(error.errorDescription)); use an address of this machine, as 127.0.0.1"
        case let error as IOError:
            let text = errnoText(error.errnoCode)
            return switch error.errnoCode {
            case EADDRINUSE: "\(text); end what listens there or choose another port"
            case EADDRNOTAVAIL: "\(text); use an address that this machine has, as 127.0.0.1"
            case EACCES: "\(text); ports below 1024 need a privilege, choose a higher one"
            default: text
            }
        default: return "the address cannot be used"
        }
    }

    public func run() async throws {
        try? await gracefulShutdown()
        await stop()
    }

    /// Stops accepting, lets requests finish within the grace, closes the rest.
    public func stop() async {
        let (service, channels, sockets) = serving.withLock { state in
            defer { (state.channels, state.sockets) = ([], []) }
            return (state.service, state.channels, state.sockets)
        }
        service?.beginShutdown()
        for socket in sockets { socket.remove() }
        for channel in channels { try? await channel.close() }
        connections.shutdown()
        let grace = group.any().scheduleTask(in: limits.shutdownGrace) { [connections] in
            connections.abort()
        }
        let stalls = group.any().scheduleRepeatedTask(
            initialDelay: .zero, delay: limits.shutdownStallTimeout
        ) { [connections] _ in connections.closeStalled() }
        await connections.empty()
        grace.cancel()
        stalls.cancel()
    }

    private func bootstrap(_ policy: AccessPolicy, _ kind: ConnectionRegistry.Kind) -> ServerBootstrap {
        ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 256)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelOption(.maxMessagesPerRead, value: 1)
            .serverChannelOption(.autoRead, value: false)
            .serverChannelInitializer { [connections, acceptPauses, logger] channel in
                channel.eventLoop.makeCompletedFuture {
                    let gate = AcceptGate(pauses: acceptPauses, logger: logger) { connections.makeRoom(kind) }
                    try channel.pipeline.syncOperations.addHandler(gate)
                    connections.add(gate: gate, kind: kind, loop: channel.eventLoop)
                }
            }
            .childChannelOption(.autoRead, value: false)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { [self] channel in
                connectionInfo(channel).flatMapThrowing { info in
                    try self.configure(channel, info, policy)
                }
            }
    }

    private func configure(_ channel: any Channel, _ info: ConnectionInfo, _ policy: AccessPolicy) throws {
        guard let service = serving.withLock({ $0.service }),
            let executor = executors[ObjectIdentifier(channel.eventLoop)]
        else { throw ChannelError.operationUnsupported }
        let handler = HTTPConnectionHandler(
            service: service, info: info, policy: policy, executor: executor, logger: logger)
        try Self.addHTTPHandlers(handler, to: channel)
        let kind: ConnectionRegistry.Kind =
            switch info.transport {
            case .unix: .unix
            case .tcp: .tcp
            case .tunnel: .tunnel
            }
        let activity = connections.add(handler, kind: kind, loop: channel.eventLoop)
        handler.activity = activity
        channel.closeFuture.whenComplete { [connections] _ in connections.remove(activity) }
    }

    static func addHTTPHandlers(_ handler: HTTPConnectionHandler, to channel: any Channel) throws {
        var limits = NIOHTTPDecoderLimitConfiguration()
        limits.maxHeaderFieldSize = HTTPLimits.headerBytes
        limits.maxHeaderListSize = HTTPLimits.headerBytes
        limits.maxHeaderFieldCount = HTTPLimits.headerFields
        let decoder = HTTPRequestDecoder(leftOverBytesStrategy: .forwardBytes, limitConfiguration: limits)
        try channel.pipeline.syncOperations.addHandlers([
            RequestFramingHandler(handler), HTTPResponseEncoder(), ByteToMessageHandler(decoder), handler,
        ])
    }

    private func connectionInfo(_ channel: any Channel) -> EventLoopFuture<ConnectionInfo> {
        if let port = channel.localAddress?.port {
            let peer = channel.remoteAddress.map { "\($0.ipAddress ?? ""):\($0.port ?? 0)" } ?? "unknown"
            var host = channel.localAddress?.ipAddress ?? ""
            // An IPv4 peer of an IPv6 listener names the IPv4 address.
            if host.hasPrefix("::ffff:") { host.removeFirst("::ffff:".count) }
            return channel.eventLoop.makeSucceededFuture(
                ConnectionInfo(transport: .tcp(localHost: host, localPort: port), peer: peer))
        }
        return PeerCredentials.of(channel).map {
            ConnectionInfo(transport: .unix(pid: $0.pid, uid: $0.uid), peer: "pid \($0.pid) uid \($0.uid)")
        }
    }
}
