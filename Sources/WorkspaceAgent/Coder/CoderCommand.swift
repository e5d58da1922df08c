import ArgumentParser

/// The program under the name `coder`: of that program's commands those that templates and scripts of a workspace use.
struct CoderCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "coder",
        abstract: "The commands of Coder's program that workspaces use, provided by workspace-agent.",
        discussion: """
            Example:
              coder stat cpu
            """,
        version: "workspace-agent \(BuildInfo.version)",
        subcommands: [
            AgentCommand.self, StatCommand.self, ExternalAuthCommand.self, ExpCommand.self, SyncCommand.self,
            GitSSHCommand.self, GitAskpassCommand.self, VersionCommand.self,
        ])

    /// Whether a program that was started with this as `argv[0]` is to be `coder`.
    static func isName(_ program: String) -> Bool { program.split(separator: "/").last == "coder" }

    /// What to say when the arguments ask for a command of Coder's that is not here; nil when they do not.
    static func refusal(of arguments: [String]) -> String? {
        var command: any ParsableCommand.Type = self
        var words: [String] = []
        for argument in arguments {
            let subcommands = command.configuration.subcommands
            if argument.hasPrefix("-") || subcommands.isEmpty || words.isEmpty && argument == "help" { return nil }
            words.append(argument)
            guard let next = subcommands.first(where: { $0.configuration.commandName == argument }) else {
                return "coder \(TextTable.harmless(words.joined(separator: " "))) is not part of workspace-agent; "
                    + "install Coder's CLI to use it."
            }
            command = next
        }
        return nil
    }
}
