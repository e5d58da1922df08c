import AgentCore
import ControlPlaneAPI
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Synchronization

/// Opens the transport of the link: TCP, a proxy where one is set, TLS, and the WebSocket (spec:
/// dRPC and yamux, WebSocket below it).
package final class WebSocketDialler: Sendable {
    private let configuration: LinkConfiguration
    private let proxy: ServerAddress?
    private let tokens: any TokenProvider
    private let headers: HeaderSource
    private let group: any EventLoopGroup
    private let pool: BlockingPool
    private let logger: Logger
    private let resolver: (any Resolver & Sendable)?
    private let warnedOfVersion = Once()

    /// - Parameter resolver: finds a host's addresses; nil is the system's.
    init(
        _ configuration: LinkConfiguration, tokens: any TokenProvider, headers: HeaderSource,
        group: any EventLoopGroup, pool: BlockingPool, logger: Logger, resolver: (any Resolver & Sendable)? = nil
    ) {
        self.configuration = configuration
        proxy = configuration.proxies.proxy(for: configuration.url)
        self.tokens = tokens
        self.headers = headers
        self.group = group
        self.pool = pool
        self.logger = logger
        self.resolver = resolver
    }

    /// Connects with the newest version that the control plane knows.
    ///
    /// - Parameter initializer: runs on the channel's loop when the WebSocket is open and before
    ///   any byte is read from it; adds the handlers that read and write the byte stream.
    /// - Returns: the open channel, which the caller closes with a closing handshake.
    /// - Throws: ``ControlPlaneError``, or `CancellationError`.
    package func connectTransport(
        initializer: @escaping @Sendable (any Channel) throws -> Void
    ) async throws -> (channel: any Channel, version: APIVersion) {
        let token = try await tokens.refresh()
        var fields = try await headers.headers()
        fields.replaceOrAdd(name: "User-Agent", value: "workspace-agent")
        if let authorization = configuration.url.basicAuthorization {
            fields.replaceOrAdd(name: "Authorization", value: authorization.reveal())
        }
        fields.replaceOrAdd(name: "Coder-Session-Token", value: token.reveal())
        let deadline = NIODeadline.now() + configuration.times.dial
        let tls = try await tlsContext()

        var refusal: ControlPlaneError?
        for version in APIVersion.spoken {
            let uri = "/api/v2/workspaceagents/me/rpc?version=\(version)&role=agent"
            switch try await attempt(uri, fields, tls, deadline, initializer) {
            case .open(let channel): return (channel, version)
            case .refused(let failure):
                let error = failure.error("GET \(configuration.url)/api/v2/workspaceagents/me/rpc", sent: fields)
                guard failure.refusesVersion else { throw error }
                refusal = error
                if warnedOfVersion.first() {
                    logger.warning(
                        "The control plane does not know this version of the agent API; trying older ones.",
                        metadata: ["version": "\(version)"])
                }
            }
        }
        let spoken = APIVersion.spoken.map(\.description).joined(separator: ", ")
        throw ControlPlaneError(
            .version, "\(configuration.url) speaks none of the agent API's versions \(spoken)", cause: refusal)
    }

    private func tlsContext() async throws -> NIOSSLContext? {
        guard configuration.url.isSecure else { return nil }
        let caFile = configuration.caFile
        // Made anew each time, so that a CA file may change while we run. Reads files.
        return try await pool.run {
            let trust = try Trust.configuration(caFile: caFile)
            do {
                return try NIOSSLContext(configuration: trust)
            } catch {
                throw ControlPlaneError(.tls, "the system's CA roots cannot be loaded", cause: error)
            }
        }
    }

    private enum Outcome: Sendable {
        case open(any Channel)
        case refused(HTTPFailure)
    }

    private func attempt(
        _ uri: String, _ fields: HTTPHeaders, _ tls: NIOSSLContext?, _ deadline: NIODeadline,
        _ initializer: @escaping @Sendable (any Channel) throws -> Void
    ) async throws -> Outcome {
        let (url, proxy, limit) = (configuration.url, proxy, configuration.times.dial)
        let attempts = Attempts()
        let first = proxy ?? url
        let bootstrap = ClientBootstrap(group: group)
            .resolver(resolver)
            .connectTimeout(configuration.times.connect)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.tcpOption(.init(rawValue: Self.tcpUserTimeout)), value: Self.userTimeoutMilliseconds)
            .channelOption(.tcpOption(.init(rawValue: Self.tcpNotSentLowat)), value: DialLimits.unsentBytes)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let proxy { try pipeline.addHandler(ProxyConnectHandler(proxy: proxy, target: url)) }
                    if let tls {
                        // Without a name the certificate is checked against the address.
                        let name = IPPrefix(url.host) == nil ? url.host : nil
                        do {
                            try pipeline.addHandler(NIOSSLClientHandler(context: tls, serverHostname: name))
                        } catch {
                            throw Trust.failure(error, to: url) ?? error
                        }
                    }
                    let result = channel.eventLoop.makePromise(of: HTTPFailure?.self)
                    let handler = UpgradeHandler(
                        server: url, uri: uri, headers: fields, deadline: deadline, limit: limit, result: result,
                        initializer: initializer)
                    attempts.add(channel, result.futureResult)
                    try UpgradeHandler.add(to: channel, handler)
                }
            }
        let outcome = group.any().makePromise(of: Outcome.self)
        bootstrap.connect(host: first.host, port: first.port).whenComplete { result in
            switch result {
            case .failure(let error):
                var failure = Self.unreachable(first, isProxy: proxy != nil, error)
                if NIODeadline.now() >= deadline { failure.code = .timeout }
                outcome.fail(failure)
            case .success(let channel):
                guard let upgrade = attempts.result(of: channel) else {
                    // Given up meanwhile.
                    channel.close(promise: nil)
                    return outcome.fail(CancellationError())
                }
                upgrade.map { $0.map(Outcome.refused) ?? .open(channel) }.cascade(to: outcome)
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

    /// TCP_USER_TIMEOUT of Linux, which NIO does not name: how long sent bytes, our pings among
    /// them, may stay unacknowledged. It finds a vanished machine while back-pressure keeps us from
    /// reading, and with the ping's interval stays within 45 s.
    private static let tcpUserTimeout: CInt = 18
    private static let userTimeoutMilliseconds = 30_000

    /// TCP_NOTSENT_LOWAT of Linux, which NIO does not name: bytes that the kernel takes before it has sent
    /// those that it has. Without it megabytes wait there on a slow line, and a ping behind them.
    private static let tcpNotSentLowat: CInt = 25

    private static func unreachable(_ server: ServerAddress, isProxy: Bool, _ error: any Error) -> ControlPlaneError {
        if let error = error as? ControlPlaneError { return error }
        let name = isProxy ? "the proxy \(server)" : "\(server)"
        if case .connectTimeout? = error as? ChannelError {
            return ControlPlaneError(.timeout, "\(name) could not be connected to in time")
        }
        return ControlPlaneError(.unreachable, "\(name) cannot be connected to", cause: ConnectionProblem(error))
    }
}

/// The channels of one attempt: happy eyeballs makes several and keeps one.
private final class Attempts: Sendable {
    private struct State {
        var channels: [ObjectIdentifier: (channel: any Channel, result: EventLoopFuture<HTTPFailure?>)] = [:]
        var isAbandoned = false
    }
    private let state = Mutex(State())

    func add(_ channel: any Channel, _ result: EventLoopFuture<HTTPFailure?>) {
        state.withLock { $0.channels[ObjectIdentifier(channel)] = (channel, result) }
    }

    /// nil after ``abandon()``.
    func result(of channel: any Channel) -> EventLoopFuture<HTTPFailure?>? {
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
