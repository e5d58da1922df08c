import AgentCore
import AgentHTTP
import Glibc

/// What a client waits for (docs/contracts/process-api.md#waiting).
enum WaitCondition: Sendable {
    case exit
    /// The pattern, in a line of the output.
    case output(Pattern)
    /// A process of the session, or a descendant, listens on the TCP port.
    case port(Int)
    /// Something is at the path; a relative one starts from the process's workdir.
    case file(String)

    /// As the query names it.
    var kind: String {
        switch self {
        case .exit: "exit"
        case .output: "output"
        case .port: "port"
        case .file: "file"
        }
    }

    static let keys: Set<String> = ["for", "pattern", "port", "path", "timeout_ms"]

    /// - Throws: ``HTTPProblem`` 400 that names the key.
    init(_ query: Query) throws {
        let needed: String?
        switch query["for"] {
        case "exit":
            needed = nil
            self = .exit
        case "output":
            needed = "pattern"
            do throws(CoreError) {
                self = .output(try Pattern(query["pattern"] ?? ""))
            } catch {
                throw HTTPProblem.invalid("pattern", error.message)
            }
        case "port":
            needed = "port"
            guard let port = try query.int("port", in: 1...65_535) else {
                throw HTTPProblem.invalid("port", "is required")
            }
            self = .port(port)
        case "file":
            needed = "path"
            let path = query["path"] ?? ""
            guard !path.utf8.contains(0), (1..<Int(PATH_MAX)).contains(path.utf8.count) else {
                throw HTTPProblem.invalid("path", "must have 1 to \(PATH_MAX - 1) bytes, none of them NUL")
            }
            self = .file(path)
        case let other:
            let given = other.map { ", not \"\($0)\"" } ?? ""
            throw HTTPProblem.invalid("for", "must be exit, output, port or file\(given)")
        }
        for key in ["pattern", "port", "path"] where key != needed && query[key] != nil {
            throw HTTPProblem.invalid(key, "is not for \"\(kind)\"")
        }
    }
}

/// The answer to a wait.
struct WaitAnswer: Encodable {
    private enum Keys: String, CodingKey {
        case met, kind = "for", after_ms, offset, line, match, timed_out
    }

    var condition: WaitCondition
    var isMet: Bool
    var milliseconds: Int64
    /// The time was over before all output was looked at.
    var isCutShort = false
    var match: LineMatcher.Match?
    /// The process's state; absent where the condition, other than its end, is met.
    var state: OutputAnswer?

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        try container.encode(isMet, forKey: .met)
        try container.encode(condition.kind, forKey: .kind)
        try container.encode(milliseconds, forKey: .after_ms)
        if let match {
            try container.encode(match.offset, forKey: .offset)
            try container.encode(RenderedOutput.line(match.line), forKey: .line)
            try container.encode(RenderedOutput.line(match.text), forKey: .match)
        }
        if !isMet { try container.encode(isCutShort || state?.snapshot.exit == nil, forKey: .timed_out) }
        try state?.encode(to: encoder)
    }
}
