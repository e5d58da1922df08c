import AgentProc
import ArgumentParser
import LocalAgent

/// What shells offer for the arguments of `proc`. Without an agent they offer nothing.
enum ProcCompletion {
    /// What a person waits for a completion at most.
    private static let limit = Duration.seconds(1)
    private static let descriptionColumns = 60

    static let running: @Sendable ([String], Int, String) -> [String] = { words, _, _ in
        ids(words).filter { $0.running != false }.map(offer)
    }

    static let all: @Sendable ([String], Int, String) -> [String] = { words, _, _ in ids(words).map(offer) }

    static let waitFor: @Sendable ([String], Int, String) -> [String] = { _, _, _ in
        // A bare colon is where zsh's description begins.
        let colon = CompletionShell.requesting == .zsh ? "\\:" : ":"
        return ["exit"] + ["output", "port", "file"].map { $0 + colon }
    }

    private static func ids(_ words: [String]) -> [ProcessState] {
        var typed: String?
        for (word, following) in zip(words, words.dropFirst() + [""]) {
            if word == "--http-socket" { typed = following }
            if word.hasPrefix("--http-socket=") { typed = String(word.dropFirst("--http-socket=".count)) }
        }
        let socket = LocalSocket.http(typed, ProcessEnvironment.current)
        return (try? ProcClient(http: LocalClient(socket: socket)).processes(limit: limit)) ?? []
    }

    /// An id with its command, where the shell shows such a thing.
    private static func offer(_ process: ProcessState) -> String {
        let id = process.id ?? ""
        let command = TextTable.harmless(process.command ?? "").prefix(descriptionColumns)
        switch CompletionShell.requesting {
        case .fish: return "\(id)\t\(process.status): \(command)"
        case .zsh: return "\(id):\(process.status)\\: \(command.split(separator: "\\").joined(separator: "\\\\"))"
        default: return id
        }
    }
}

/// `workspace-agent completion SHELL`.
struct CompletionCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "completion", abstract: "Print the completion script of a shell.",
        discussion: """
            bash: put  source <(workspace-agent completion bash)  into ~/.bashrc. zsh: write the output to a file \
            named _workspace-agent in a directory of $fpath. fish: write it to \
            ~/.config/fish/completions/workspace-agent.fish.

            Example:
              workspace-agent completion bash
            """)

    @Argument(help: "bash, zsh or fish.", completion: .list(["bash", "zsh", "fish"]))
    var shell: String

    func run() throws {
        guard let shell = CompletionShell(rawValue: shell) else {
            throw ValidationError("the shell must be bash, zsh or fish, not \"\(shell)\"")
        }
        try StandardOutput.write(WorkspaceAgent.completionScript(for: shell) + "\n")
        if shell == .bash { try StandardOutput.write(Self.noSpaceBehindColons) }
    }

    private static let noSpaceBehindColons = """
        # What ends with a colon wants a value behind it.
        _workspace-agent_without_space() {
            _workspace-agent "${@}"
            if [[ "${#COMPREPLY[@]}" -eq 1 && "${COMPREPLY[0]}" = *: ]]; then compopt -o nospace; fi
        }
        complete -o filenames -F _workspace-agent_without_space workspace-agent

        """
}
