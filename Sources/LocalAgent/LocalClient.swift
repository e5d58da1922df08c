import AgentCore
import FoundationEssentials
import Glibc

/// A blocking client of the agent's HTTP API over its unix socket, one connection a request.
package struct LocalClient {
    package let socket: String

    package init(socket: String) { self.socket = socket }

    package struct Answer {
        package var status: Int
        package var body: [UInt8]
        /// Names in lower case.
        package var headers: [String: String]

        package init(status: Int, body: [UInt8], headers: [String: String] = [:]) {
            (self.status, self.body, self.headers) = (status, body, headers)
        }
    }

    /// - Parameters:
    ///   - json: the body.
    ///   - headers: further ones.
    ///   - allowing: statuses beside 200 that are no failure.
    ///   - limit: of each wait for the agent; nil waits as long as it takes.
    /// - Throws: ``CommandFailure`` with one line that says what is wrong.
    package func request(
        _ method: String, _ path: String, _ json: String? = nil, headers: [String: String] = [:],
        allowing: Set<Int> = [], limit: Duration? = nil
    ) throws -> Answer {
        let response = try open(method, path, json, headers: headers, limit: limit)
        let answer = Answer(status: response.status, body: try response.rest(), headers: response.headers)
        guard answer.status == 200 || allowing.contains(answer.status) else { throw refusal(answer) }
        return answer
    }

    /// Sends a request; the body of its answer is still to be read.
    package func open(
        _ method: String, _ path: String, _ json: String? = nil, headers: [String: String] = [:],
        limit: Duration? = nil
    ) throws -> LocalResponse {
        let connection = try LocalConnection(socket, limit: limit)
        var head = "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        for (name, value) in headers { head += "\(name): \(value)\r\n" }
        if let json { head += "Content-Type: application/json\r\nContent-Length: \(json.utf8.count)\r\n" }
        try connection.send(Array("\(head)\r\n\(json ?? "")".utf8))
        return try LocalResponse(connection)
    }

    /// The failure that the agent refused a request.
    package func refusal(_ answer: Answer) -> CommandFailure {
        CommandFailure(message: "the agent at \(socket) refused: \(problem(answer))")
    }

    /// What an error answer says.
    package func problem(_ answer: Answer) -> String {
        struct Body: Decodable {
            struct Validation: Decodable { var detail: String }
            var message: String
            var detail: String?
            var validations: [Validation]?
        }
        guard let body = try? JSONDecoder().decode(Body.self, from: Data(answer.body)) else {
            return "status \(answer.status)"
        }
        let details = [body.detail].compactMap { $0 } + (body.validations ?? []).map(\.detail)
        return ([body.message] + details).joined(separator: " ")
    }

    /// The JSON of an answer.
    /// - Throws: ``CommandFailure`` when it is something else.
    package func decode<T: Decodable>(_ type: T.Type, _ answer: Answer) throws -> T {
        guard let value = try? JSONDecoder().decode(type, from: Data(answer.body)) else {
            throw CommandFailure(
                message: "the agent at \(socket) sent an answer that cannot be read; is it another version?")
        }
        return value
    }

    /// As part of a URL.
    package static func escaped(_ text: String) -> String {
        text.utf8.map { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
                String(UnicodeScalar(byte))
            default: "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
            }
        }.joined()
    }

    /// Where the agent leaves its token when it makes one.
    package var tokenFile: String {
        "\(socket.hasSuffix(".sock") ? String(socket.dropLast(".sock".count)) : socket).token"
    }

    /// The TCP address on which the agent that serves the socket serves HTTP, loopback first; nil when there is
    /// none. It is its process that is looked at: an address of another daemon will not do.
    package func tcpAddress() throws -> String? {
        let connection = try LocalConnection(socket)
        guard let agent = PeerCredentials.of(connection.descriptor) else { return nil }
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
        let connection = LocalConnection(address, descriptor)
        let request = "GET /healthz HTTP/1.1\r\nHost: \(address)\r\nConnection: close\r\n\r\n"
        guard (try? connection.send(Array(request.utf8))) != nil else { return false }
        return (try? LocalResponse(connection))?.status == 200
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
