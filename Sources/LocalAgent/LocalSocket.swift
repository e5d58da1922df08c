import AgentCore
import AgentSocket
import Glibc

/// Where a command finds the daemon's sockets: as named by flag or variable, else in the default place, else those
/// of a running `dev`, which keeps its own in its state directory.
package enum LocalSocket {
    /// The socket of the HTTP API.
    package static func http(_ flag: String?, _ environment: [String: String]) -> String {
        find(
            flag ?? environment["WORKSPACE_AGENT_HTTP_SOCKET"], AgentPaths.httpSocket(environment),
            "http.sock", environment)
    }

    /// The agent socket.
    package static func agent(_ flag: String?, _ environment: [String: String]) -> String {
        find(
            flag ?? environment["CODER_AGENT_SOCKET_PATH"], AgentSocketServer.Configuration.defaultPath, "agent.sock",
            environment)
    }

    /// Connects to the HTTP API's socket.
    /// - Throws: ``CommandFailure`` that says what to check.
    static func connect(_ path: String) throws -> CInt {
        do {
            return try connectToOwnSocket(path)
        } catch {
            throw CommandFailure(
                message: "cannot reach the agent at \(error); "
                    + "check that it runs and that --http-socket names its socket", isLost: true)
        }
    }

    private static func find(
        _ named: String?, _ usual: String, _ name: String, _ environment: [String: String]
    ) -> String {
        if let named, !named.isEmpty { return named }
        let dev = "\(AgentPaths.devStateDirectory(environment))/\(name)"
        return !answers(usual) && answers(dev) ? dev : usual
    }

    private static func answers(_ path: String) -> Bool {
        guard let descriptor = try? connectToOwnSocket(path) else { return false }
        close(descriptor)
        return true
    }
}
