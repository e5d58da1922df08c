import AgentCore
import ControlPlaneAPI
import DRPC
import FoundationEssentials
import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Synchronization
import WebSockets

/// The control plane's side of the link on a socket: HTTP, WebSocket, yamux and the
/// ``AgentService`` on top, with nothing behind it.
package final class SimulatorServer: Sendable {
    private struct State {
        var listener: (any Channel)?
        var stun: (any Channel)?
        var isStopped = false
        var connections: [Int: any Channel] = [:]
        /// Those of mere requests, too.
        var channels: [ObjectIdentifier: any Channel] = [:]
        var nextConnection = 0
        var claim: String?
        /// Requests that wait for a claim, or for a login, with what sends them their answer.
        var reinits: [Int: @Sendable (String) -> Void] = [:]
        var logins: [Int: @Sendable (ExternalAuth) -> Void] = [:]
        var nextWaiter = 0
        var externalAuth: ExternalAuth?
    }

    package let service: AgentService
    package let coordination = CoordinationService()
    package let relay: SimulatorRelay
    package var recorder: Recorder { service.recorder }
    package var faults: Faults { service.faults }
    private let configuration: Configuration
    private let group: any EventLoopGroup
    private let state = Mutex(State())
    private let budget = UnfinishedBudget()

    private init(configuration: Configuration, service: AgentService, group: any EventLoopGroup) {
        self.configuration = configuration
        self.service = service
        self.group = group
        relay = SimulatorRelay(configuration.relay, clock: service.clock)
        state.withLock { $0.externalAuth = configuration.externalAuth }
    }

    var routes: RESTRoutes {
        RESTRoutes(
            token: configuration.token, maximumVersion: configuration.maximumVersion,
            gitSSHKey: configuration.gitSSHKey, externalAuth: state.withLock { $0.externalAuth },
            isPrebuild: configuration.isPrebuild)
    }

    /// Listens and serves until ``stop()``.
    /// - Throws: ``SimulatorError`` that names the address or file.
    package static func start(
        configuration: Configuration, service: AgentService, group: any EventLoopGroup
    ) async throws -> SimulatorServer {
        let server = SimulatorServer(configuration: configuration, service: service, group: group)
        let tls = try configuration.tls.map(Self.tlsContext)
        let bootstrap = ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1_024)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try server.configure(channel, tls) }
            }
        let listener = try await server.listen(configuration.address.text) {
            switch configuration.address {
            case .tcp(let host, let port): try await bootstrap.bind(host: host, port: port).get()
            case .unix(let path): try await bootstrap.bind(unixDomainSocketPath: path).get()
            }
        }
        server.state.withLock { $0.listener = listener }
        do {
            try await server.startSTUN()
        } catch {
            await server.stop()
            throw error
        }
        if let map = server.embeddedRelay { service.serve(map) }
        return server
    }

    private func startSTUN() async throws {
        guard let port = configuration.stunPort else { return }
        let host = configuration.address.host
        let stun = try await listen("UDP \(host):\(port)") {
            try await STUNResponder.start(host: host, port: port, group: group)
        }
        state.withLock { $0.stun = stun }
    }

    private func listen(_ place: String, _ bind: () async throws -> any Channel) async throws -> any Channel {
        do {
            return try await bind()
        } catch {
            let reason = (error as? IOError).map { errnoText($0.errnoCode) } ?? "\(error)"
            throw SimulatorError(.listen, "cannot listen on \(place): \(reason)")
        }
    }

    private static func tlsContext(_ files: (certificate: String, key: String)) throws -> NIOSSLContext {
        do {
            let certificates = try NIOSSLCertificate.fromPEMFile(files.certificate)
            let key = try NIOSSLPrivateKey(file: files.key, format: .pem)
            var tls = TLSConfiguration.makeServerConfiguration(
                certificateChain: certificates.map { .certificate($0) }, privateKey: .privateKey(key))
            tls.applicationProtocols = ["http/1.1"]
            return try NIOSSLContext(configuration: tls)
        } catch {
            throw SimulatorError(
                .listen, "cannot use the certificate \(files.certificate) with the key \(files.key)", cause: error)
        }
    }

    /// Where it listens; nil once it is stopped.
    package var address: SocketAddress? { state.withLock { $0.listener?.localAddress } }

    /// `http://127.0.0.1:1234`, what `--agent-url` takes; `unix:PATH` for a unix socket.
    package var url: String {
        if case .unix(let path) = configuration.address { return "unix:\(path)" }
        guard let address, let ip = address.ipAddress, let port = address.port else { return "" }
        let host = ip.contains(":") ? "[\(ip)]" : ip
        return "\(configuration.tls == nil ? "http" : "https")://\(host):\(port)"
    }

    /// Where the STUN server listens; nil where there is none.
    package var stunAddress: SocketAddress? { state.withLock { $0.stun?.localAddress } }

    var webSocketTimes: WebSocketTimes { configuration.webSocketTimes }
    var isPlain: Bool { configuration.tls == nil }

    /// RPC connections that are open.
    package var open: Int { state.withLock { $0.connections.count } }

    /// Closes the listener and cuts every connection.
    package func stop() async {
        let (listener, stun) = state.withLock { state in
            state.reinits = [:]
            state.logins = [:]
            state.isStopped = true
            return (state.listener.take(), state.stun.take())
        }
        try? await listener?.close()
        try? await stun?.close()
        let channels = state.withLock { Array($0.channels.values) }
        for channel in channels { channel.eventLoop.execute { Self.cut(channel) } }
        for channel in channels { try? await channel.closeFuture.get() }
    }

    // MARK: What is done to open connections

    /// Sends a yamux GoAway with this code on every connection: 0 normal, 1 protocol error,
    /// 2 internal error. The connections stay.
    package func goAway(_ code: UInt32) { each { SimulatorPipeline.goAway($0, code) } }

    /// Sends a WebSocket close frame with this code on every connection, then ends it.
    package func closeWebSockets(_ code: UInt16) { each { SimulatorPipeline.closeWebSocket($0, code) } }

    /// Ends every connection with a FIN and without a word.
    package func cut() { each(Self.cut) }

    /// Resets every connection.
    package func reset() { each(Self.reset) }

    private func each(_ body: @escaping @Sendable (any Channel) -> Void) {
        for channel in state.withLock({ Array($0.connections.values) }) { channel.eventLoop.execute { body(channel) } }
    }

    /// Ends the transport, below TLS and WebSocket, which would send a closing handshake.
    static func cut(_ channel: any Channel) { SimulatorPipeline.closeTransport(channel) }

    static func reset(_ channel: any Channel) {
        // A linger time of none makes the close a reset.
        guard let socket = channel as? any SocketOptionProvider else { return cut(channel) }
        socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).whenComplete { _ in cut(channel) }
    }

    /// Tells the agents that wait at `reinit`, and those that come to, that this owner has claimed
    /// the workspace.
    package func claim(owner: String, workspace: String) {
        let event = Self.event(owner: owner, workspace: workspace)
        let waiting = state.withLock { state in
            state.claim = event
            return Array(state.reinits.values)
        }
        for send in waiting { send(event) }
    }

    private static func event(owner: String, workspace: String) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        let fields = ["owner_id": owner, "reason": "prebuild_claimed", "workspace_id": workspace]
        return "data: \(String(decoding: (try? encoder.encode(fields)) ?? Data(), as: UTF8.self))\n\n"
    }

    func reinitBegan(_ send: @escaping @Sendable (String) -> Void) -> Int? {
        let (id, claim) = state.withLock { state -> (Int?, String?) in
            guard state.reinits.count < SimulatorLimits.waiters else { return (nil, nil) }
            state.nextWaiter += 1
            state.reinits[state.nextWaiter] = send
            return (state.nextWaiter, state.claim)
        }
        if let claim { send(claim) }
        return id
    }

    /// The user logs in to the git host: `external-auth` answers this from now on, also those that wait.
    package func logIn(_ auth: ExternalAuth) {
        let waiting = state.withLock { state in
            state.externalAuth = auth
            defer { state.logins = [:] }
            return Array(state.logins.values)
        }
        for answer in waiting { answer(auth) }
    }

    /// Requests that wait for a login.
    package var waitingForLogin: Int { state.withLock { $0.logins.count } }

    func loginBegan(_ answer: @escaping @Sendable (ExternalAuth) -> Void) -> Int? {
        let (id, auth) = state.withLock { state -> (Int?, ExternalAuth?) in
            guard state.logins.count < SimulatorLimits.waiters else { return (nil, nil) }
            state.nextWaiter += 1
            // The user may have logged in since the request was looked at.
            if let auth = state.externalAuth, auth.url.isEmpty { return (state.nextWaiter, auth) }
            state.logins[state.nextWaiter] = answer
            return (state.nextWaiter, nil)
        }
        if let auth { answer(auth) }
        return id
    }

    func waiterEnded(_ id: Int) {
        state.withLock { state in
            state.reinits[id] = nil
            state.logins[id] = nil
        }
    }

    func answered(_ head: HTTPRequestHead, _ status: Int) {
        recorder.connection(0, .answered(method: head.method.rawValue, path: head.uri, status: status))
    }

    // MARK: Pipelines

    private func configure(_ channel: any Channel, _ tls: NIOSSLContext?) throws {
        let pipeline = channel.pipeline.syncOperations
        let id = ObjectIdentifier(channel)
        let isStopped = state.withLock { state in
            if !state.isStopped { state.channels[id] = channel }
            return state.isStopped
        }
        // Accepted before the listener was closed, and seen after.
        if isStopped { throw ChannelError.ioOnClosedChannel }
        channel.closeFuture.whenComplete { [self] _ in _ = state.withLock { $0.channels.removeValue(forKey: id) } }
        if channel.localAddress?.port != nil {
            // Small frames must not wait for each other's acknowledgement.
            channel.setOption(.tcpOption(.tcp_nodelay), value: 1).whenFailure { _ in }
        }
        try pipeline.addHandler(TransportEnd())
        if let tls { try pipeline.addHandler(NIOSSLServerHandler(context: tls)) }
        try pipeline.addHandler(HTTPResponseEncoder())
        try pipeline.addHandler(ByteToMessageHandler(HTTPRequestDecoder(leftOverBytesStrategy: .forwardBytes)))
        try pipeline.addHandler(SimulatorHTTPHandler(server: self))
    }

    /// Puts the RPC behind a channel whose 101 is sent.
    func upgraded(_ channel: any Channel, _ version: APIVersion, _ role: String, _ fault: ConnectionFault?) throws {
        let number = state.withLock { state in
            state.nextConnection += 1
            state.connections[state.nextConnection] = channel
            return state.nextConnection
        }
        let end = ConnectionEnd()
        let bound = NIOLoopBound(end, eventLoop: channel.eventLoop)
        recorder.connection(number, .opened(version: version.description, role: role))
        channel.closeFuture.whenComplete { [self] _ in
            _ = state.withLock { $0.connections.removeValue(forKey: number) }
            recorder.connection(number, .closed(bound.value.reason))
        }
        let caller = AgentService.Caller(connection: number, version: version) {
            channel.eventLoop.execute { Self.cut(channel) }
        }
        var router = service.router(caller)
        if role == "agent" { CoordinationRPC(coordination: coordination, service: service).add(caller, to: &router) }
        try SimulatorPipeline.install(
            on: channel, router: router, budget: budget, times: configuration.webSocketTimes, fault: fault, end: end)
    }
}
