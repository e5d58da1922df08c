import AgentCore
import CPlatform
import FoundationEssentials
import Glibc

/// A blocking client of the agent's HTTP API over its unix socket, one connection a request.
struct LocalClient {
    let socket: String

    struct Answer {
        var status: Int
        var body: [UInt8]
    }

    /// - Parameters:
    ///   - json: the body.
    ///   - allowing: statuses beside 200 that are no failure.
    /// - Throws: ``CommandFailure`` with one line that says what is wrong.
    func request(_ method: String, _ path: String, _ json: String? = nil, allowing: Set<Int> = []) throws -> Answer {
        let descriptor = try connect()
        defer { close(descriptor) }
        var head = "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        if let json { head += "Content-Type: application/json\r\nContent-Length: \(json.utf8.count)\r\n" }
        try send(descriptor, Array("\(head)\r\n\(json ?? "")".utf8))
        let answer = try parse(readAll(descriptor))
        guard answer.status == 200 || allowing.contains(answer.status) else {
            throw CommandFailure(message: "the agent at \(socket) refused: \(problem(answer))")
        }
        return answer
    }

    /// What an error answer says.
    func problem(_ answer: Answer) -> String {
        struct Body: Decodable {
            var message: String
            var detail: String?
        }
        guard let body = try? JSONDecoder().decode(Body.self, from: Data(answer.body)) else {
            return "status \(answer.status)"
        }
        return body.detail.map { "\(body.message) \($0)" } ?? body.message
    }

    /// Where the agent leaves its token when it makes one.
    var tokenFile: String {
        "\(socket.hasSuffix(".sock") ? String(socket.dropLast(".sock".count)) : socket).token"
    }

    /// The TCP address on which the agent that serves the socket serves HTTP, loopback first; nil when there is
    /// none. It is its process that is looked at: an address of another daemon will not do.
    func tcpAddress() throws -> String? {
        let descriptor = try connect()
        defer { close(descriptor) }
        guard let agent = PeerCredentials.of(descriptor) else { return nil }
        return try TCPListeners.of(agent.pid).sorted { $0.isLoopback && !$1.isLoopback }.map(\.address).first(
            where: servesHTTP)
    }

    /// Whether it is the API rather than another listener of the agent.
    private func servesHTTP(_ address: String) -> Bool {
        guard let colon = address.lastIndex(of: ":"), let port = UInt16(address[address.index(after: colon)...]) else {
            return false
        }
        let host = String(address[..<colon]).filter { $0 != "[" && $0 != "]" }
        guard let descriptor = TCPListeners.connect(host, port) else { return false }
        defer { close(descriptor) }
        let request = "GET /healthz HTTP/1.1\r\nHost: \(address)\r\nConnection: close\r\n\r\n"
        guard (try? send(descriptor, Array(request.utf8))) != nil,
            let answer = try? String(decoding: readAll(descriptor), as: UTF8.self)
        else { return false }
        return answer.hasPrefix("HTTP/1.1 200")
    }

    private func connect() throws -> CInt { try LocalSocket.connect(socket) }

    private func send(_ descriptor: CInt, _ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else {
                throw CommandFailure(message: "cannot write to the agent at \(socket): \(errnoText(errno))")
            }
            rest = rest.dropFirst(count)
        }
    }

    private func readAll(_ descriptor: CInt) throws -> [UInt8] {
        var bytes: [UInt8] = []
        var area = [UInt8](repeating: 0, count: 64 << 10)
        while bytes.count < 256 << 20 {
            let count = wa_read(descriptor, &area, area.count)
            guard count >= 0 else {
                throw CommandFailure(message: "cannot read from the agent at \(socket): \(errnoText(Int32(-count)))")
            }
            if count == 0 { break }
            bytes += area.prefix(count)
        }
        return bytes
    }

    /// The answer has a Content-Length and closes the connection, so its body is what follows the head.
    private func parse(_ bytes: [UInt8]) throws -> Answer {
        let end: [UInt8] = [13, 10, 13, 10]
        let border = bytes.indices.first { bytes[$0...].starts(with: end) }
        guard let border else { throw CommandFailure(message: "the agent at \(socket) gave no answer") }
        let words = String(decoding: bytes[..<border], as: UTF8.self).split(separator: " ", maxSplits: 2)
        return Answer(status: words.count > 1 ? Int(words[1]) ?? 0 : 0, body: Array(bytes[(border + 4)...]))
    }
}

/// The listening TCP sockets of a process of our own.
enum TCPListeners {
    struct Listener {
        /// As in a URL.
        var address: String
        var isLoopback: Bool
    }

    static func of(_ pid: pid_t) throws -> [Listener] {
        let own = ListeningSockets.inodes(of: pid)
        return try ListeningSockets.all(of: pid).filter { own.contains($0.inode) }.map {
            // Who listens on every address is reached on this one.
            let everywhere = ["0.0.0.0", "[::]"].contains($0.address)
            return Listener(
                address: "\(everywhere ? "127.0.0.1" : $0.address):\($0.port)", isLoopback: $0.isLoopback || everywhere)
        }
    }

    static func connect(_ host: String, _ port: UInt16) -> CInt? {
        var hints = addrinfo()
        hints.ai_flags = AI_NUMERICHOST
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, "\(port)", &hints, &found) == 0, let info = found else { return nil }
        defer { freeaddrinfo(found) }
        let descriptor = socket(info.pointee.ai_family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        var time = timeval(tv_sec: 2, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        guard Glibc.connect(descriptor, info.pointee.ai_addr, info.pointee.ai_addrlen) == 0 else {
            close(descriptor)
            return nil
        }
        return descriptor
    }
}
