import AgentCore
import ArgumentParser
import CPlatform
import ControlPlane
import GitCredentials
import Glibc
import LocalAgent

/// `gitssh`: what GIT_SSH_COMMAND points to in the workspace.
struct GitSSHCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gitssh", abstract: "Run ssh with the owner's key from the control plane.",
        discussion: """
            Git calls it. The user's own identities and agent come first, the control plane's key last; it is held in \
            memory only, never on disk. Without one ssh goes on with the keys of this machine. Where no ssh is \
            installed, libssh2 takes its place. What follows -- is for ssh.

            Example:
              workspace-agent gitssh -- git@github.com git-upload-pack project.git
            """)

    /// How long the control plane may take; git goes on without its key then.
    static let patience = Duration.seconds(10)

    @Argument(parsing: .captureForPassthrough, help: "Arguments for ssh.")
    var arguments: [String] = []

    func run() async throws {
        var arguments = arguments
        if let first = arguments.first, ["--help", "-h"].contains(first) { throw CleanExit.helpRequest(Self.self) }
        if arguments.first == "--" { arguments.removeFirst() }
        let environment = ProcessEnvironment.current
        // The key is about to be in this memory.
        wa_forbid_core_dumps()
        // Which ssh this is, and what it would do, are asked without connecting.
        let connects = !["-V", "-G"].contains(arguments.first)
        let key = connects ? await key() : nil
        guard let ssh = OpenSSH(environment: environment) else {
            throw ExitCode(BuiltInSSH.run(arguments, key: key, environment: environment))
        }
        do {
            throw ExitCode(try ssh.run(RawArguments(last: arguments.count), key: key))
        } catch let error as CoreError {
            throw CommandFailure(message: "\(error)", code: 255)
        }
    }

    /// nil when there is none; a line on stderr says why.
    private func key() async -> GitKey? {
        do {
            let key = try await GitLink.use(atMost: Self.patience) { try await $0.gitSSHKey() }
            return GitKey(publicKey: key.publicKey, privateKey: key.privateKey)
        } catch {
            fputs(
                "workspace-agent: no key from the control plane: \(error); going on with this machine's keys\n",
                wa_stderr())
            return nil
        }
    }
}
