import AgentCore
import DERP
import NIOCore
import NIOHTTP1
import NIOPosix
import WebSockets

/// Opens connections to relays, with the proxy, the CA file and the extra headers of the link to the control plane
/// (docs/contracts/derp.md#dialling).
///
/// Certificates are checked whatever the map says, and HTTP/2 is not offered, so that no relay can agree on it.
package struct RelayDialler: RelayTransport {
    private let controlPlane: ServerAddress
    private let proxies: ProxySettings
    private let headers: HeaderSource
    private let clock: AgentClock
    private let connector: Connector

    /// - Parameter resolver: finds a host's addresses; nil is the system's.
    init(
        _ configuration: LinkConfiguration, headers: HeaderSource, pool: BlockingPool, clock: AgentClock,
        resolver: (any Resolver & Sendable)? = nil
    ) {
        controlPlane = configuration.url
        proxies = configuration.proxies
        self.headers = headers
        self.clock = clock
        connector = Connector(configuration, pool: pool, resolver: resolver)
    }

    package func dial(
        _ relay: RelayURL, webSocket: Bool, on loop: any EventLoop, within limit: Duration,
        initializer: @escaping @Sendable (any Channel) throws -> Void
    ) async throws -> any Channel {
        let outcome = try await send(RelayURL.path, to: relay, on: loop, within: limit, initializer) {
            webSocket ? .webSocket(WebSocketClientHandshake(subprotocol: "derp")) : .derp
        }
        switch outcome {
        case .open(let channel): return channel
        case .answered(let answer):
            throw RelayDialError(
                "\(relay) answered Upgrade: \(webSocket ? "websocket" : "DERP") with \(answer.status)",
                refusesUpgrade: !webSocket && (400..<500).contains(answer.status))
        }
    }

    package func latency(_ relay: RelayURL, on loop: any EventLoop, within limit: Duration) async throws -> Duration {
        let outcome = try await send(RelayURL.latencyPath, to: relay, on: loop, within: limit, { _ in }) { nil }
        switch outcome {
        case .answered(let answer) where (200..<300).contains(answer.status): return answer.delay
        case .answered(let answer):
            throw RelayDialError("\(relay.server(path: RelayURL.latencyPath)) answered with \(answer.status)")
        case .open(let channel):
            channel.close(promise: nil)
            throw RelayDialError("\(relay) upgraded a connection that was to stay what it is")
        }
    }

    private func send(
        _ path: String, to relay: RelayURL, on loop: any EventLoop, within limit: Duration,
        _ initializer: @escaping @Sendable (any Channel) throws -> Void, upgrade: @escaping @Sendable () -> Upgrade?
    ) async throws -> Connector.Outcome {
        let server = relay.server(path: path)
        do {
            let time = TimeAmount(limit)
            let deadline = NIODeadline.now() + time
            let target = Connector.Target(
                server: server, alternatives: relay.alternatives, proxy: proxies.proxy(for: server),
                names: TLSNames(relay))
            let late = ControlPlaneError(.timeout, "the header command and the CA file took longer than \(limit)")
            let (fields, tls) = try await withTimeLimit(limit, clock, late) {
                (try await requestFields(for: server), try await connector.tlsContext(for: target))
            }
            let request = OpeningRequest(
                host: relay.authority, uri: path, headers: fields, upgrade: upgrade, deadline: deadline, limit: time,
                initializer: initializer)
            return try await connector.send(request, to: target, tls: tls, on: loop)
        } catch {
            if Task.isCancelled || error is CancellationError { throw CancellationError() }
            let text = "\(error)"
            throw RelayDialError(text.contains(server.description) ? text : "\(server): \(text)")
        }
    }

    /// The session token is not among them: a relay has no use for it, and the map decides where the relays are.
    private func requestFields(for server: ServerAddress) async throws -> HTTPHeaders {
        var fields = try await headers.headers()
        fields.replaceOrAdd(name: "User-Agent", value: "workspace-agent")
        // Those of the control plane's URL are for what guards it, and so its own relay; no other server gets them.
        let isControlPlane =
            server.isSecure == controlPlane.isSecure && server.port == controlPlane.port
            && server.host.lowercased() == controlPlane.host.lowercased()
        if isControlPlane, let authorization = controlPlane.basicAuthorization {
            fields.replaceOrAdd(name: "Authorization", value: authorization.reveal())
        }
        return fields
    }
}

extension RelayURL {
    fileprivate func server(path: String) -> ServerAddress {
        ServerAddress(isSecure: !isPlain, host: host, port: Int(port), path: path)
    }
}
