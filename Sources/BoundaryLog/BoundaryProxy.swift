import AgentCore
import Glibc
import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle
import Synchronization

/// Receives batches of logs from boundary on a unix socket and queues them.
///
/// ``bind()`` makes the socket; from then on boundary can connect. At a graceful shutdown everything that was
/// written to the socket is read before it closes, and its file is removed if it is still ours.
public final class BoundaryProxy: Service {
    /// Where and how to listen.
    public struct Configuration: Sendable {
        /// The socket's file, absolute.
        public var path: String
        /// Permission bits of the file. Users who may write to it may send logs.
        public var mode: mode_t
        /// Connections served at once.
        public var maximumConnections: Int

        public init(path: String, mode: mode_t = 0o600, maximumConnections: Int = BoundaryLimits.connections) {
            self.path = path
            self.mode = mode
            self.maximumConnections = maximumConnections
        }

        /// `$TMPDIR/boundary-audit.sock`, in /tmp without one.
        public static func defaultPath(temporary: String?) -> String {
            let directory = temporary.flatMap { $0.hasPrefix("/") ? $0 : nil } ?? "/tmp"
            return "\(directory.hasSuffix("/") ? String(directory.dropLast()) : directory)/boundary-audit.sock"
        }
    }

    private struct State {
        var listener: UnixListener?
        var channels: [ObjectIdentifier: any Channel] = [:]
        var closed = false
    }

    private let configuration: Configuration
    private let intake: BoundaryIntake
    private let group: any EventLoopGroup
    private let logger: Logger
    private let state = Mutex(State())

    /// - Parameter group: the loops that connections are served on.
    public init(
        configuration: Configuration, queue: DurableQueue, group: any EventLoopGroup, metrics: BoundaryMetrics,
        logger: Logger
    ) {
        self.configuration = configuration
        self.group = group
        self.logger = logger
        intake = BoundaryIntake(queue: queue, metrics: metrics)
    }

    /// Connections that are open.
    public var connections: Int { state.withLock { $0.channels.count } }

    /// Makes the socket, unless that was done already.
    /// - Throws: `CoreError` when another process serves the path or something foreign is in the way.
    public func bind() throws {
        try state.withLock { state in
            if state.listener == nil {
                state.listener = try UnixListener.bind(
                    path: configuration.path, mode: configuration.mode, backlog: BoundaryLimits.backlog)
            }
        }
    }

    public func run() async throws {
        try bind()
        guard let listener = state.withLock({ $0.listener }) else { return }
        defer {
            listener.remove()
            state.withLock { $0.listener = nil }
        }
        let server = try await ServerBootstrap(group: group)
            // Frames are small and come in a stream: a read takes many of them.
            .childChannelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 64 << 10))
            .childChannelOption(.maxMessagesPerRead, value: 1)
            .childChannelInitializer { self.serve($0) }
            .withBoundSocket(listener.descriptor).get()
        listener.restoreBacklog()
        logger.info("boundary log socket is listening", metadata: ["path": "\(configuration.path)"])
        await withTaskCancellationOrGracefulShutdownHandler {
            try? await server.closeFuture.get()
        } onCancelOrGracefulShutdown: {
            // No new client can connect; those that have connected already are accepted, and read.
            listener.remove()
            Self.close(server, listener.descriptor, checks: BoundaryLimits.acceptChecks, quiet: 0)
        }
        let channels = state.withLock { state in
            state.closed = true
            return Array(state.channels.values)
        }
        for channel in channels { channel.pipeline.fireUserInboundEventTriggered(BoundaryConnection.Drain()) }
        for channel in channels { try? await channel.closeFuture.get() }
        logger.info("boundary log socket is closed", metadata: ["path": "\(configuration.path)"])
    }

    /// Closes the listener once no connection has waited to be accepted at two checks in a row: after a stall of
    /// the event loop many may wait.
    private static func close(_ server: any Channel, _ descriptor: CInt, checks: Int, quiet: Int) {
        server.eventLoop.scheduleTask(in: .milliseconds(BoundaryLimits.acceptMilliseconds)) {
            guard server.isActive else { return }
            var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let quiet = poll(&waiting, 1, 0) > 0 ? 0 : quiet + 1
            guard quiet < 2, checks > 1 else { return server.close(promise: nil) }
            close(server, descriptor, checks: checks - 1, quiet: quiet)
        }
    }

    private func serve(_ channel: any Channel) -> EventLoopFuture<Void> {
        PeerCredentials.of(channel).flatMapThrowing { peer in
            let admitted = self.state.withLock { state in
                guard !state.closed, state.channels.count < self.configuration.maximumConnections else { return false }
                state.channels[ObjectIdentifier(channel)] = channel
                return true
            }
            guard admitted else {
                self.logger.warning(
                    "boundary log socket is full; refused a connection",
                    metadata: [
                        "limit": "\(self.configuration.maximumConnections)", "uid": "\(peer.uid)",
                        "pid": "\(peer.pid)",
                    ])
                throw CoreError(
                    .invalid, "the boundary log socket has \(self.configuration.maximumConnections) connections")
            }
            channel.closeFuture.whenComplete { _ in
                self.state.withLock { $0.channels[ObjectIdentifier(channel)] = nil }
            }
            self.logger.info("boundary connected", metadata: ["uid": "\(peer.uid)", "pid": "\(peer.pid)"])
            var logger = self.logger
            logger[metadataKey: "pid"] = "\(peer.pid)"
            try channel.pipeline.syncOperations.addHandler(BoundaryConnection(intake: self.intake, logger: logger))
        }
    }
}
