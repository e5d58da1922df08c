import FoundationEssentials
import Glibc

/// A WebSocket to the agent. Reads and writes wait only where they are asked to, so that one thread can serve it
/// together with other descriptors by poll().
final class LocalWebSocket {
    enum Message {
        case text(String)
        /// Bytes, maybe a part of a message: they are passed on as they come.
        case binary([UInt8])
        /// The agent closed; 1005 when it gave no code.
        case close(code: Int, reason: String)
    }

    /// What the answer to the handshake said.
    let response: LocalResponse
    private let connection: LocalConnection
    private var unsent: [UInt8] = []
    /// Bytes of a binary message that are still to come.
    private var binaryLeft = 0

    /// - Throws: ``CommandFailure``; ``Refusal`` for another answer than a WebSocket.
    ///
    /// - Parameter limit: of each wait in the handshake and in ``next(waiting:)``.
    init(_ client: LocalClient, _ route: String, limit: Duration? = nil) throws {
        connection = try LocalConnection(client.socket, limit: limit)
        let key = Data((0..<16).map { _ in UInt8.random(in: 0...255) }).base64EncodedString()
        try connection.send(
            Array(
                """
                GET \(route) HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \(key)\r\n\r\n
                """.utf8))
        response = try LocalResponse(connection)
        guard response.status == 101 else {
            throw Refusal(
                answer: .init(status: response.status, body: try response.rest(), headers: response.headers))
        }
    }

    struct Refusal: Error {
        var answer: LocalClient.Answer
    }

    var descriptor: CInt { connection.descriptor }

    /// Whether the agent has not taken all that was sent.
    var hasUnsent: Bool { !unsent.isEmpty }

    /// The next message, a text only when it came whole. Without waiting nil when there is none.
    /// - Throws: ``CommandFailure`` when the connection broke.
    func next(waiting: Bool = true) throws -> Message? {
        try flush()
        while true {
            if binaryLeft > 0, !connection.unread.isEmpty {
                let bytes = try connection.take(min(binaryLeft, connection.unread.count))
                binaryLeft -= bytes.count
                return .binary(bytes)
            } else if binaryLeft == 0, let (opcode, payload) = try frame() {
                // The agent never cuts a text in pieces.
                switch opcode {
                case 1: return .text(String(decoding: payload, as: UTF8.self))
                case 8:
                    let code = payload.count < 2 ? 1005 : Int(payload[0]) << 8 | Int(payload[1])
                    return .close(code: code, reason: String(decoding: payload.dropFirst(2), as: UTF8.self))
                case 9: try send(10, payload)
                default: break
                }
            } else if try !connection.fill(waiting: waiting) {
                if waiting { throw connection.lost("it closed the connection") }
                return nil
            }
        }
    }

    func send(_ text: String) throws { try send(1, Array(text.utf8)) }

    func send(_ bytes: [UInt8]) throws { try send(2, bytes) }

    /// Sends what is unsent as far as there is room for it.
    func flush() throws {
        while hasUnsent {
            let count = try connection.sendSome(unsent[...], waiting: false)
            if count == 0 { return }
            unsent.removeFirst(count)
        }
    }

    private func send(_ opcode: UInt8, _ payload: [UInt8]) throws {
        var head: [UInt8] = [0x80 | opcode]
        switch payload.count {
        case ..<126: head.append(0x80 | UInt8(payload.count))
        case ..<65536: head += [0x80 | 126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
        default:
            head.append(0x80 | 127)
            head += (0..<8).reversed().map { UInt8(truncatingIfNeeded: payload.count >> ($0 * 8)) }
        }
        // A mask protects from what lies between client and server, of which a unix socket has nothing; so it is zero.
        unsent += head + [0, 0, 0, 0] + payload
        try flush()
    }

    /// The next frame that came whole; one with bytes as soon as its head came, without them.
    private func frame() throws -> (opcode: UInt8, payload: [UInt8])? {
        let unread = connection.unread
        guard unread.count >= 2 else { return nil }
        var head = Array(unread.prefix(10))
        let short = Int(head[1] & 0x7F)
        let (border, count): (Int, Int)
        switch short {
        case 126: border = 4
        case 127: border = 10
        default: border = 2
        }
        guard head.count >= border else { return nil }
        head = Array(head[2..<border])
        count = border == 2 ? short : head.reduce(0) { ($0 & 0xFF_FFFF_FFFF) << 8 | Int($1) }
        guard count <= 64 << 20 else { throw connection.lost("it sent a message of \(count) bytes") }
        let opcode = unread[unread.startIndex] & 0x0F
        if [0, 2].contains(opcode) {
            connection.drop(border)
            binaryLeft = count
            return (opcode, [])
        }
        guard unread.count >= border + count else { return nil }
        defer { connection.drop(border + count) }
        return (opcode, Array(unread.dropFirst(border).prefix(count)))
    }
}
