import FoundationEssentials
import Glibc
import NIOCore
import WebSockets

/// A WebSocket to the agent. Reads and writes wait only where they are asked to, so that one thread can serve it
/// together with other descriptors by poll().
package final class LocalWebSocket {
    package enum Message {
        case text(String)
        /// Bytes, maybe a part of a message: they are passed on as they come.
        case binary([UInt8])
        /// The agent closed; 1005 when it gave no code.
        case close(code: Int, reason: String)
    }

    /// What the answer to the handshake said.
    package let response: LocalResponse
    /// Of a message that the agent sends.
    private static let messageBytes = 64 << 20
    private let connection: LocalConnection
    private var unsent: [UInt8] = []
    /// Bytes of a binary message that are still to come.
    private var binaryLeft = 0

    /// - Throws: ``CommandFailure``; ``Refusal`` for another answer than a WebSocket.
    ///
    /// - Parameter limit: of each wait in the handshake and in ``next(waiting:)``.
    package init(_ client: LocalClient, _ route: String, limit: Duration? = nil) throws {
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

    package struct Refusal: Error {
        package var answer: LocalClient.Answer
    }

    package var descriptor: CInt { connection.descriptor }

    /// Whether the agent has not taken all that was sent.
    package var hasUnsent: Bool { !unsent.isEmpty }

    /// The next message, a text only when it came whole. Without waiting nil when there is none.
    /// - Throws: ``CommandFailure`` when the connection broke.
    package func next(waiting: Bool = true) throws -> Message? {
        try flush()
        while true {
            if binaryLeft > 0, !connection.unread.isEmpty {
                let bytes = try connection.take(min(binaryLeft, connection.unread.count))
                binaryLeft -= bytes.count
                return .binary(bytes)
            } else if binaryLeft == 0, let (opcode, payload) = try frame() {
                // The agent never cuts a text in pieces.
                switch opcode {
                case .text: return .text(String(decoding: payload, as: UTF8.self))
                case .close:
                    let code = payload.count < 2 ? 1005 : Int(payload[0]) << 8 | Int(payload[1])
                    return .close(code: code, reason: String(decoding: payload.dropFirst(2), as: UTF8.self))
                case .ping: try send(.pong, payload)
                default: break
                }
            } else if try !connection.fill(waiting: waiting) {
                if waiting { throw connection.lost("it closed the connection") }
                return nil
            }
        }
    }

    package func send(_ text: String) throws { try send(.text, Array(text.utf8)) }

    package func send(_ bytes: [UInt8]) throws { try send(.binary, bytes) }

    /// Sends what is unsent as far as there is room for it.
    package func flush() throws {
        while hasUnsent {
            let count = try connection.sendSome(unsent[...], waiting: false)
            if count == 0 { return }
            unsent.removeFirst(count)
        }
    }

    private func send(_ opcode: WebSocketFrameHeader.Opcode, _ payload: [UInt8]) throws {
        var frame = ByteBuffer()
        // A mask protects from what lies between client and server, of which a unix socket has nothing; so it is zero.
        WebSocketFrameHeader(opcode: opcode, mask: 0, length: payload.count).write(into: &frame)
        frame.writeBytes(payload)
        unsent += frame.readableBytesView
        try flush()
    }

    /// The next frame that came whole; one with bytes as soon as its header came, without them.
    private func frame() throws -> (opcode: WebSocketFrameHeader.Opcode, payload: [UInt8])? {
        let unread = connection.unread
        guard let second = unread.dropFirst().first else { return nil }
        let size = WebSocketFrameHeader.size(secondByte: second)
        guard unread.count >= size else { return nil }
        let header: WebSocketFrameHeader
        do {
            var bytes = ByteBuffer(bytes: unread.prefix(size))
            header = try WebSocketFrameHeader(&bytes, role: .client)
        } catch {
            throw connection.lost("\(error)")
        }
        guard header.length <= Self.messageBytes else {
            throw connection.lost("it sent a message of \(header.length) bytes")
        }
        if [.continuation, .binary].contains(header.opcode) {
            connection.drop(size)
            binaryLeft = header.length
            return (header.opcode, [])
        }
        guard unread.count >= size + header.length else { return nil }
        defer { connection.drop(size + header.length) }
        return (header.opcode, Array(unread.dropFirst(size).prefix(header.length)))
    }
}
