import Foundation
import Glibc
import Testing

/// A blocking client connection on which a test says every byte itself.
public final class RawConnection {
    public struct Response: Sendable {
        public var status = 0
        /// Names in lower case.
        public var headers: [String: String] = [:]
        public var body = Data()

        public init() {}

        public var text: String { String(decoding: body, as: UTF8.self) }
        public var json: [String: Any] {
            (try? JSONSerialization.jsonObject(with: body)) as? [String: Any] ?? [:]
        }
    }

    public struct Failure: Error, CustomStringConvertible {
        public var description: String
    }

    public let descriptor: CInt
    private var buffer = Data()
    /// What the answers to ``send(_:_:headers:body:)`` must agree with.
    public var contract: APIContract?
    /// Requests that have no answer yet; nil once a test sent bytes of its own.
    private var asked: [(method: String, target: String)]? = []

    /// - Parameter timeout: seconds after which any read fails.
    public init(unix path: String, timeout: Int = 60) throws {
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard rc == 0 else { throw Failure(description: "connect \(path): errno \(errno)") }
        setTimeout(timeout)
    }

    /// - Parameter host: an IPv4 address.
    public init(host: String = "127.0.0.1", port: Int, timeout: Int = 60) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = inet_addr(host)
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard rc == 0 else { throw Failure(description: "connect \(port): errno \(errno)") }
        setTimeout(timeout)
    }

    deinit { close(descriptor) }

    private func setTimeout(_ seconds: Int) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
    }

    public func send(_ text: String) throws { try send(Data(text.utf8)) }

    public func send(_ data: Data) throws {
        asked = nil
        try write(data)
    }

    private func write(_ data: Data) throws {
        var rest = [UInt8](data)[...]
        while !rest.isEmpty {
            let n = Array(rest).withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard n > 0 else { throw Failure(description: "send: errno \(errno)") }
            rest = rest.dropFirst(n)
        }
    }

    /// Sends no more; the peer may still answer.
    public func closeSending() { shutdown(descriptor, Int32(SHUT_WR)) }

    /// Bytes as they come; empty at the end of the stream.
    public func receive(atMost count: Int = 65536) throws -> Data {
        if !buffer.isEmpty {
            let taken = buffer.prefix(count)
            buffer = Data(buffer.dropFirst(taken.count))
            return Data(taken)
        }
        var area = [UInt8](repeating: 0, count: count)
        let n = recv(descriptor, &area, count, 0)
        guard n >= 0 else { throw Failure(description: "recv: errno \(errno)") }
        return Data(area.prefix(n))
    }

    /// Closes with a reset instead of an orderly end (TCP).
    public func resetOnClose() {
        var linger = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
    }

    /// Exactly so many bytes.
    public func receive(exactly count: Int) throws -> Data {
        var data = Data()
        while data.count < count {
            let more = try receive(atMost: count - data.count)
            guard !more.isEmpty else { throw Failure(description: "ended after \(data.count) of \(count) bytes") }
            data += more
        }
        return data
    }

    /// Whether a read would return at once: bytes are here, or the stream has ended.
    public var isReadable: Bool {
        guard buffer.isEmpty else { return true }
        var poll = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return Glibc.poll(&poll, 1, 0) > 0
    }

    /// Whether the peer has closed: true at the end of the stream.
    public func isAtEnd() throws -> Bool {
        guard buffer.isEmpty else { return try receive(atMost: 1).isEmpty }
        var byte: UInt8 = 0
        let n = recv(descriptor, &byte, 1, 0)
        // A peer that has not read everything we sent ends with a reset.
        guard n >= 0 || errno == ECONNRESET else { throw Failure(description: "recv: errno \(errno)") }
        return n <= 0
    }

    /// One HTTP response with its whole body.
    public func response() throws -> Response {
        var response = try readHead()
        defer { check(response, hasBody: true) }
        if response.status == 101 { return response }
        if let length = response.headers["content-length"].flatMap({ Int($0) }) {
            response.body = try receive(exactly: length)
        } else if response.headers["transfer-encoding"] == "chunked" {
            while let chunk = try chunk() { response.body += chunk }
        }
        return response
    }

    /// The next chunk of a body; nil behind the last.
    public func chunk() throws -> Data? {
        guard let size = Int(try line(), radix: 16) else { throw Failure(description: "no chunk size") }
        let data = try receive(exactly: size)
        _ = try line()
        return size > 0 ? data : nil
    }

    /// The head of one HTTP response; its body has not been read.
    public func head() throws -> Response {
        let response = try readHead()
        check(response, hasBody: false)
        return response
    }

    /// Holds an answer against the documented API.
    private func check(_ response: Response, hasBody: Bool) {
        guard let contract, asked?.isEmpty == false, let (method, target) = asked?.removeFirst() else { return }
        for problem in contract.problems(method, target, response, hasBody: hasBody) {
            Issue.record("docs/openapi.yaml: \(method) \(target) answered \(response.status): \(problem)")
        }
    }

    private func readHead() throws -> Response {
        var response = Response()
        while true {
            let head = try line()
            let parts = head.split(separator: " ")
            guard parts.count >= 2, let status = Int(parts[1]) else {
                throw Failure(description: "no status in \(head)")
            }
            response.status = status
            response.headers = [:]
            while case let field = try line(), !field.isEmpty {
                guard let colon = field.firstIndex(of: ":") else { continue }
                let value = field[field.index(after: colon)...].trimmingCharacters(in: .whitespaces)
                response.headers[field[..<colon].lowercased()] = value
            }
            if status != 100 { return response }
        }
    }

    private func line() throws -> String {
        while true {
            if let newline = buffer.firstIndex(of: 10) {
                let text = String(decoding: buffer[buffer.startIndex..<newline], as: UTF8.self)
                buffer = Data(buffer[buffer.index(after: newline)...])
                return text.hasSuffix("\r\n") ? text : text.trimmingCharacters(in: ["\r"])
            }
            var area = [UInt8](repeating: 0, count: 65536)
            let n = recv(descriptor, &area, area.count, 0)
            guard n > 0 else { throw Failure(description: n == 0 ? "the peer closed" : "recv: errno \(errno)") }
            buffer += area.prefix(n)
        }
    }

    /// Sends bytes as they are and reads the answer to them.
    public func exchange(_ text: String) throws -> Response {
        try send(text)
        return try response()
    }

    /// Sends one request and reads its answer.
    public func request(
        _ method: String, _ path: String, headers: [String: String] = [:], body: String? = nil
    ) throws -> Response {
        try send(method, path, headers: headers, body: body)
        return try response()
    }

    /// Sends one request. A header with an empty value is left out.
    public func send(
        _ method: String, _ path: String, headers: [String: String] = [:], body: String? = nil
    ) throws {
        var all = ["Host": "localhost"]
        if let body {
            all["Content-Type"] = "application/json"
            all["Content-Length"] = String(body.utf8.count)
        }
        all.merge(headers) { _, new in new }
        var text = "\(method) \(path) HTTP/1.1\r\n"
        for (name, value) in all where !value.isEmpty { text += "\(name): \(value)\r\n" }
        asked?.append((method, path))
        try write(Data((text + "\r\n" + (body ?? "")).utf8))
    }
}
