import Foundation

/// The client's side of a WebSocket on a raw connection.
public final class TestWebSocket {
    public enum Message: Equatable {
        case text(String)
        case binary(Data)
        /// The code and the reason.
        case close(Int, String)

        public var json: [String: Any] {
            guard case .text(let text) = self else { return [:] }
            return (try? JSONSerialization.jsonObject(with: Data(text.utf8))) as? [String: Any] ?? [:]
        }
    }

    public let connection: RawConnection

    /// - Throws: when the route does not answer with 101.
    public init(_ connection: RawConnection, _ path: String, chat: String? = nil) throws {
        self.connection = connection
        let answer = try Self.handshake(connection, path, chat: chat)
        guard answer.status == 101 else {
            throw RawConnection.Failure(description: "\(path): \(answer.status) \(answer.text)")
        }
    }

    /// Asks for a WebSocket; the answer.
    public static func handshake(
        _ connection: RawConnection, _ path: String, chat: String? = nil
    ) throws -> RawConnection.Response {
        var headers = [
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        ]
        headers["Coder-Chat-Id"] = chat
        return try connection.request("GET", path, headers: headers)
    }

    public func send(_ text: String) throws { try send(0x81, Data(text.utf8)) }
    public func send(binary data: Data) throws { try send(0x82, data) }
    public func close() throws { try send(0x88, Data([3, 232])) }

    private func send(_ first: UInt8, _ data: Data) throws { try connection.send(Self.frame(first, data)) }

    /// A masked frame; its mask is zero.
    public static func frame(_ first: UInt8, _ data: Data) -> Data {
        var frame = Data([first])
        switch data.count {
        case ..<126: frame.append(0x80 | UInt8(data.count))
        case ..<65_536: frame += [0x80 | 126, UInt8(data.count >> 8), UInt8(data.count & 255)]
        default: frame += [0x80 | 127] + (0..<8).map { UInt8(truncatingIfNeeded: data.count >> (56 - 8 * $0)) }
        }
        return frame + [0, 0, 0, 0] + data
    }

    /// The next message; pings are answered.
    public func next() throws -> Message {
        while true {
            let head = [UInt8](try connection.receive(exactly: 2))
            var count = Int(head[1] & 0x7F)
            if count >= 126 {
                count = try connection.receive(exactly: count == 126 ? 2 : 8).reduce(0) { $0 << 8 | Int($1) }
            }
            let data = try connection.receive(exactly: count)
            switch head[0] & 0x0F {
            case 1: return .text(String(decoding: data, as: UTF8.self))
            case 2: return .binary(data)
            case 8:
                let code = data.prefix(2).reduce(0) { $0 << 8 | Int($1) }
                return .close(code, String(decoding: data.dropFirst(2), as: UTF8.self))
            case 9: try send(0x8A, data)
            default: throw RawConnection.Failure(description: "an unexpected frame \(head[0])")
            }
        }
    }

    /// Reads output until the condition holds; all of it.
    public func output(until condition: (String) -> Bool) throws -> String {
        var data = Data()
        while !condition(String(decoding: data, as: UTF8.self)) {
            switch try next() {
            case .binary(let more): data += more
            case .text(let text) where text.hasPrefix(#"{"attached""#): continue
            case let other:
                throw RawConnection.Failure(
                    description: "\(other) after \(String(decoding: data.suffix(2000), as: UTF8.self))")
            }
        }
        return String(decoding: data, as: UTF8.self)
    }

    /// Reads to the end: the output and the exit message.
    public func finish() throws -> (output: Data, exit: [String: Any], close: Message) {
        var (output, exit) = (Data(), [String: Any]())
        while true {
            let message = try next()
            switch message {
            case .binary(let more): output += more
            case .text: exit = message.json["exit"] as? [String: Any] ?? exit
            case .close: return (output, exit, message)
            }
        }
    }
}
