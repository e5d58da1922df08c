import FoundationEssentials
import NIOHTTP1

/// The opening handshake (RFC 6455 section 4).
public enum WebSocketHandshake {
    /// The value of `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`.
    public static func acceptValue(_ key: String) -> String {
        Data(SHA1.digest(Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8))).base64EncodedString()
    }

    /// Whether a field that holds a list of tokens has this one (lower case).
    static func has(_ token: String, in headers: HTTPHeaders, _ name: String) -> Bool {
        headers[canonicalForm: name].contains { $0.lowercased() == token }
    }
}

/// The client's side.
public struct WebSocketClientHandshake: Sendable {
    /// 16 random bytes in base64.
    public let key: String
    /// What is to be spoken over the WebSocket; nil leaves it unsaid.
    public let subprotocol: String?

    public init(subprotocol: String? = nil, using generator: inout some RandomNumberGenerator) {
        let nonce = (0..<16).map { _ in UInt8.random(in: 0...255, using: &generator) }
        self.init(key: Data(nonce).base64EncodedString(), subprotocol: subprotocol)
    }

    init(key: String, subprotocol: String? = nil) { (self.key, self.subprotocol) = (key, subprotocol) }

    public init(subprotocol: String? = nil) {
        var generator = SystemRandomNumberGenerator()
        self.init(subprotocol: subprotocol, using: &generator)
    }

    /// The request that asks for the WebSocket. No extension is offered.
    /// - Parameters:
    ///   - host: value of `Host`.
    ///   - headers: added behind the handshake's own, which they cannot replace.
    public func request(host: String, uri: String, headers: HTTPHeaders = [:]) -> HTTPRequestHead {
        var fields: HTTPHeaders = [
            "Host": host, "Connection": "Upgrade", "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key,
        ]
        if let subprotocol { fields.add(name: "Sec-WebSocket-Protocol", value: subprotocol) }
        let own = fields
        for (name, value) in headers where !own.contains(name: name) { fields.add(name: name, value: value) }
        return HTTPRequestHead(version: .http1_1, method: .GET, uri: uri, headers: fields)
    }

    /// Checks a 101 (section 4.1). One that names no subprotocol leaves the choice to us.
    public func check(_ response: HTTPResponseHead) throws(WebSocketError) {
        func problem(_ message: String) -> WebSocketError { WebSocketError(.handshake, message) }
        guard response.status == .switchingProtocols else {
            throw problem("the server answered \(response.status.code) instead of 101")
        }
        guard WebSocketHandshake.has("websocket", in: response.headers, "Upgrade") else {
            throw problem("the server's 101 does not upgrade to websocket")
        }
        guard WebSocketHandshake.has("upgrade", in: response.headers, "Connection") else {
            throw problem("the server's 101 lacks Connection: Upgrade")
        }
        guard response.headers["Sec-WebSocket-Accept"] == [WebSocketHandshake.acceptValue(key)] else {
            throw problem("Sec-WebSocket-Accept of the server's 101 does not belong to our key")
        }
        func unoffered(_ name: String) -> WebSocketError {
            problem("the server's 101 has \(name), which was not offered")
        }
        guard !response.headers.contains(name: "Sec-WebSocket-Extensions") else {
            throw unoffered("Sec-WebSocket-Extensions")
        }
        let chosen = response.headers["Sec-WebSocket-Protocol"]
        guard chosen.isEmpty || chosen == [subprotocol] else { throw unoffered("Sec-WebSocket-Protocol") }
    }
}

/// The server's side.
public enum WebSocketServerHandshake {
    /// The 101 for a request.
    /// - Throws: ``WebSocketError``, for which 400 is the answer.
    public static func response(to request: HTTPRequestHead) throws(WebSocketError) -> HTTPResponseHead {
        func problem(_ message: String) -> WebSocketError { WebSocketError(.handshake, message) }
        guard request.method == .GET, request.version == .http1_1 else { throw problem("must be GET over HTTP/1.1") }
        guard WebSocketHandshake.has("websocket", in: request.headers, "Upgrade"),
            WebSocketHandshake.has("upgrade", in: request.headers, "Connection")
        else { throw problem("must upgrade to websocket") }
        guard request.headers["Sec-WebSocket-Version"] == ["13"] else {
            throw problem("Sec-WebSocket-Version must be 13")
        }
        let keys = request.headers["Sec-WebSocket-Key"]
        guard keys.count == 1, let key = keys.first, Data(base64Encoded: key)?.count == 16 else {
            throw problem("Sec-WebSocket-Key must be 16 bytes in base64")
        }
        return HTTPResponseHead(
            version: .http1_1, status: .switchingProtocols,
            headers: [
                "Upgrade": "websocket", "Connection": "Upgrade",
                "Sec-WebSocket-Accept": WebSocketHandshake.acceptValue(key),
            ])
    }
}
