import DERP
import NIOHTTP1
import WebSockets

/// The paths of the relay, which need no token (docs/contracts/derp.md#dialling).
enum RelayRoutes {
    /// nil for a request that is not for the relay.
    static func answer(_ head: HTTPRequestHead, _ relay: SimulatorRelay) -> HTTPAnswer? {
        let path = head.uri.prefix { $0 != "?" }
        guard path == RelayURL.path || path == RelayURL.latencyPath else { return nil }
        guard head.method == .GET else { return .text(405, "use GET\n") }
        guard path == RelayURL.path else { return .text(200, "") }
        guard let key = relay.publicKey else { return .text(503, "libsodium is missing: there is no relay\n") }
        let upgrades = head.headers[canonicalForm: "Upgrade"].map { $0.lowercased() }
        guard head.headers[canonicalForm: "Connection"].contains(where: { $0.lowercased() == "upgrade" }),
            let upgrade = upgrades.first
        else { return .text(426, "DERP requires connection upgrade\n") }
        switch upgrade {
        case "websocket": return webSocket(head)
        case "derp":
            if let refusal = relay.refusal { return .text(refusal.status, refusal.body) }
            return .derp(
                HTTPResponseHead(
                    version: .http1_1, status: .switchingProtocols,
                    headers: [
                        "Upgrade": "DERP", "Connection": "Upgrade", "Derp-Version": "2",
                        "Derp-Public-Key": hex(key.bytes),
                    ]), isWebSocket: false)
        default: return .text(426, "DERP requires an upgrade to DERP or websocket\n")
        }
    }

    private static func webSocket(_ head: HTTPRequestHead) -> HTTPAnswer {
        guard head.headers[canonicalForm: "Sec-WebSocket-Protocol"].contains("derp") else {
            return .text(400, "the WebSocket subprotocol derp must be offered\n")
        }
        do {
            var response = try WebSocketServerHandshake.response(to: head)
            response.headers.add(name: "Sec-WebSocket-Protocol", value: "derp")
            return .derp(response, isWebSocket: true)
        } catch {
            return .text(400, "\(error.message)\n")
        }
    }

    private static func hex(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}
