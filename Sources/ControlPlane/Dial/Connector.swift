import AgentCore
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Synchronization

/// Opens connections and sends one request over each: TCP to the first of a host's addresses that answers, a proxy where
/// one is set, TLS, and the upgrade that the request asks for.
struct Connector: Sendable {
    /// Where a connection leads.
    struct Target: Sendable {
        var server: ServerAddress
        /// Hosts to connect to, one after the other, where the server's cannot be reached; a proxy gets the server's.
        var alternatives: [String] = []
        var proxy: ServerAddress?
        var names: TLSNames
    }

    enum Outcome: Sendable {
        /// Upgraded; the caller's to close.
        case open(any Channel)
        /// The connection is closed or closing.
        case answered(OpeningRequest.Answer)
    }

    /// A PEM file whose certificates are trusted beside the system's.
    let caFile: String?
    /// TCP, name look-up included.
    let connectTimeout: TimeAmount
    let pool: BlockingPool
    /// Finds a host's addresses; nil is the system's.
    let resolver: (any Resolver & Sendable)?

    init(_ configuration: LinkConfiguration, pool: BlockingPool, resolver: (any Resolver & Sendable)?) {
        caFile = configuration.caFile
        connectTimeout = configuration.times.connect
        self.pool = pool
        self.resolver = resolver
    }

    /// What TLS to a target needs; nil when there is none. Made anew each time, so that a CA file may change while we run.
    /// - Throws: ``ControlPlaneError``.
    func tlsContext(for target: Target) async throws -> NIOSSLContext? {
        guard target.server.isSecure else { return nil }
        let caFile = caFile
        let checksName = target.names.checked == nil
        // Reads files.
        return try await pool.run {
            var trust = try Trust.configuration(caFile: caFile)
            // The chain is checked as ever; the name by TLSGate.
            if !checksName { trust.certificateVerification = .noHostnameVerification }
            do {
                return try NIOSSLContext(configuration: trust)
            } catch {
                throw ControlPlaneError(.tls, "the system's CA roots cannot be loaded", cause: error)
            }
        }
    }

    /// - Parameters:
    ///   - tls: of ``tlsContext(for:)``.
    ///   - group: whose loops run the connection.
    /// - Throws: ``ControlPlaneError``, what the request's initializer throws, or `CancellationError`. No connection is
    ///   left open then.
    func send(
        _ request: OpeningRequest, to target: Target, tls: NIOSSLContext?, on group: any EventLoopGroup
    ) async throws -> Outcome {
        let attempts = Attempts()
        let first = target.proxy ?? target.server
        // A bootstrap of its own for each host: NIO's cannot be shared.
        let connect: @Sendable (String) -> EventLoopFuture<any Channel> = { [self] host in
            ClientBootstrap(group: group)
                .resolver(resolver)
                .connectTimeout(min(connectTimeout, request.deadline - .now()))
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                .channelOption(.tcpOption(.init(rawValue: Self.tcpUserTimeout)), value: Self.userTimeoutMilliseconds)
                .channelOption(.tcpOption(.init(rawValue: Self.tcpNotSentLowat)), value: DialLimits.unsentBytes)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try Self.addTransport(to: channel, target, tls)
                        let result = channel.eventLoop.makePromise(of: OpeningRequest.Answer?.self)
                        attempts.add(channel, result.futureResult)
                        try RequestHandler.add(
                            to: channel, RequestHandler(server: target.server, request, result: result))
                    }
                }
                .connect(host: host, port: first.port)
        }
        let outcome = group.any().makePromise(of: Outcome.self)
        let hosts = [first.host] + (target.proxy == nil ? target.alternatives : [])
        Self.first(of: hosts[...], before: request.deadline, on: group.any(), connect).whenComplete { result in
            switch result {
            case .failure(let error):
                // At the deadline whichever comes first, the channel's own limit or the request's, closes it.
                let isLate = NIODeadline.now() >= request.deadline
                outcome.fail(Self.unreachable(first, isProxy: target.proxy != nil, isLate: isLate, error))
            case .success(let channel):
                guard let answer = attempts.result(of: channel) else {
                    // Given up meanwhile.
                    channel.close(promise: nil)
                    return outcome.fail(CancellationError())
                }
                answer.map { $0.map(Outcome.answered) ?? .open(channel) }.cascade(to: outcome)
            }
        }
        return try await withTaskCancellationHandler {
            let result: Result<Outcome, any Error>
            do { result = .success(try await outcome.futureResult.get()) } catch { result = .failure(error) }
            // A channel that opened after the cancellation has no owner; errors of abandoned ones are ignored.
            if Task.isCancelled {
                attempts.abandon()
                throw CancellationError()
            }
            return try result.get()
        } onCancel: {
            outcome.fail(CancellationError())
            attempts.abandon()
        }
    }

    /// Connects to the first host that can be reached.
    /// - Throws: the first host's error, since the map prefers that.
    private static func first(
        of hosts: ArraySlice<String>, before deadline: NIODeadline, on loop: any EventLoop,
        _ connect: @escaping @Sendable (String) -> EventLoopFuture<any Channel>
    ) -> EventLoopFuture<any Channel> {
        guard let host = hosts.first else { return loop.makeFailedFuture(ChannelError.operationUnsupported) }
        let rest = hosts.dropFirst()
        guard !rest.isEmpty else { return connect(host) }
        return connect(host).flatMapError { error in
            guard NIODeadline.now() < deadline else { return loop.makeFailedFuture(error) }
            return first(of: rest, before: deadline, on: loop, connect).flatMapErrorThrowing { _ in throw error }
        }
    }

    /// The handlers between the socket and HTTP.
    private static func addTransport(to channel: any Channel, _ target: Target, _ tls: NIOSSLContext?) throws {
        let pipeline = channel.pipeline.syncOperations
        if let proxy = target.proxy {
            try pipeline.addHandler(ProxyConnectHandler(proxy: proxy, target: target.server))
        }
        guard let tls else { return }
        do {
            let handler = try NIOSSLClientHandler(context: tls, serverHostname: target.names.sent)
            try pipeline.addHandlers(handler, TLSGate(handler, name: target.names.checked))
        } catch {
            throw Trust.failure(error, to: target.server) ?? error
        }
    }

    /// TCP_USER_TIMEOUT of Linux, which NIO does not name: how long sent bytes, our pings among
    /// them, may stay unacknowledged. It finds a vanished machine while back-pressure keeps us from
    /// reading, and with the ping's interval stays within 45 s.
    private static let tcpUserTimeout: CInt = 18
    private static let userTimeoutMilliseconds = 30_000

    /// TCP_NOTSENT_LOWAT of Linux, which NIO does not name: bytes that the kernel takes before it has sent
    /// those that it has. Without it megabytes wait there on a slow line, and a ping behind them.
    private static let tcpNotSentLowat: CInt = 25

    private static func unreachable(
        _ server: ServerAddress, isProxy: Bool, isLate: Bool, _ error: any Error
    ) -> ControlPlaneError {
        if let error = error as? ControlPlaneError { return error }
        let name = isProxy ? "the proxy \(server)" : "\(server)"
        var isLate = isLate
        if case .connectTimeout? = error as? ChannelError { isLate = true }
        if isLate {
            return ControlPlaneError(.timeout, "\(name) could not be connected to in time")
        }
        return ControlPlaneError(.unreachable, "\(name) cannot be connected to", cause: ConnectionProblem(error))
    }
}

/// The channels of one attempt: happy eyeballs makes several and keeps one.
private final class Attempts: Sendable {
    private struct State {
        var channels: [ObjectIdentifier: (channel: any Channel, result: EventLoopFuture<OpeningRequest.Answer?>)] = [:]
        var isAbandoned = false
    }
    private let state = Mutex(State())

    func add(_ channel: any Channel, _ result: EventLoopFuture<OpeningRequest.Answer?>) {
        state.withLock { $0.channels[ObjectIdentifier(channel)] = (channel, result) }
    }

    /// nil after ``abandon()``.
    func result(of channel: any Channel) -> EventLoopFuture<OpeningRequest.Answer?>? {
        state.withLock { $0.isAbandoned ? nil : $0.channels[ObjectIdentifier(channel)]?.result }
    }

    func abandon() {
        let channels = state.withLock { state in
            state.isAbandoned = true
            return state.channels.values.map(\.channel)
        }
        for channel in channels { channel.close(promise: nil) }
    }
}
