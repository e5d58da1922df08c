import AgentCore
import Glibc

/// The environment of this program at its start.
package enum ProcessEnvironment {
    package static let current = EnvironmentBuilder.current()
}

/// Where the daemon keeps its sockets and state by default.
package enum AgentPaths {
    package static func home(_ environment: [String: String]) -> String {
        if let home = environment["HOME"], home.hasPrefix("/") { return home }
        return UserAccount.find()?.home ?? "/"
    }

    /// The socket of the HTTP API.
    package static func httpSocket(_ environment: [String: String]) -> String {
        "\(runtimeDirectory(environment))/http.sock"
    }

    private static func runtimeDirectory(_ environment: [String: String]) -> String {
        if let directory = environment["XDG_RUNTIME_DIR"], directory.hasPrefix("/") {
            return "\(directory)/workspace-agent"
        }
        return "/tmp/workspace-agent-\(geteuid())"
    }

    package static func stateDirectory(_ environment: [String: String]) -> String {
        if let directory = environment["XDG_STATE_HOME"], directory.hasPrefix("/") {
            return "\(directory)/workspace-agent"
        }
        let home = home(environment)
        if home != "/", access(home, W_OK) == 0 { return "\(home)/.local/state/workspace-agent" }
        return "/tmp/workspace-agent-\(geteuid())"
    }

    /// Where `dev` keeps everything unless a flag names another place.
    package static func devStateDirectory(_ environment: [String: String]) -> String {
        if let named = environment["WORKSPACE_AGENT_STATE_DIR"], !named.isEmpty { return named }
        return "\(stateDirectory(environment))/dev"
    }
}
