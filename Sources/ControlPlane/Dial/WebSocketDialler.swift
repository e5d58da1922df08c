import AgentCore
import ControlPlaneAPI
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import WebSockets

/// Opens the transport of the link: a connection, upgraded to a WebSocket
/// (docs/contracts/websockets.md#the-request-that-opens-the-link).
package final class WebSocketDialler: Sendable {
    private let configuration: LinkConfiguration
    private let target: Connector.Target
    private let tokens: any TokenProvider
    private let headers: HeaderSource
    private let group: any EventLoopGroup
    private let connector: Connector
    private let logger: Logger
    private let warnedOfVersion = Once()

    /// - Parameter resolver: finds a host's addresses; nil is the system's.
    init(
        _ configuration: LinkConfiguration, tokens: any TokenProvider, headers: HeaderSource,
        group: any EventLoopGroup, pool: BlockingPool, logger: Logger, resolver: (any Resolver & Sendable)? = nil
    ) {
        self.configuration = configuration
        let url = configuration.url
        target = Connector.Target(
            server: url, proxy: configuration.proxies.proxy(for: url), names: TLSNames(host: url.host))
        self.tokens = tokens
        self.headers = headers
        self.group = group
        self.logger = logger
        connector = Connector(configuration, pool: pool, resolver: resolver)
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
        let url = configuration.url
        let token = try await tokens.refresh()
        var fields = try await headers.headers()
        fields.replaceOrAdd(name: "User-Agent", value: "workspace-agent")
        if let authorization = url.basicAuthorization {
            fields.replaceOrAdd(name: "Authorization", value: authorization.reveal())
        }
        fields.replaceOrAdd(name: "Coder-Session-Token", value: token.reveal())
        let deadline = NIODeadline.now() + configuration.times.dial
        let tls = try await connector.tlsContext(for: target)

        var refusal: ControlPlaneError?
        for version in APIVersion.spoken {
            let request = OpeningRequest(
                host: url.authority, uri: "\(url.path)/api/v2/workspaceagents/me/rpc?version=\(version)&role=agent",
                headers: fields, upgrade: { .webSocket(WebSocketClientHandshake()) }, deadline: deadline,
                limit: configuration.times.dial, initializer: initializer)
            switch try await connector.send(request, to: target, tls: tls, on: group) {
            case .open(let channel): return (channel, version)
            case .answered(let answer):
                let failure = HTTPFailure(status: answer.status, location: answer.location, body: answer.body)
                let error = failure.error("GET \(url)/api/v2/workspaceagents/me/rpc", sent: fields)
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
            .version, "\(url) speaks none of the agent API's versions \(spoken)", cause: refusal)
    }
}
