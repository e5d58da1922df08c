import AgentCore
import AgentHTTP
import CPlatform
import Glibc
import LocalAgent
import NIOCore
import ServiceLifecycle
import Sodium
import Tailnet

/// The plain WireGuard node: its peers reach the HTTP API and this machine's loopback ports.
struct TunnelParts: Service {
    private let interface: WireGuardInterface
    private let ports: TunnelPorts.Configuration

    var description: String { "WireGuard on UDP port \(interface.port)" }

    /// Opens the node's sockets; it serves once it runs.
    ///
    /// nil when none is configured, or libsodium is missing: everything else still works, and /healthz says why.
    /// - Parameter ports: what peers find at our addresses.
    /// - Throws: ``CommandFailure`` when the file is wrong or its port cannot be had.
    init?(_ context: DaemonContext, _ ports: TunnelPorts.Configuration) async throws {
        let (configuration, logger) = (context.configuration, context.logger)
        guard let path = configuration.wireGuardFile else { return nil }
        if let problem = Sodium.problem {
            let text = "wireguard: \(problem); install libsodium23"
            logger.error("\(text)")
            context.health.set("wireguard", .init(text))
            return nil
        }
        do {
            let (settings, warnings) = try Self.read(path)
            for warning in warnings { logger.warning("\(warning)") }
            let pool = context.pool
            let interface = try await WireGuardInterface.open(
                settings, on: context.group.next(), logger: logger
            ) { name, port in
                try await pool.run {
                    guard let endpoint = try SocketAddress.makeAddressResolvingHost(name, port: Int(port)).endpoint
                    else { throw CoreError(.invalid, "it has no address") }
                    return endpoint
                }
            }
            context.health.register("wireguard") { interface.problem.map { .init("wireguard: \($0)") } }
            var own = ports
            own.ownUDPPorts = [interface.port]
            (self.interface, self.ports) = (interface, own)
        } catch {
            throw CommandFailure(message: "--wireguard-config: \(error)")
        }
    }

    /// The file of a node.
    /// - Returns: it, and what may have been meant otherwise.
    static func read(_ path: String) throws(CoreError) -> (WireGuardConfiguration, warnings: [String]) {
        let file = try OwnFile.readNamed(path, limit: WireGuardConfiguration.mostBytes)
        do {
            let configuration = try WireGuardConfiguration(String(decoding: file.bytes, as: UTF8.self))
            var warnings = configuration.warnings
            if file.isOpenToOthers { warnings.append("it has a private key and is open to other users; use mode 0600") }
            return (configuration, warnings.map { "\(path): \($0)" })
        } catch {
            throw CoreError(.invalid, "\(path): \(error)")
        }
    }

    /// What peers of a tunnel get: a service at each of these ports, and this machine's loopback ports but those that
    /// this process listens on.
    static func ports(_ context: DaemonContext, _ http: HTTPServer) async throws -> TunnelPorts.Configuration {
        let policy = AccessPolicy(
            tokenRule: .none, allowedHosts: context.configuration.allowedHosts, ownUID: geteuid())
        let listening = try await context.pool.run { ownPorts() }
        return TunnelPorts.Configuration(
            services: [
                TunnelPorts.speedTest: { channel, _ in try SpeedTest.serve(channel) },
                TunnelPorts.http: { channel, remote in
                    try http.serve(channel, peer: "\(remote)", policy: policy)
                },
            ],
            // The page's listener is opened when the page is asked for first.
            isOwnPort: { listening.contains($0) || http.listens(on: Int($0)) })
    }

    /// The TCP ports on which this process listens, those of an embedded control plane among them. Asked of the
    /// descriptors themselves: /proc takes one to look at, and what cannot be read there would pass for "none".
    private static func ownPorts() -> Set<UInt16> {
        // The kernel gives the lowest free number, so those of the daemon's first moments are low.
        Set(
            (0..<min(DescriptorBudget.limit, 1 << 16)).compactMap { number -> UInt16? in
                let port = wa_listening_port(CInt(number))
                return port > 0 ? UInt16(exactly: port) : nil
            })
    }

    func run() async throws {
        let (interface, ports) = (interface, ports)
        try await interface.tunnel.loop.submit { interface.start(ports) }.get()
        try? await gracefulShutdown()
        try await interface.tunnel.loop.submit { interface.close() }.get()
    }
}
