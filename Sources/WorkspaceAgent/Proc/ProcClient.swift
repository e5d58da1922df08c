import AgentProc
import FoundationEssentials
import Glibc
import LocalAgent

/// What the process API says of a process; which fields there are depends on the route.
struct ProcessState: Decodable {
    struct Size: Codable {
        var rows: Int
        var cols: Int
    }

    var id: String?
    var command: String?
    var running: Bool?
    var exit_code: Int?
    var signal: String?
    var reason: String?
    var started_at_unix: Int?
    var exited_at_unix: Int?

    /// In a word or two: `running`, `exited 3`, `killed SIGKILL`, `timeout`.
    var status: String {
        if running != false { return "running" }
        switch reason {
        case "timeout", "oom", "agent_shutdown": return reason ?? ""
        default: return signal.map { "killed \($0)" } ?? "exited \(exit_code ?? 0)"
        }
    }

    /// The exit code as shells count: 128 and the number for death by signal.
    var shellCode: Int32 {
        if let signal { return 128 + (SignalName.number(ofEnd: signal) ?? 0) }
        return Int32(truncatingIfNeeded: exit_code ?? 0) & 0xFF
    }
}

/// The body of a start.
struct ProcessStart: Encodable {
    struct Terminal: Encodable {
        var rows: Int
        var cols: Int
        var term: String?
    }

    var argv: [String]
    var workdir: String
    var timeout_ms: Int64?
    var stdin: Bool?
    var pty: Terminal?
}

/// The process API as the commands use it.
struct ProcClient {
    static let route = "/api/v0/processes"
    /// For answers that the agent has at once.
    static let limit = Duration.seconds(10)

    let http: LocalClient

    /// - Returns: the id, and which start of the daemon it belongs to.
    func start(_ body: ProcessStart) throws -> (id: String, instance: String?) {
        struct Answer: Decodable { var id: String }
        let encoder = JSONEncoder()
        encoder.outputFormatting = .withoutEscapingSlashes
        let json = String(decoding: try encoder.encode(body), as: UTF8.self)
        let answer = try http.request("POST", "\(Self.route)/start", json, limit: Self.limit)
        return (try decode(Answer.self, answer).id, answer.instance)
    }

    /// The answer of the list as it came.
    func list(_ query: String, limit: Duration = Self.limit) throws -> LocalClient.Answer {
        try http.request("GET", "\(Self.route)/list?\(query)", limit: limit)
    }

    /// All processes that the daemon knows, running ones first.
    func processes(limit: Duration = Self.limit) throws -> [ProcessState] {
        struct Answer: Decodable { var processes: [ProcessState] }
        return try decode(Answer.self, list("limit=1000", limit: limit)).processes
    }

    /// The id that begins so.
    /// - Throws: ``CommandFailure`` unless there is exactly one.
    func resolve(_ prefix: String) throws -> String {
        let prefix = prefix.lowercased()
        if UUID(uuidString: prefix) != nil { return prefix }
        let found = try processes().compactMap(\.id).filter { !prefix.isEmpty && $0.hasPrefix(prefix) }
        switch found.count {
        case 1: return found[0]
        case 0:
            throw CommandFailure(
                message: "no process has an id that begins with \"\(prefix)\"; see workspace-agent proc ls --all")
        default:
            let names = found.prefix(3).joined(separator: ", ") + (found.count > 3 ? ", …" : "")
            throw CommandFailure(
                message: "\(found.count) processes have ids that begin with \"\(prefix)\" (\(names)); give more of it")
        }
    }

    /// - Parameter allowing: statuses that are no failure.
    func signal(_ id: String, _ name: String, allowing: Set<Int> = []) throws -> LocalClient.Answer {
        try http.request(
            "POST", "\(Self.route)/\(id)/signal", #"{"signal":"\#(name)"}"#, allowing: allowing, limit: Self.limit)
    }

    func decode<T: Decodable>(_ type: T.Type, _ answer: LocalClient.Answer) throws -> T {
        try http.decode(type, answer)
    }
}

extension LocalClient.Answer {
    /// Which start of the daemon gave it.
    var instance: String? { headers["workspace-agent-instance"] }
}

/// Patience with an agent that is away for a moment, and not with one that was started anew.
struct Reconnection {
    /// How long an agent may be away.
    static let limit = Duration.seconds(5)

    let id: String
    /// Where the agent is.
    let socket: String
    private var instance: String?
    private var since: ContinuousClock.Instant?

    /// - Parameter instance: the start of the daemon that has the process, where that is known.
    init(_ client: ProcClient, id: String, instance: String? = nil) {
        (self.id, self.instance, socket) = (id, instance, client.http.socket)
    }

    /// Notes that the agent answered.
    /// - Throws: ``CommandFailure`` when it is not the one that had the process.
    mutating func reached(_ status: Int, _ instance: String?) throws {
        if status == 503 { throw CommandFailure(message: "the agent at \(socket) is shutting down", isLost: true) }
        if let known = self.instance, let instance, known != instance {
            throw CommandFailure(message: "the agent was restarted; process \(id) is gone with it")
        }
        self.instance = instance ?? self.instance
        since = nil
    }

    /// Notes that the agent is away, and waits a little for the next try.
    /// - Parameter pause: waits that long.
    /// - Throws: the failure, when it was never there, or the line for one that stays away.
    mutating func lost(_ failure: CommandFailure, pause: (Duration) throws -> Void) throws {
        guard failure.isLost, instance != nil else { throw failure }
        let now = ContinuousClock.now
        let begin = since ?? now
        since = begin
        guard begin.duration(to: now) < Self.limit else {
            throw CommandFailure(
                message: "lost the agent at \(socket), which has not come back within "
                    + "\(Self.limit.components.seconds) s; process \(id) has probably ended with it")
        }
        try pause(.milliseconds(100))
    }

    /// Has the body try until it gives a result.
    mutating func attempt<T>(_ body: (inout Reconnection) throws -> T) throws -> T {
        while true {
            do {
                return try body(&self)
            } catch let failure as CommandFailure {
                try lost(failure) { poll(nil, 0, CInt($0.components.attoseconds / 1_000_000_000_000_000)) }
            }
        }
    }
}
