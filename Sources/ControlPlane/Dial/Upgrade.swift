import NIOCore
import NIOHTTP1
import WebSockets

/// What a request asks a connection to become.
enum Upgrade: Sendable {
    case webSocket(WebSocketClientHandshake)
    /// DERP: its bytes follow the 101 as they are.
    case derp

    func request(host: String, uri: String, headers: HTTPHeaders) -> HTTPRequestHead {
        switch self {
        case .webSocket(let handshake): return handshake.request(host: host, uri: uri, headers: headers)
        case .derp:
            var fields: HTTPHeaders = ["Host": host, "Connection": "Upgrade", "Upgrade": "DERP"]
            fields.add(contentsOf: headers)
            return HTTPRequestHead(version: .http1_1, method: .GET, uri: uri, headers: fields)
        }
    }

    /// What is wrong with a 101; nil when it agrees to this upgrade.
    func problem(of head: HTTPResponseHead) -> String? {
        switch self {
        case .webSocket(let handshake):
            do throws(WebSocketError) { try handshake.check(head) } catch { return error.message }
            return nil
        case .derp:
            // Without the second the HTTP decoder takes what follows for another answer.
            for (name, token) in [("Upgrade", "DERP"), ("Connection", "Upgrade")]
            where !head.headers[canonicalForm: name].contains(where: { $0.lowercased() == token.lowercased() }) {
                return "the server's 101 lacks \(name): \(token)"
            }
            return nil
        }
    }

    /// Adds what makes a byte stream of the upgraded connection.
    func addCodec(to pipeline: ChannelPipeline.SynchronousOperations) throws {
        switch self {
        case .webSocket: try pipeline.addHandler(WebSocketByteStream(role: .client))
        case .derp: break
        }
    }
}
