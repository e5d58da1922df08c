import AgentCore
import DRPC
import Glibc
import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle
import Synchronization

/// Serves the agent socket until it is shut down.
///
/// ``bind()`` makes the socket; from then on clients can connect and are answered once ``run()``
/// works. At a graceful shutdown the socket closes, calls that run are cancelled, and the file is
/// removed if it is still ours.
public final class AgentSocketServer: Service {
    /// Where and how to listen.
    public struct Configuration: Sendable {
        /// What the existing clients expect.
        public static let defaultPath = "/tmp/coder-agent.sock"

        /// The socket's file.
        public var path: String
        /// Connections served at once.
        public var maximumConnections: Int

        public init(path: String = Self.defaultPath, maximumConnections: Int = AgentSocketLimits.connections) {
            self.path = path
            self.maximumConnections = maximumConnections
        }
    }

    private let configuration: Configuration
    private let router: Router
    private let group: any EventLoopGroup
    private let logger: Logger
    private let metrics: SocketMetrics
    private let table: ConnectionTable
    private let budget = UnfinishedBudget()
    private let unsentBudget: UnsentBudget
    private let admits: @Sendable (PeerCredentials) -> Bool
    private let listener = Mutex<UnixListener?>(nil)

    /// - Parameters:
    ///   - units: the daemon's units.
    ///   - group: the loops that connections are served on.
    ///   - metrics: where the socket's metrics are registered.
    public convenience init(
        configuration: Configuration, units: UnitStore, group: any EventLoopGroup, logger: Logger,
        metrics: MetricsRegistry
    ) {
        self.init(
            configuration: configuration, units: units, forwarder: OfflineForwarder(), group: group, logger: logger,
            metrics: metrics)
    }

    /// As the public initialiser, with a forwarder for the status of apps, and one for git's logins if there is one.
    package init(
        configuration: Configuration, units: UnitStore, forwarder: any AppStatusForwarder,
        gitLogins: (any GitLoginForwarder)? = nil,
        group: any EventLoopGroup, logger: Logger, metrics: MetricsRegistry,
        unsentBudget: UnsentBudget = UnsentBudget(),
        admits: @escaping @Sendable (PeerCredentials) -> Bool = { $0.mayUse(socketOf: geteuid()) }
    ) {
        self.configuration = configuration
        self.group = group
        self.logger = logger
        self.admits = admits
        self.unsentBudget = unsentBudget
        router = AgentSocketService(units: units, forwarder: forwarder, gitLogins: gitLogins).router()
        self.metrics = SocketMetrics(registry: metrics, rpcs: router.names)
        let table = ConnectionTable(capacity: configuration.maximumConnections)
        self.table = table
        metrics.gauge("agent_socket_connections", help: "Connections to the agent socket.") { Double(table.count) }
        metrics.gauge("agent_socket_units", help: "Registered units.") { Double(units.count) }
        metrics.gauge("agent_socket_events_forgotten", help: "Unit events forgotten for newer ones.") {
            Double(units.forgottenEvents)
        }
        let budget = budget
        metrics.gauge("agent_socket_unfinished_bytes", help: "Bytes held of requests that are not complete.") {
            Double(budget.held)
        }
        metrics.gauge("agent_socket_unsent_bytes", help: "Bytes of answers held for clients that don't read them.") {
            Double(unsentBudget.held)
        }
    }

    /// Connections that are open.
    var connections: Int { table.count }

    /// Makes the socket, unless that was done already.
    /// - Throws: `CoreError` when another process serves the path or something foreign is in the way.
    public func bind() throws {
        try listener.withLock { listener in
            if listener == nil {
                listener = try UnixListener.bind(path: configuration.path, backlog: AgentSocketLimits.backlog)
            }
        }
    }

    public func run() async throws {
        try bind()
        guard let listener = listener.withLock({ $0 }) else { return }
        defer {
            listener.remove()
            self.listener.withLock { $0 = nil }
        }
        // Listener and connections on one loop: most clients connect for a single call, and between two loops NIO hands
        // each new connection over three times.
        let server = try await ServerBootstrap(group: group.next())
            // One connection, one request: trying for a second would mostly find nothing.
            .serverChannelOption(.maxMessagesPerRead, value: 1)
            .childChannelOption(.maxMessagesPerRead, value: 1)
            .childChannelOption(
                .writeBufferWaterMark,
                value: .init(
                    low: DRPCLimits.unsentBytesOfConnection / 2, high: DRPCLimits.unsentBytesOfConnection)
            )
            .childChannelInitializer { channel in
                self.serve(channel)
            }
            .withBoundSocket(listener.descriptor).get()
        listener.restoreBacklog()
        logger.info("agent socket is listening", metadata: ["path": "\(configuration.path)"])
        await withTaskCancellationOrGracefulShutdownHandler {
            try? await server.closeFuture.get()
        } onCancelOrGracefulShutdown: {
            server.close(promise: nil)
        }
        await table.closeAll()
        logger.info("agent socket is closed", metadata: ["path": "\(configuration.path)"])
    }

    private func serve(_ channel: any Channel) -> EventLoopFuture<Void> {
        PeerCredentials.of(channel).flatMapThrowing { peer in
            guard self.admits(peer) else {
                self.metrics.connection(.refusedPeer)
                self.logger.warning(
                    "refused a connection of another user to the agent socket",
                    metadata: ["uid": "\(peer.uid)", "pid": "\(peer.pid)"])
                throw CoreError(.invalid, "uid \(peer.uid) may not use the agent socket")
            }
            try self.admit(channel, peer)
        }
    }

    private func admit(_ channel: any Channel, _ peer: PeerCredentials) throws {
        let slot: ConnectionTable.Slot
        switch table.admit(channel) {
        case .admitted(let admitted):
            slot = admitted
        case .replaced(let admitted, let evicted):
            slot = admitted
            metrics.connection(.evicted)
            logger.warning(
                "agent socket is full; closed its longest idle connection",
                metadata: ["limit": "\(configuration.maximumConnections)"])
            evicted.close(promise: nil)
        case .refused:
            metrics.connection(.refusedLimit)
            logger.warning(
                "agent socket is full; refused a connection",
                metadata: ["limit": "\(configuration.maximumConnections)", "pid": "\(peer.pid)"])
            throw CoreError(.invalid, "the agent socket has \(configuration.maximumConnections) connections")
        }
        metrics.connection(.accepted)
        channel.closeFuture.whenComplete { [table] _ in table.remove(slot) }
        let observer = RPCServerHandler.Observer(
            callEnded: { [metrics] rpc, succeeded in
                slot.touch()
                metrics.call(rpc, succeeded: succeeded)
            },
            busyChanged: { slot.note(busy: $0) },
            violated: { [metrics, logger] error in
                metrics.violation()
                logger.warning(
                    "closed a connection to the agent socket", metadata: ["pid": "\(peer.pid)", "reason": "\(error)"])
            })
        try channel.pipeline.syncOperations.addHandler(
            RPCServerHandler(router: router, budget: budget, unsentBudget: unsentBudget, observer: observer))
    }
}
