import AgentCore
import Glibc

/// A blocking connection to the agent's socket, whose input is kept until it is dropped.
final class LocalConnection {
    let socket: String
    let descriptor: CInt
    private var input: [UInt8] = []
    private var dropped = 0
    private var area = [UInt8](repeating: 0, count: 64 << 10)

    /// - Parameter limit: of each wait for the agent; nil waits as long as it takes.
    /// - Throws: ``CommandFailure`` that says what to check.
    convenience init(_ socket: String, limit: Duration? = nil) throws {
        self.init(socket, try LocalSocket.connect(socket))
        guard let limit else { return }
        let (seconds, attoseconds) = limit.components
        var time = timeval(tv_sec: Int(seconds), tv_usec: Int(attoseconds / 1_000_000_000_000))
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &time, socklen_t(MemoryLayout<timeval>.size))
        }
    }

    /// Takes a connected socket over.
    /// - Parameter address: for messages.
    init(_ address: String, _ descriptor: CInt) {
        (socket, self.descriptor) = (address, descriptor)
    }

    deinit { close(descriptor) }

    /// What came and was not dropped.
    var unread: ArraySlice<UInt8> { input[dropped...] }

    func drop(_ count: Int) {
        dropped += min(count, input.count - dropped)
        if dropped == input.count {
            input.removeAll(keepingCapacity: true)
            dropped = 0
        } else if dropped > 1 << 20 {
            input.removeFirst(dropped)
            dropped = 0
        }
    }

    /// Reads what there is, or waits for it.
    /// - Returns: false at the end of the stream. Without waiting: false when there is nothing yet, and the end is a
    ///   failure.
    func fill(waiting: Bool = true) throws -> Bool {
        while true {
            let count = recv(descriptor, &area, area.count, waiting ? 0 : Int32(MSG_DONTWAIT))
            if count > 0 {
                input += area.prefix(count)
                return true
            }
            if count == 0 {
                if !waiting { throw lost("it closed the connection") }
                return false
            }
            if errno == EINTR { continue }
            if errno == EAGAIN, !waiting { return false }
            throw lost(errno == EAGAIN ? "no answer in time" : errnoText(errno))
        }
    }

    /// Takes that many bytes from what came, or waits for them.
    func take(_ count: Int) throws -> [UInt8] {
        while unread.count < count { guard try fill() else { throw lost("it closed the connection") } }
        defer { drop(count) }
        return Array(unread.prefix(count))
    }

    func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty { rest = rest.dropFirst(try sendSome(rest, waiting: true)) }
    }

    /// - Returns: the bytes that were taken; 0 without waiting when there is no room.
    func sendSome(_ bytes: ArraySlice<UInt8>, waiting: Bool) throws -> Int {
        let flags = Int32(MSG_NOSIGNAL) | (waiting ? 0 : Int32(MSG_DONTWAIT))
        while true {
            let count = bytes.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, flags) }
            if count >= 0 { return count }
            if errno == EINTR { continue }
            if errno == EAGAIN, !waiting { return 0 }
            throw lost(errnoText(errno))
        }
    }

    /// The failure that the connection broke.
    func lost(_ why: String) -> CommandFailure {
        CommandFailure(message: "lost the agent at \(socket): \(why)", isLost: true)
    }
}

/// The answer to a request: its head, and its body as it comes.
package final class LocalResponse {
    package let status: Int
    /// Names in lower case.
    package let headers: [String: String]
    private let connection: LocalConnection
    private enum Body {
        case counted(Int)
        case chunked
        case toTheEnd
        case ended
    }
    private var body: Body

    /// Reads the head.
    init(_ connection: LocalConnection) throws {
        self.connection = connection
        let start = try Self.line(connection).split(separator: " ", maxSplits: 2)
        guard start.count > 1, start[0].hasPrefix("HTTP/1."), let status = Int(start[1]) else {
            throw CommandFailure(message: "what serves \(connection.socket) does not speak HTTP")
        }
        self.status = status
        var headers: [String: String] = [:]
        while true {
            let line = try Self.line(connection)
            if line.isEmpty { break }
            let parts = line.split(separator: ":", maxSplits: 1)
            guard let name = parts.first, headers.count < 200 else { continue }
            headers[name.lowercased()] = parts.count > 1 ? String(parts[1].drop { $0 == " " }) : ""
        }
        self.headers = headers
        if headers["transfer-encoding"]?.lowercased() == "chunked" {
            body = .chunked
        } else if let count = headers["content-length"].flatMap({ Int($0) }) {
            body = .counted(count)
        } else {
            body = status == 101 ? .ended : .toTheEnd
        }
    }

    /// The next bytes of the body; nil at its end.
    /// - Throws: ``CommandFailure`` when it was cut off.
    package func next() throws -> [UInt8]? {
        switch body {
        case .ended: return nil
        case .toTheEnd:
            if connection.unread.isEmpty, try !connection.fill() { return nil }
            defer { connection.drop(connection.unread.count) }
            return Array(connection.unread)
        case .counted(let left):
            guard left > 0 else { return nil }
            let bytes = try some(left)
            body = .counted(left - bytes.count)
            return bytes
        case .chunked:
            let line = try Self.line(connection)
            guard let count = Int(line.prefix { $0.isHexDigit }, radix: 16), count >= 0, count <= 64 << 20 else {
                throw connection.lost("its answer is garbled")
            }
            let bytes = try connection.take(count)
            _ = try Self.line(connection)
            guard count == 0 else { return bytes }
            body = .ended
            return nil
        }
    }

    /// The rest of the body, at most 256 MiB.
    package func rest() throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < 256 << 20, let more = try next() { bytes += more }
        return bytes
    }

    private func some(_ most: Int) throws -> [UInt8] {
        if connection.unread.isEmpty, try !connection.fill() { throw connection.lost("it closed the connection") }
        let bytes = Array(connection.unread.prefix(most))
        connection.drop(bytes.count)
        return bytes
    }

    private static func line(_ connection: LocalConnection) throws -> String {
        var seen = 0
        while true {
            let unread = connection.unread
            if let end = unread.dropFirst(seen).firstIndex(of: 10) {
                let line = String(decoding: unread[..<end], as: UTF8.self)
                connection.drop(end - unread.startIndex + 1)
                return line.last == "\r" ? String(line.dropLast()) : line
            }
            seen = unread.count
            guard seen < 65536, try connection.fill() else { throw connection.lost("it gave no answer") }
        }
    }
}
