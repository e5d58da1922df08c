import AgentTestSupport
import Foundation
import Glibc
import Testing

/// A git server behind a real sshd, a control plane that has a key for it, and a user with an ssh_config of their own.
final class GitSSHWorld: Sendable {
    let directory: TemporaryDirectory
    let server: SSHServer
    let link: LinkWorld
    /// The key that the control plane has.
    let key: SSHKeyPair
    /// What is in front of gitssh's own arguments; the user's settings.
    let config: String

    /// - Parameters:
    ///   - knowsKey: whether the server lets the control plane's key in.
    ///   - authorized: further keys that the server lets in.
    ///   - configuration: the server's, beside what git needs.
    init(
        keyType: String = "ed25519", knowsKey: Bool = true, authorized: [SSHKeyPair] = [],
        configuration: [String] = []
    ) async throws {
        let directory = try TemporaryDirectory()
        self.directory = directory
        key = try SSHKeyPair.make(type: keyType, named: "control-plane", in: directory.path)
        let lines = (knowsKey ? [key.publicKey] : []) + authorized.map(\.publicKey)
        server = try await SSHServer(authorized: lines, extra: ["AcceptEnv GIT_PROTOCOL"] + configuration)
        let pair = (key.publicKey, key.privateKey)
        link = try await LinkWorld(server: { $0.gitSSHKey = .init(publicKey: pair.0, privateKey: pair.1) }) { _, _ in }
        // The files of ssh-keygen are not what is tested.
        unlink(key.path)
        config = "\(directory.path)/config"
        try server.hostKeyLines.joined(separator: "\n").appending("\n").write(
            toFile: "\(directory.path)/known_hosts", atomically: true, encoding: .utf8)
        try settings([])
    }

    func stop() async {
        server.stop()
        await link.stop()
    }

    /// Writes the user's ssh_config.
    func settings(_ lines: [String]) throws {
        let all = lines + ["UserKnownHostsFile \(directory.path)/known_hosts", "IdentityAgent none"]
        try all.joined(separator: "\n").appending("\n").write(toFile: config, atomically: true, encoding: .utf8)
    }

    /// Of git in the workspace.
    var environment: [String: String] {
        [
            "HOME": directory.path, "GIT_SSH_COMMAND": "\(DaemonProcess.binary) gitssh -- -F \(config)",
            "GIT_SSH_VARIANT": "ssh", "CODER_AGENT_URL": link.url, "CODER_AGENT_TOKEN": LinkWorld.token,
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
            "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "init.defaultBranch", "GIT_CONFIG_VALUE_0": "main",
        ]
    }

    /// `user@host` and port as ssh takes them.
    var target: [String] { ["-p", "\(server.port)", "\(server.user)@127.0.0.1"] }

    func url(_ name: String) -> String { "ssh://\(server.user)@127.0.0.1:\(server.port)\(directory.path)/\(name)" }

    @discardableResult
    func git(_ arguments: String..., environment more: [String: String] = [:]) throws -> CommandResult {
        try CommandResult.of(["git"] + arguments, environment: environment.merging(more) { _, new in new })
    }

    /// What must work.
    func done(_ arguments: String..., environment more: [String: String] = [:]) throws {
        let result = try CommandResult.of(["git"] + arguments, environment: environment.merging(more) { _, new in new })
        #expect(result.code == 0, "git \(arguments): \(result.errors)")
    }

    /// `gitssh` as a person types it.
    func gitssh(_ arguments: [String], environment more: [String: String] = [:]) throws -> CommandResult {
        try CommandResult.of(
            [DaemonProcess.binary, "gitssh", "--", "-F", config] + arguments,
            environment: environment.merging(more) { _, new in new })
    }

    /// What ssh itself does with the same.
    func ssh(_ arguments: [String]) throws -> CommandResult {
        try CommandResult.of(["ssh", "-F", config] + arguments, environment: environment)
    }

    /// A bare repository with a commit of that many random bytes.
    func repository(_ name: String, bytes: Int = 1_000) throws {
        let work = "\(directory.path)/work-\(name)"
        try done("init", "-q", work)
        var generator = SystemRandomNumberGenerator()
        var data = Data(capacity: bytes)
        while data.count < bytes { withUnsafeBytes(of: generator.next() as UInt64) { data.append(contentsOf: $0) } }
        try data.write(to: URL(fileURLWithPath: "\(work)/random"))
        try done("-C", work, "add", ".")
        try done("-C", work, "commit", "-qm", "first")
        try done("clone", "-q", "--bare", work, "\(directory.path)/\(name)")
    }

    /// Requests for the key that reached the control plane.
    var keyRequests: Int { link.requests("me/gitsshkey").count }
}
