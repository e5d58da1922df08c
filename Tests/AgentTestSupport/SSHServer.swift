import Foundation
import Glibc
import Synchronization

/// A real sshd on 127.0.0.1 with keys of its own, that lets in the user who runs the tests. It ends, with all of its
/// connections, with the value.
public final class SSHServer: Sendable {
    public let port: Int
    /// Who may log in: the user who runs the tests.
    public let user: String
    /// Its host keys, in the order in which they were asked for.
    public let hostKeys: [SSHKeyPair]
    private let directory: TemporaryDirectory
    private let pid: pid_t
    private let isStopped = Mutex(false)

    /// Returns once it listens.
    /// - Parameters:
    ///   - hostKeys: their types, as ``SSHKeyPair/make(type:named:passphrase:in:)`` takes them.
    ///   - authorized: lines of its authorized_keys file.
    ///   - extra: further lines of its configuration. They come first, and of one keyword the first line counts.
    public init(hostKeys: [String] = ["ed25519"], authorized: [String], extra: [String] = []) async throws {
        let directory = try TemporaryDirectory()
        self.directory = directory
        guard let entry = getpwuid(geteuid()) else { throw DeadlineExceeded(what: "a name for uid \(geteuid())") }
        user = String(cString: entry.pointee.pw_name)
        self.hostKeys = try hostKeys.map { try SSHKeyPair.make(type: $0, named: "host-\($0)", in: directory.path) }
        // Where sshd of root confines the part of it that talks to clients.
        if geteuid() == 0 { mkdir("/run/sshd", 0o755) }
        try Data((authorized.joined(separator: "\n") + "\n").utf8)
            .write(to: URL(fileURLWithPath: "\(directory.path)/authorized_keys"))
        let lines =
            extra + self.hostKeys.map { "HostKey \($0.path)" } + [
                "ListenAddress 127.0.0.1", "AuthorizedKeysFile \(directory.path)/authorized_keys", "PidFile none",
                "StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
                // bash reads ~/.bashrc for the commands of sshd, and what lies in it may print.
                "LogLevel VERBOSE", "SetEnv HOME=\(directory.path)",
            ]
        let file = "\(directory.path)/config"
        try Data((lines.joined(separator: "\n") + "\n").utf8).write(to: URL(fileURLWithPath: file))
        var command = ["/usr/sbin/sshd", "-f", file]
        // From OpenSSH 9.8 on it stops listening to addresses that were refused often.
        let lenient = ["-o", "PerSourcePenalties no"]
        if try CommandResult.of(command + ["-t"] + lenient).code == 0 { command += lenient }
        (pid, port) = try await Self.start(command, log: "\(directory.path)/log")
    }

    deinit { stop() }

    /// What it has logged: connections, the keys that were offered and accepted with their fingerprints.
    public var log: String { ProcFS.text("\(directory.path)/log").replacingOccurrences(of: "\r\n", with: "\n") }

    /// The lines for known_hosts, one a host key.
    public var hostKeyLines: [String] { hostKeys.map { "[127.0.0.1]:\(port) \($0.publicKey)" } }

    /// Waits for a line with the text in the log.
    public func logged(_ text: String) async throws {
        try await eventually("a line of sshd with \(text), but: \(log)") { log.contains(text) }
    }

    /// How many are connected.
    public var connections: Int { ProcFS.children(of: pid).count { !$0.isZombie } }

    /// Kills sshd's processes of all connections, and goes on listening. The commands stay to learn of it.
    public func dropConnections() { Self.killChildren(of: pid) { $0.hasPrefix("sshd") } }

    /// Ends it and its connections; again it does nothing.
    public func stop() {
        let isFirst = isStopped.withLock { isStopped in
            defer { isStopped = true }
            return !isStopped
        }
        guard isFirst else { return }
        // So that it takes no connection while those that it has are ended.
        kill(pid, SIGSTOP)
        Self.killChildren(of: pid)
        kill(pid, SIGKILL)
        while waitpid(pid, nil, 0) < 0, errno == EINTR {}
    }

    /// It cannot choose a port itself, and another process may be faster to take a free one.
    private static func start(_ command: [String], log: String) async throws -> (pid: pid_t, port: Int) {
        for _ in 0..<20 {
            let port = try LoopbackSocket.freePort()
            // "exec", so that the pid is sshd's.
            let words = ["/bin/sh", "-c", "exec \"$@\" >\"$0\" 2>&1 </dev/null", log] + command
            let pid = try DaemonProcess.spawn(
                words + ["-D", "-e", "-p", "\(port)"], ProcessInfo.processInfo.environment)
            try? await eventually("sshd listens") {
                !ProcFS.runs(pid) || ProcFS.text(log).contains("Server listening on")
            }
            if ProcFS.runs(pid), ProcFS.text(log).contains("Server listening on") { return (pid, port) }
            kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
            guard ProcFS.text(log).contains("Address already in use") else { break }
        }
        throw DeadlineExceeded(what: "sshd: \(ProcFS.text(log))")
    }

    private static func killChildren(of parent: pid_t, named isWanted: (String) -> Bool = { _ in true }) {
        for child in ProcFS.children(of: parent) where !child.isZombie {
            guard let name = ProcFS.status(child.pid, "Name:"), isWanted(name) else { continue }
            killChildren(of: child.pid, named: isWanted)
            kill(child.pid, SIGKILL)
        }
    }
}

/// A key that ssh-keygen made.
public struct SSHKeyPair: Sendable {
    /// Of the private key; the public one has `.pub` behind it.
    public let path: String
    /// Type and base64 text, without a comment.
    public let publicKey: String
    /// The file's text.
    public let privateKey: String
    /// As ssh prints it: `SHA256:` and base64 text.
    public let fingerprint: String

    /// - Parameters:
    ///   - type: of ssh-keygen, or with the bits behind a hyphen: `ed25519`, `ecdsa-384`, `rsa-2048`.
    ///   - name: of the file; nil for one that no other key has.
    ///   - passphrase: empty for a key that is not encrypted.
    public static func make(
        type: String, named name: String? = nil, passphrase: String = "", in directory: String
    ) throws -> SSHKeyPair {
        let path = "\(directory)/\(name ?? "key-\(UInt64.random(in: 0 ... .max))")"
        let words = type.split(separator: "-").map(String.init)
        let bits = words.count > 1 ? ["-b", words[1]] : []
        try run(["ssh-keygen", "-q", "-t", words[0], "-N", passphrase, "-C", "", "-f", path] + bits)
        let listed = try run(["ssh-keygen", "-l", "-f", path]).split(separator: " ")
        return SSHKeyPair(
            path: path, publicKey: ProcFS.text("\(path).pub").trimmingCharacters(in: .whitespacesAndNewlines),
            privateKey: ProcFS.text(path), fingerprint: listed.count > 1 ? String(listed[1]) : "")
    }

    @discardableResult
    private static func run(_ arguments: [String]) throws -> String {
        let result = try CommandResult.of(arguments)
        guard result.code == 0 else { throw DeadlineExceeded(what: "\(arguments): \(result.errors)") }
        return result.output
    }
}
