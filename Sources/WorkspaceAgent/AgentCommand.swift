import ArgumentParser
import LocalAgent

/// `workspace-agent agent`: the daemon.
struct AgentCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "agent", abstract: "Run the daemon.",
        discussion: """
            Every flag can be set by the environment variable in brackets; the flag wins.

            Example:
              workspace-agent agent --http-address 127.0.0.1:7717 --log-level debug
              workspace-agent agent --agent-url https://coder.example.com --agent-token-file /run/agent-token
            """)

    @OptionGroup
    var options: DaemonOptions

    func run() throws {
        let configuration: AgentConfiguration
        do {
            configuration = try AgentConfiguration(options, environment: ProcessEnvironment.current)
        } catch {
            throw ValidationError(error.message)
        }
        try Daemon.run(configuration)
    }
}
