import Foundation
import NIOCore
import NIOHTTP1
import Testing

@testable import WebSockets

/// A recorded conversation of the reference's client and control plane.
@Suite struct VectorTests {
    private struct Chunk {
        let fromClient: Bool
        let bytes: ByteBuffer
        var role: WebSocketRole { fromClient ? .server : .client }
    }

    private func chunks() throws -> [Chunk] {
        let tcp = try Vectors.stack()["tcp"] as? [[String: Any]] ?? []
        return tcp.compactMap { entry in
            (entry["hex"] as? String).map { Chunk(fromClient: entry["dir"] as? String == "c2s", bytes: bytes(hex: $0)) }
        }
    }

    private func head(_ text: String) -> (first: [String], headers: HTTPHeaders) {
        var lines = text.components(separatedBy: "\r\n").filter { !$0.isEmpty }
        let first = lines.removeFirst().components(separatedBy: " ")
        return (
            first,
            HTTPHeaders(
                lines.map { line in
                    let parts = line.split(separator: ":", maxSplits: 1)
                    return (String(parts[0]), parts[1].trimmingCharacters(in: .whitespaces))
                })
        )
    }

    @Test func theRecordedHandshakeIsOursFromBothSides() throws {
        let tcp = try Vectors.stack()["tcp"] as? [[String: Any]] ?? []
        let (requestLine, requestHeaders) = head(try #require(tcp[0]["text"] as? String))
        let (_, responseHeaders) = head(try #require(tcp[1]["text"] as? String))
        let key = try #require(requestHeaders.first(name: "Sec-WebSocket-Key"))
        let handshake = WebSocketClientHandshake(key: key)
        try handshake.check(HTTPResponseHead(version: .http1_1, status: .switchingProtocols, headers: responseHeaders))

        let request = HTTPRequestHead(version: .http1_1, method: .GET, uri: requestLine[1], headers: requestHeaders)
        let response = try WebSocketServerHandshake.response(to: request)
        #expect(response.headers["Sec-WebSocket-Accept"] == responseHeaders["Sec-WebSocket-Accept"])

        let ours = handshake.request(
            host: requestHeaders["Host"][0], uri: requestLine[1],
            headers: ["Coder-Session-Token": requestHeaders["Coder-Session-Token"][0], "Host": "evil"])
        for name in [
            "Host", "Coder-Session-Token", "Connection", "Upgrade", "Sec-WebSocket-Version", "Sec-WebSocket-Key",
        ] {
            #expect(ours.headers[name] == requestHeaders[name])
        }
    }

    @Test func bothStreamsDecode() throws {
        let stack = try Vectors.stack()
        for (fromClient, key) in [(true, "client_to_server_hex"), (false, "server_to_client_hex")] {
            var wire = ByteBuffer()
            for chunk in try chunks().dropFirst(2) where chunk.fromClient == fromClient {
                wire.writeImmutableBuffer(chunk.bytes)
            }
            let whole = bytes(hex: stack[key] as? String ?? "")
            for step in [1, 2, 3, 7, 64, .max] {
                #expect(
                    try events(wire, role: fromClient ? .server : .client, step: step)
                        == [.data(whole), .close(.normal, reason: "")])
            }
        }
    }

    @Test func everyFrameEncodesToTheByte() throws {
        let messages = try Vectors.stack()["websocket_messages"] as? [[String: Any]] ?? []
        var expected = messages.compactMap { $0["hex"] as? String }.map(bytes(hex:))
        for chunk in try chunks().dropFirst(2) {
            let wire = chunk.bytes
            let key = chunk.fromClient ? wire.getInteger(at: 2, as: UInt32.self) : nil
            guard case .data(let payload) = try events(wire, role: chunk.role).first else {
                #expect(WebSocketFrameWriter.control(.close, ByteBuffer(integer: UInt16(1000)), mask: key) == wire)
                continue
            }
            #expect(payload == expected.removeFirst())
            var writer = WebSocketFrameWriter(masks: chunk.fromClient)
            writer.append(payload)
            #expect(writer.next(mask: { key ?? 0 }) == wire)
            #expect(writer.isEmpty)
        }
        #expect(expected.isEmpty)
    }
}
