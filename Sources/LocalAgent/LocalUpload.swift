import AgentCore
import Glibc

extension LocalClient {
    /// Sends a request whose body is what a descriptor has, piece by piece.
    /// - Throws: ``CommandFailure`` when it can't be read, or the agent is lost. The agent sees a body that was cut.
    package func upload(_ path: String, headers: [String: String], from descriptor: CInt) throws -> Answer {
        let connection = try LocalConnection(socket)
        var head = "POST \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        for (name, value) in headers { head += "\(name): \(value)\r\n" }
        try connection.send(Array("\(head)\r\n".utf8))
        var area = [UInt8](repeating: 0, count: 256 << 10)
        var isTaken = true
        while isTaken {
            let count = read(descriptor, &area, area.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else {
                throw CommandFailure(message: "cannot read standard input: \(errnoText(errno))")
            }
            let piece = Array("\(String(count, radix: 16))\r\n".utf8) + area.prefix(count) + Array("\r\n".utf8)
            isTaken = try connection.sendUnlessAnswered(piece) && count > 0
        }
        let response = try LocalResponse(connection)
        return Answer(status: response.status, body: try response.rest(), headers: response.headers)
    }
}

extension LocalConnection {
    /// - Returns: false when the agent has answered, or doesn't take any more and has probably said why.
    fileprivate func sendUnlessAnswered(_ bytes: [UInt8]) throws -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            var wanted = pollfd(fd: descriptor, events: Int16(POLLIN | POLLOUT), revents: 0)
            if poll(&wanted, 1, -1) < 0 { continue }
            guard wanted.revents & Int16(POLLIN) == 0 else { return false }
            do {
                rest = rest.dropFirst(try sendSome(rest, waiting: false))
            } catch let failure as CommandFailure where failure.isLost {
                return false
            }
        }
        return true
    }
}
