import NIOHTTP1
import Testing

@testable import WebSockets

@Suite struct HandshakeTests {
    @Test func acceptValueOfTheRFC() {
        #expect(WebSocketHandshake.acceptValue("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    }

    @Test func sha1Vectors() {
        func hex(_ text: String) -> String {
            SHA1.digest(Array(text.utf8)).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
        #expect(hex("") == "da39a3ee5e6b4b0d3255bfef95601890afd80709")
        #expect(hex("abc") == "a9993e364706816aba3e25717850c26c9cd0d89d")
        #expect(
            hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
                == "84983e441c3bd26ebaae4aa1f95129e5e54670f1")
        for count in [55, 56, 63, 64, 65] { #expect(hex(String(repeating: "a", count: count)).count == 40) }
    }

    private func answer(_ changes: (inout HTTPResponseHead) -> Void) -> HTTPResponseHead {
        var head = HTTPResponseHead(
            version: .http1_1, status: .switchingProtocols,
            headers: [
                "upgrade": "WebSocket", "connection": "keep-alive, Upgrade",
                "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
            ])
        changes(&head)
        return head
    }

    @Test func aClientTakesOnlyTheAnswerToItsKey() throws {
        let handshake = WebSocketClientHandshake(key: "dGhlIHNhbXBsZSBub25jZQ==")
        try handshake.check(answer { _ in })
        let bad: [(inout HTTPResponseHead) -> Void] = [
            { $0.status = .ok },
            { $0.headers.remove(name: "upgrade") },
            { $0.headers.replaceOrAdd(name: "upgrade", value: "h2c") },
            { $0.headers.remove(name: "connection") },
            { $0.headers.remove(name: "sec-websocket-accept") },
            { $0.headers.replaceOrAdd(name: "sec-websocket-accept", value: "s3pPLMBiTxaQ9kYGzzhZRbK+xOp=") },
            { $0.headers.add(name: "sec-websocket-accept", value: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") },
            { $0.headers.add(name: "Sec-WebSocket-Extensions", value: "permessage-deflate") },
            { $0.headers.add(name: "Sec-WebSocket-Protocol", value: "x") },
        ]
        for change in bad {
            #expect(throws: WebSocketError(.handshake, "")) { try handshake.check(answer(change)) }
        }
    }

    @Test func aServerTakesTheSubprotocolOrNone() throws {
        let handshake = WebSocketClientHandshake(key: "dGhlIHNhbXBsZSBub25jZQ==", subprotocol: "derp")
        let request = handshake.request(host: "h", uri: "/", headers: ["Sec-WebSocket-Protocol": "x"])
        #expect(request.headers["Sec-WebSocket-Protocol"] == ["derp"])
        #expect(
            !WebSocketClientHandshake().request(host: "h", uri: "/").headers.contains(name: "Sec-WebSocket-Protocol"))
        for chosen in [[], ["derp"]] {
            try handshake.check(
                answer { for name in chosen { $0.headers.add(name: "Sec-WebSocket-Protocol", value: name) } })
        }
        for chosen in [["DERP"], ["chat"], ["derp, chat"], ["derp", "derp"], [""]] {
            let answer = answer { for name in chosen { $0.headers.add(name: "Sec-WebSocket-Protocol", value: name) } }
            #expect(throws: WebSocketError(.handshake, "")) { try handshake.check(answer) }
        }
    }

    @Test func headersOfOneNameAreAllSent() {
        let headers: HTTPHeaders = ["X-Proxy": "a", "x-proxy": "b", "HOST": "other"]
        let request = WebSocketClientHandshake().request(host: "h", uri: "/", headers: headers)
        #expect(request.headers["X-Proxy"] == ["a", "b"] && request.headers["Host"] == ["h"])
    }

    @Test func aServerTakesOnlyAWholeRequest() throws {
        let request = WebSocketClientHandshake().request(host: "h", uri: "/x", headers: ["Upgrade": "no"])
        let response = try WebSocketServerHandshake.response(to: request)
        #expect(response.status == .switchingProtocols)
        let bad: [(inout HTTPRequestHead) -> Void] = [
            { $0.method = .POST },
            { $0.version = .http1_0 },
            { $0.headers.remove(name: "Upgrade") },
            { $0.headers.remove(name: "Connection") },
            { $0.headers.replaceOrAdd(name: "Sec-WebSocket-Version", value: "8") },
            { $0.headers.remove(name: "Sec-WebSocket-Key") },
            { $0.headers.replaceOrAdd(name: "Sec-WebSocket-Key", value: "c2hvcnQ=") },
            { $0.headers.replaceOrAdd(name: "Sec-WebSocket-Key", value: "not base64 at all!!!!===") },
        ]
        for change in bad {
            var broken = request
            change(&broken)
            #expect(throws: WebSocketError(.handshake, "")) { try WebSocketServerHandshake.response(to: broken) }
        }
    }

    @Test func keysAreRandom() {
        #expect(Set((0..<100).map { _ in WebSocketClientHandshake().key }).count == 100)
    }
}
