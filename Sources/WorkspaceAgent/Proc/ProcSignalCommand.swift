import AgentProc
import ArgumentParser

/// `workspace-agent proc signal ID SIG`.
struct ProcSignalCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "signal", abstract: "Send a signal to a process and everything it started.",
        discussion: """
            SIG is terminate, kill, or the name of one of SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT and \
            SIGSTOP, in any case and with or without SIG, or its number.

            Example:
              workspace-agent proc signal 1f3b terminate
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_PROC_OUTPUT]")
    var output: ProcFormat = .table

    @Argument(help: "The process ID.", completion: .custom(ProcCompletion.running))
    var id: String

    @Argument(help: "The signal.", completion: .list(SignalName.accepted))
    var sig: String

    func validate() throws {
        guard Self.name(sig) == nil else { return }
        let names = SignalName.accepted.joined(separator: ", ")
        throw ValidationError("\"\(sig)\" is not a signal that the agent sends; use one of \(names)")
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        struct Answer: Decodable { var message: String }
        let client = ProcClient(http: agent.client)
        guard let name = Self.name(sig) else { return }
        let answer = try client.signal(try client.resolve(id), name)
        switch output {
        case .json: try StandardOutput.write(String(decoding: answer.body, as: UTF8.self) + "\n")
        case .table: try StandardOutput.write(client.decode(Answer.self, answer).message + "\n")
        }
    }

    /// The API's name for what was typed; nil when there is none.
    static func name(_ typed: String) -> String? {
        let upper = typed.uppercased()
        let full = upper.hasPrefix("SIG") ? upper : "SIG\(upper)"
        return SignalName.accepted.first { name in
            guard let number = SignalName.number(name) else { return false }
            return [name.uppercased(), "\(number)"].contains(upper) || SignalName.name(number) == full
        }
    }
}
