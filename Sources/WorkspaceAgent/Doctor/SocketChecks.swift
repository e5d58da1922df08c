import AgentCore
import FoundationEssentials
import Glibc
import LocalAgent

/// The daemon's sockets: whether there is one, whose it is, and whether a daemon answers.
enum SocketChecks {
    /// The longest wait for one answer.
    static let patience = Duration.seconds(3)

    /// - Parameter path: nil where the daemon is told to serve none.
    static func http(_ path: String?) -> DoctorCheck {
        let name = "http-socket"
        guard let path else { return .ok(name, "off: no socket of the HTTP API is asked for") }
        if let problem = problem(name, path, flag: "--http-socket", lost: "") { return problem }
        struct Health: Decodable {
            var status: String
            var reasons: [String]
        }
        let restart = "end what serves \(path), and start the daemon again"
        do {
            let answer = try LocalClient(socket: path).request("GET", "/healthz", limit: patience)
            guard let health = try? JSONDecoder().decode(Health.self, from: Data(answer.body)) else {
                return .error(
                    name, "what serves \(path) is not this agent: its /healthz is not a health report", fix: restart)
            }
            let detail = (["\(path): the daemon is \(health.status)"] + health.reasons).joined(separator: "; ")
            guard health.status != "ok" else { return .ok(name, detail) }
            return .warning(name, detail, fix: "see docs/operations.md for each reason, and the daemon's log")
        } catch {
            return .error(name, "\(error)", fix: restart)
        }
    }

    static func agent(_ path: String?) -> DoctorCheck {
        let name = "agent-socket"
        guard let path else { return .ok(name, "off: CODER_AGENT_SOCKET_SERVER_ENABLED says so") }
        if let problem = problem(name, path, flag: "--socket-path", lost: "; `sync` and coder commands do not work") {
            return problem
        }
        do {
            let socket = LocalAgentSocket(path: path)
            try MainThreadExecutor.run { try await socket.use(within: patience) { try await $0.ping() } }
            return .ok(name, "\(path): the daemon answers")
        } catch {
            return .error(
                name, "\(path): \(error)",
                fix: "end what serves \(path), and start the daemon again")
        }
    }

    static func boundary(_ path: String?) -> DoctorCheck {
        let name = "boundary-socket"
        guard let path else { return .ok(name, "off: no boundary logs are asked for") }
        let lost = "; boundary's audit logs are not taken"
        if let problem = problem(name, path, flag: "--boundary-log-proxy-socket-path", lost: lost) { return problem }
        return .ok(name, "\(path): a process of this user takes connections")
    }

    /// What is wrong before anything is said over the socket; nil when something of ours takes connections.
    private static func problem(_ name: String, _ path: String, flag: String, lost: String) -> DoctorCheck? {
        let start = "start the daemon (workspace-agent agent), or name its socket with \(flag)"
        var info = stat()
        guard lstat(path, &info) == 0 else {
            let number = errno
            guard number == ENOENT else { return .error(name, "\(path): \(errnoText(number))", fix: start) }
            return .warning(name, "\(path) is not there: no daemon serves it\(lost)", fix: start)
        }
        guard info.st_mode & S_IFMT == S_IFSOCK || info.st_mode & S_IFMT == S_IFLNK else {
            return .error(
                name, "\(path) is not a socket, and in the way of one", fix: "remove it, or choose another \(flag)")
        }
        do {
            close(try connectToOwnSocket(path))
            return nil
        } catch {
            switch error.code {
            case .system(ECONNREFUSED), .system(ENOENT):
                let owner = info.st_uid == geteuid() ? "" : ", and belongs to uid \(info.st_uid)"
                return .warning(name, "\(path) is served by no process\(owner)\(lost)", fix: start)
            default:
                return .error(
                    name, "\(error)",
                    fix: "run this as the daemon's user; if another user has put it there, choose another \(flag)")
            }
        }
    }
}
