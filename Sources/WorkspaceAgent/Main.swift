import AgentCore
import ArgumentParser
import CPlatform
import GitCredentials
import GitWatch
import Glibc
import LocalAgent

/// The executable: picks a command and turns its outcome into an exit code (0 done, 1 failed, 2 bad
/// usage, 130 interrupted).
@main
struct WorkspaceAgent: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "workspace-agent",
        abstract: "Lets a control plane, AI agents and scripts work in a developer's workspace.",
        discussion: """
            Example:
              workspace-agent agent --http-address 127.0.0.1:7717
            """,
        version: "workspace-agent \(BuildInfo.version)",
        subcommands: [
            AgentCommand.self, DevCommand.self, ExpCommand.self, SyncCommand.self, ProcCommand.self, FileCommand.self,
            GitSSHCommand.self, GitAskpassCommand.self, GitCommands.self, DesktopCommand.self,
            TailnetCommand.self, UICommand.self,
            StatCommand.self, ExternalAuthCommand.self,
            DoctorCommand.self,
            CompletionCommand.self, VersionCommand.self,
        ])

    static func main() {
        let given = CommandLine.arguments
        if OwnProgram.bundle != nil { hideLoader() }
        // The daemon's own helper: before the parser, which it need not wait for.
        if given.dropFirst().elementsEqual([GitWorker.command]) { return GitWorker.run() }
        let root: any ParsableCommand.Type =
            CoderCommand.isName(given.first ?? "") ? CoderCommand.self : Self.self
        do {
            // As GIT_ASKPASS, git gives us its prompt and nothing else.
            let arguments = TypedArguments.complete(
                Array(given.dropFirst()), ProcessEnvironment.current)
            let isPrompt = arguments.count == 1 && GitPrompt.isPrompt(arguments[0])
            if root == CoderCommand.self, !isPrompt, let refusal = CoderCommand.refusal(of: arguments) {
                complain(refusal, prefix: false)
                Glibc.exit(1)
            }
            var command = try root.parseAsRoot(isPrompt ? ["gitaskpass"] + arguments : arguments)
            do {
                if let parsed = command as? any AsyncParsableCommand {
                    // Used by that one task from here on.
                    nonisolated(unsafe) let parsed = parsed
                    try MainThreadExecutor.run {
                        var command = parsed
                        try await command.run()
                    }
                } else {
                    try command.run()
                }
            } catch let error as ValidationError {
                // Thrown by a command that runs, it would show the usage of the program.
                let usage = root.usageString(for: type(of: command))
                let words = usage.split(separator: " ").prefix { !"<[-(".contains($0.prefix(1)) }
                complain(
                    "Error: \(error.message)\nUsage: \(usage)\n"
                        + "  See '\(words.joined(separator: " ")) --help' for more information.", prefix: false)
                Glibc.exit(2)
            }
        } catch let code as ExitCode {
            // The command has said what is wrong.
            Glibc.exit(code.rawValue)
        } catch let failure as CommandFailure {
            complain(failure.message)
            Glibc.exit(failure.code)
        } catch {
            let code = root.exitCode(for: error)
            // Help and --version are errors to the parser.
            guard !code.isSuccess else { root.exit(withError: error) }
            complain(root.fullMessage(for: error), prefix: false)
            Glibc.exit(code == .validationFailure ? 2 : 1)
        }
    }

    /// Has the command line begin with this program's name instead of the loader's.
    private static func hideLoader() {
        // The strings move; who wants arguments as they came gets copies.
        for index in 0..<Int(CommandLine.argc) {
            guard let argument = CommandLine.unsafeArgv[index] else { continue }
            CommandLine.unsafeArgv[index] = strdup(argument) ?? argument
        }
        wa_hide_loader("workspace-agent")
    }

    private static func complain(_ message: String, prefix: Bool = true) {
        fputs(prefix ? "workspace-agent: \(message)\n" : "\(message)\n", wa_stderr())
    }
}

/// What this build is.
enum BuildInfo {
    static let version = "0.1.0"
}

struct VersionCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "version", abstract: "Print the version.",
        discussion: """
            Example:
              workspace-agent version
            """)

    func run() { print("workspace-agent \(BuildInfo.version)") }
}
