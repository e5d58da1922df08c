import Foundation
import Glibc

/// A real ssh-agent without keys; it ends with the value.
public final class SSHAgent: Sendable {
    /// Where it listens.
    public let socket: String
    private let pid: pid_t

    /// Returns once it answers: its socket is there before it listens.
    public init(socket: String) async throws {
        self.socket = socket
        pid = try DaemonProcess.spawn(
            ["sh", "-c", "exec ssh-agent -D -a \"$0\" >/dev/null 2>&1", socket], ProcessInfo.processInfo.environment)
        // 1 when there is no key, 2 without an agent.
        try await eventually("ssh-agent answers") { try run(["ssh-add", "-l"]).code == 1 }
    }

    deinit {
        kill(pid, SIGKILL)
        waitpid(pid, nil, 0)
    }

    /// The answer of `ssh-add` with these arguments.
    public func run(_ command: [String]) throws -> CommandResult {
        try CommandResult.of(command, environment: ["SSH_AUTH_SOCK": socket])
    }

    public func add(_ key: SSHKeyPair) throws {
        let added = try run(["ssh-add", "-q", key.path])
        guard added.code == 0 else { throw DeadlineExceeded(what: "ssh-add \(key.path): \(added.errors)") }
    }
}
