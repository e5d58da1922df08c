import AgentTestSupport
import ControlPlaneSimulator
import Foundation
import Glibc

/// A git server behind a real sshd, a control plane that has a key for the user, and a user with a home of their own
/// on a machine without an ssh program.
final class GitWorld: Sendable {
    let directory: TemporaryDirectory
    let server: SSHServer
    let link: LinkWorld
    /// The control plane's.
    let key: SSHKeyPair?
    var home: String { "\(directory.path)/home" }
    var knownHosts: String { "\(home)/.ssh/known_hosts" }
    var destination: String { "\(server.user)@127.0.0.1" }
    /// A repository with two commits on `main`, as git's client names it.
    var url: String { "ssh://\(destination):\(server.port)\(directory.path)/repo.git" }

    /// - Parameters:
    ///   - key: type of the control plane's key; nil for none.
    ///   - isAuthorized: whether the server knows that key.
    ///   - authorized: other keys that it knows.
    ///   - isKnown: whether the user knows the server's keys.
    init(
        key type: String? = "ed25519", isAuthorized: Bool = true, authorized: [String] = [],
        hostKeys: [String] = ["ed25519"], extra: [String] = [], isKnown: Bool = true
    ) async throws {
        let directory = try TemporaryDirectory()
        self.directory = directory
        for name in ["home", "home/.ssh", "bin", "keys"] { mkdir("\(directory.path)/\(name)", 0o700) }
        let key = try type.map { try SSHKeyPair.make(type: $0, in: "\(directory.path)/keys") }
        self.key = key
        server = try await SSHServer(
            hostKeys: hostKeys, authorized: authorized + (key.flatMap { isAuthorized ? [$0.publicKey] : nil } ?? []),
            extra: ["AcceptEnv GIT_PROTOCOL"] + extra)
        link = try await LinkWorld(server: { configuration in
            configuration.gitSSHKey = key.map { .init(publicKey: $0.publicKey, privateKey: $0.privateKey) }
        }) { _, _ in }
        // What git runs on this machine; ssh is not among it.
        for name in ["git", "sh", "env", "sed", "basename", "uname", "cat", "grep", "tr"] {
            symlink("/usr/bin/\(name)", "\(directory.path)/bin/\(name)")
        }
        if isKnown { try know(server.hostKeyLines) }
        try run(
            [
                "sh", "-ec",
                """
                git init -q -b main "$0/origin" && cd "$0/origin"
                echo one >file && git add file && git commit -qm one
                echo two >file && git commit -qam two
                git clone -q --bare . "$0/repo.git"
                """, directory.path,
            ], whole: true)
    }

    /// Ends servers; also where a test fails early, when they go with the value.
    func stop() async {
        server.stop()
        await link.stop()
    }

    /// Writes known_hosts.
    func know(_ lines: [String]) throws {
        try Data(lines.map { $0 + "\n" }.joined().utf8).write(to: URL(fileURLWithPath: knownHosts))
    }

    /// A key of the user's own.
    func ownKey(_ type: String, named name: String) throws -> SSHKeyPair {
        try SSHKeyPair.make(type: type, named: name, in: "\(home)/.ssh")
    }

    /// The command line of a program in the user's environment.
    /// - Parameter whole: with all programs of the machine.
    func line(_ arguments: [String], _ variables: [String: String] = [:], whole: Bool = false) -> [String] {
        var environment = [
            "PATH": whole ? "/usr/bin:/bin" : "\(directory.path)/bin", "HOME": home, "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_VARIANT": "ssh",
            "GIT_SSH_COMMAND": "'\(DaemonProcess.binary)' gitssh --", "CODER_AGENT_URL": link.url,
            "CODER_AGENT_TOKEN": LinkWorld.token,
        ]
        for role in ["AUTHOR", "COMMITTER"] {
            environment["GIT_\(role)_NAME"] = "developer"
            environment["GIT_\(role)_EMAIL"] = "developer@example.com"
        }
        environment.merge(variables) { _, new in new }
        return ["/usr/bin/env", "-i"] + environment.map { "\($0.key)=\($0.value)" } + arguments
    }

    /// Runs a program that has to succeed.
    @discardableResult
    func run(_ arguments: [String], _ variables: [String: String] = [:], whole: Bool = false) throws -> CommandResult {
        let result = try CommandResult.of(line(arguments, variables, whole: whole))
        guard result.code == 0 else {
            throw DeadlineExceeded(what: "\(arguments): exit code \(result.code), \(result.errors)\n\(server.log)")
        }
        return result
    }

    func git(_ arguments: String..., variables: [String: String] = [:]) throws -> CommandResult {
        try CommandResult.of(line(["git"] + arguments, variables))
    }

    /// The client by itself, with the server as its host behind the options.
    func ssh(_ options: [String], _ command: String = "echo done", variables: [String: String] = [:]) throws
        -> CommandResult
    {
        try CommandResult.of(line(sshLine(options, command), variables))
    }

    func sshLine(_ options: [String], _ command: String) -> [String] {
        // Of two ports the first counts.
        [DaemonProcess.binary, "gitssh", "--"] + options + ["-p", "\(server.port)", destination, command]
    }

    /// Processes in the user's environment.
    var processes: [pid_t] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return names.compactMap { pid_t($0) }.filter { ProcFS.text("/proc/\($0)/environ").contains("HOME=\(home)\0") }
    }
}

extension CommandResult {
    /// Whether it is one of ours: nothing on stdout, exit code 255, each line with our name, none with a type's.
    var isClearRefusal: Bool {
        code == 255 && output == "" && !errors.isEmpty
            && errors.split(separator: "\n").allSatisfy { $0.hasPrefix("workspace-agent: ") }
            && !["Error(", "Failure", "errno", "libssh2_"].contains { errors.contains($0) }
    }
}
