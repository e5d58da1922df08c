import ArgumentParser

/// `workspace-agent proc …`: processes through the agent's process API.
struct ProcCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "proc", abstract: "Run and manage processes in the workspace.",
        discussion: """
            Where a process ID is asked for, its first characters do.

            Example:
              workspace-agent proc run -- make test
            """,
        subcommands: [
            ProcRunCommand.self, ProcListCommand.self, ProcOutputCommand.self, ProcAttachCommand.self,
            ProcWaitCommand.self, ProcSignalCommand.self,
        ])
}

/// How a command prints.
enum ProcFormat: String, ExpressibleByArgument, CaseIterable {
    case table
    case json
}
