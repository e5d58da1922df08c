import AgentCore
import ControlPlaneSimulator
import Glibc
import LocalAgent
import NIOCore

/// Where everything of a `dev` run is, and what it runs.
struct DevSetup: Sendable {
    var configuration: AgentConfiguration
    var manifest: SimulatedManifest
    var tokenFile: String
    /// Keeps the port that the manifest names until the daemon listens there.
    private var port: ReservedPort?

    /// - Throws: ``ConfigurationError`` for a flag, ``CommandFailure`` for a manifest.
    init(_ command: DaemonOptions, manifest file: String?, environment: [String: String]) throws {
        // Within a workspace these speak of its real agent, and so would its children's.
        let environment = environment.filter { !$0.key.hasPrefix("CODER_AGENT_") }
        var configuration = try AgentConfiguration(command, environment: environment)
        if (command.stateDir ?? "").isEmpty { configuration.stateDirectory = AgentPaths.devStateDirectory(environment) }
        let directory = configuration.stateDirectory
        if command.httpSocket == nil, environment["WORKSPACE_AGENT_HTTP_SOCKET"] == nil {
            configuration.httpSocket = "\(directory)/http.sock"
            configuration.httpSocketIsDefault = true
        }
        if command.socketPath == nil { configuration.agentSocket = "\(directory)/agent.sock" }
        if configuration.httpAddresses.isEmpty {
            let reserved = ReservedPort()
            configuration.httpAddresses = [
                try ListenAddress("127.0.0.1:\(reserved?.number ?? 0)", flag: "--http-address")
            ]
            port = reserved
        }
        if command.boundary.boundaryLogProxySocketPath == nil {
            configuration.boundarySocket = "\(directory)/boundary-audit.sock"
        }
        if command.logDir == nil { configuration.logDirectory = "\(directory)/log" }
        // The terminal belongs to what the control plane receives.
        if command.logHuman == nil { configuration.logHuman = "/dev/null" }

        do {
            manifest =
                try file.map { try SimulatedManifest(path: $0) }
                ?? .demonstration(
                    executable: OwnProgram.path, agentSocket: configuration.agentSocket,
                    healthURL: Self.healthURL(configuration))
        } catch let error as SimulatorError {
            throw CommandFailure(message: "--manifest: \(error)")
        }
        tokenFile = "\(directory)/control-plane.token"
        self.configuration = configuration
    }

    /// What the demonstration's app is asked for: the daemon's own API. A 401 is a sign of health, too.
    private static func healthURL(_ configuration: AgentConfiguration) -> String? {
        guard let address = configuration.httpAddresses.first(where: { $0.port != 0 }) else { return nil }
        var reachable = address
        if address.isWildcard { reachable.host = "127.0.0.1" }
        return "http://\(reachable)/healthz"
    }
}

/// A free port of 127.0.0.1, held so that no other process gets it: the manifest names it before the daemon listens.
///
/// The socket is bound and does not listen; with SO_REUSEADDR on both, the daemon's can be bound beside it.
private final class ReservedPort: Sendable {
    let number: Int
    private let descriptor: CInt

    /// nil when the kernel has none to give.
    init?() {
        descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        var (address, on) = (sockaddr_in(), CInt(1))
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<CInt>.size))
        let descriptor = descriptor
        let bound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                bind(descriptor, pointer, size) == 0 && getsockname(descriptor, pointer, &size) == 0
            }
        }
        number = Int(UInt16(bigEndian: address.sin_port))
        guard bound else { return nil }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }
}
