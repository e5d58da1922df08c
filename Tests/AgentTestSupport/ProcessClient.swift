import Foundation
import Glibc

/// The process API, as its clients use it.
extension RawConnection {
    public static let processes = "/api/v0/processes"

    public static func json(_ object: Any) -> String {
        let data = try? JSONSerialization.data(withJSONObject: object, options: [.withoutEscapingSlashes])
        return String(decoding: data ?? Data(), as: UTF8.self)
    }

    /// POST /start with this body.
    public func postStart(_ body: [String: Any], chat: String? = nil) throws -> Response {
        try request("POST", "\(Self.processes)/start", headers: Self.headers(chat), body: Self.json(body))
    }

    /// Starts a command; its id.
    public func start(_ command: String, _ more: [String: Any] = [:], chat: String? = nil) throws -> String {
        let response = try postStart(more.merging(["command": command]) { old, _ in old }, chat: chat)
        guard response.status == 200, let id = response.json["id"] as? String else {
            throw Failure(description: "start: \(response.status) \(response.text)")
        }
        return id
    }

    public func output(_ id: String, _ query: String = "", chat: String? = nil) throws -> Response {
        try request("GET", "\(Self.processes)/\(id)/output\(query)", headers: Self.headers(chat))
    }

    /// Waits for the end; the answer.
    public func finish(_ id: String) throws -> [String: Any] { try output(id, "?wait=true").json }

    /// Starts a command and waits for its end.
    public func run(_ command: String, _ more: [String: Any] = [:]) throws -> [String: Any] {
        try finish(try start(command, more))
    }

    public func signal(_ id: String, _ name: String, chat: String? = nil) throws -> Response {
        try request(
            "POST", "\(Self.processes)/\(id)/signal", headers: Self.headers(chat), body: Self.json(["signal": name]))
    }

    public func list(_ query: String = "", chat: String? = nil) throws -> [[String: Any]] {
        let response = try request("GET", "\(Self.processes)/list\(query)", headers: Self.headers(chat))
        return response.json["processes"] as? [[String: Any]] ?? []
    }

    /// What the list says of one process.
    public func info(_ id: String) throws -> [String: Any] {
        try list("?limit=1000").first { $0["id"] as? String == id } ?? [:]
    }

    public func pid(_ id: String) throws -> pid_t {
        guard let pid = try output(id).json["pid"] as? Int else { throw Failure(description: "no pid of \(id)") }
        return pid_t(pid)
    }

    private static func headers(_ chat: String?) -> [String: String] { chat.map { ["Coder-Chat-Id": $0] } ?? [:] }
}
