import AgentCore
import Logging
import NIOCore

/// Everything below the run loop that talks to the control plane, made from one configuration: one
/// token provider, one set of headers, one HTTP client.
package struct ControlPlaneAccess: Sendable {
    package let tokens: RememberedToken
    package let dialler: WebSocketDialler
    package let relays: RelayDialler
    package let rest: ControlPlaneREST
    private let transport: HTTPTransport

    /// - Parameters:
    ///   - runner: starts the header command.
    ///   - environment: of the header command.
    package init(
        _ configuration: LinkConfiguration, group: any EventLoopGroup, pool: BlockingPool, clock: AgentClock,
        runner: any CommandRunner, environment: [String: String], logger: Logger
    ) {
        let times = configuration.times
        let headers = HeaderSource(configuration, runner: runner, environment: environment, clock: clock)
        let transport = HTTPTransport(
            server: configuration.url, proxy: configuration.proxies.proxy(for: configuration.url),
            caFile: configuration.caFile, times: times, group: group, pool: pool, clock: clock)
        func identity(_ cloud: InstanceIdentity.Cloud) -> InstanceIdentity {
            InstanceIdentity(cloud, configuration, headers: headers, controlPlane: transport) { server in
                HTTPTransport(
                    server: server, proxy: nil, caFile: nil, times: times, group: group, pool: pool, clock: clock)
            }
        }
        let tokens: any TokenProvider =
            switch configuration.authentication {
            case .token(let token): StaticToken(token)
            case .tokenFile(let path): TokenFile(path: path, pool: pool, logger: logger)
            case .aws: identity(.aws)
            case .azure: identity(.azure)
            case .google: identity(.google)
            }
        let remembered = RememberedToken(tokens)
        self.tokens = remembered
        self.transport = transport
        dialler = WebSocketDialler(
            configuration, tokens: remembered, headers: headers, group: group, pool: pool, logger: logger)
        relays = RelayDialler(configuration, headers: headers, pool: pool, clock: clock)
        rest = ControlPlaneREST(transport: transport, tokens: remembered, headers: headers, clock: clock, times: times)
    }

    /// Ends what is kept open between requests.
    package func shutdown() async { await transport.shutdown() }
}
