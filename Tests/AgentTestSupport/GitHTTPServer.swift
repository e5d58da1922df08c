import Foundation
import Glibc

/// Real git behind HTTP on 127.0.0.1: lighttpd, which wants a user name and password, and `git http-backend`.
public final class GitHTTPServer: Sendable {
    public let port: Int
    /// Repositories lie here; `/git/NAME` is the one of that name.
    public let root: String
    private let directory: TemporaryDirectory
    private let pid: pid_t

    /// Returns once it listens.
    public init(user: String, password: String) async throws {
        let directory = try TemporaryDirectory()
        self.directory = directory
        root = "\(directory.path)/repositories"
        mkdir(root, 0o755)
        try "\(user):\(password)\n".write(toFile: "\(directory.path)/users", atomically: true, encoding: .utf8)
        (pid, port) = try await Self.start(directory.path)
    }

    deinit {
        kill(pid, SIGKILL)
        waitpid(pid, nil, 0)
    }

    public func url(_ name: String, user: String? = nil) -> String {
        "http://\(user.map { "\($0)@" } ?? "")127.0.0.1:\(port)/git/\(name)"
    }

    /// A new user and password.
    public func setLogin(user: String, password: String) throws {
        try "\(user):\(password)\n".write(toFile: "\(directory.path)/users", atomically: false, encoding: .utf8)
    }

    /// It cannot choose a port itself, and another process may be faster to take a free one.
    private static func start(_ directory: String) async throws -> (pid: pid_t, port: Int) {
        let (file, log) = ("\(directory)/lighttpd.conf", "\(directory)/log")
        for _ in 0..<20 {
            let port = try LoopbackSocket.freePort()
            let lines = [
                "server.document-root = \"\(directory)\"", "server.bind = \"127.0.0.1\"", "server.port = \(port)",
                "server.errorlog = \"\(log)\"", "server.upload-dirs = (\"\(directory)\")",
                "server.modules = (\"mod_alias\", \"mod_auth\", \"mod_authn_file\", \"mod_setenv\", \"mod_cgi\")",
                "alias.url = (\"/git\" => \"/usr/lib/git-core/git-http-backend\")", "cgi.assign = (\"\" => \"\")",
                "setenv.add-environment = (\"GIT_PROJECT_ROOT\" => \"\(directory)/repositories\", "
                    + "\"GIT_HTTP_EXPORT_ALL\" => \"1\", \"HOME\" => \"\(directory)\")",
                "auth.backend = \"plain\"", "auth.backend.plain.userfile = \"\(directory)/users\"",
                "auth.require = (\"/git\" => (\"method\" => \"basic\", \"realm\" => \"git\", "
                    + "\"require\" => \"valid-user\"))",
            ]
            try lines.joined(separator: "\n").appending("\n").write(toFile: file, atomically: true, encoding: .utf8)
            unlink(log)
            let pid = try DaemonProcess.spawn(
                ["/usr/sbin/lighttpd", "-D", "-f", file], ProcessInfo.processInfo.environment)
            try? await eventually("lighttpd listens") { !ProcFS.runs(pid) || listens(port) }
            if ProcFS.runs(pid), listens(port) { return (pid, port) }
            kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
            guard ProcFS.text(log).contains("Address already in use") else { break }
        }
        throw DeadlineExceeded(what: "lighttpd: \(ProcFS.text(log))")
    }

    private static func listens(_ port: Int) -> Bool { (try? RawConnection(port: port)) != nil }
}
