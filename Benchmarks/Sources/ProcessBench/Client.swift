import BenchSupport
import Glibc

/// A keep-alive connection to the daemon.
final class Client {
    private static let base = "/api/v0/processes"
    let connection: Connection

    init(_ address: Address) throws { connection = try Connection(address) }
    convenience init(_ path: String) throws { try self.init(.unix(path)) }

    /// One request; the body of its answer.
    @discardableResult func request(_ method: String, _ path: String, _ body: String? = nil) throws -> [UInt8] {
        let head = try begin(method, path, body)
        guard let start = head.end(of: "Content-Length: ") else { throw BenchFailure("no length: \(text(head))") }
        let length = head[start...].prefix { $0 != 13 }.reduce(0) { $0 * 10 + Int($1 &- 48) }
        let answer = try connection.take(length)
        guard head.contains("HTTP/1.1 200") else { throw BenchFailure("\(path): \(text(answer))") }
        return answer
    }

    private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    /// Sends a request; the head of its answer.
    func begin(_ method: String, _ path: String, _ body: String? = nil, headers: String = "") throws -> [UInt8] {
        var text = "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\n\(headers)"
        if let body { text += "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n" }
        text += "\r\n" + (body ?? "")
        try connection.send(Array(text.utf8))
        return try connection.take(through: "\r\n\r\n")
    }

    /// Starts a command and waits for its end, as two requests.
    func run(_ command: String) throws { try output(of: start(command)) }

    /// The same as one request.
    func runAtOnce(_ command: String) throws {
        let answer = try request(
            "POST", "\(Self.base)/start", "{\"command\":\"\(command)\",\"wait_ms\":60000}")
        guard answer.contains("\"running\":false") else { throw BenchFailure("it did not wait: \(text(answer))") }
    }

    /// - Parameter more: further members of the request's body.
    func start(_ command: String, more: String = "") throws -> String {
        let answer = try request("POST", "\(Self.base)/start", "{\"command\":\"\(command)\"\(more)}")
        guard let key = answer.end(of: "\"id\":\"") else { throw BenchFailure(text(answer)) }
        return text(Array(answer[key...].prefix(36)))
    }

    /// Waits for the end of a process.
    func output(of id: String) throws { try request("GET", "\(Self.base)/\(id)/output?wait=true") }

    func kill(_ id: String) throws {
        try request("POST", "\(Self.base)/\(id)/signal", "{\"signal\":\"kill\"}")
    }

    /// Begins to read the output of a process as server-sent events.
    func stream(_ id: String) throws {
        let head = try begin("GET", "\(Self.base)/\(id)/output/stream?offset=0", headers: "Connection: close\r\n")
        guard head.contains("HTTP/1.1 200") else { throw BenchFailure("stream: \(text(head))") }
    }

    /// Attaches to a process.
    func attach(_ id: String) throws {
        let head = try begin(
            "GET", "\(Self.base)/\(id)/attach?offset=0",
            headers: "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                + "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")
        guard head.contains("HTTP/1.1 101") else { throw BenchFailure("attach: \(text(head))") }
    }

    /// Sends a binary message of at most 125 bytes, masked with zeros.
    func sendMessage(_ bytes: [UInt8]) throws {
        try connection.send([0x82, 0x80 | UInt8(bytes.count), 0, 0, 0, 0] + bytes)
    }

    /// The next message.
    func receiveMessage() throws -> [UInt8] {
        let head = try connection.take(2)
        var count = Int(head[1] & 0x7f)
        if count >= 126 {
            count = try connection.take(count == 126 ? 2 : 8).reduce(0) { $0 << 8 | Int($1) }
        }
        return try connection.take(count)
    }
}
