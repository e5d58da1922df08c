import FoundationEssentials

/// The opening handshake (RFC 6455 section 4).
public enum WebSocketHandshake {
    /// What `Sec-WebSocket-Accept` must say to a `Sec-WebSocket-Key`.
    public static func acceptValue(_ key: String) -> String {
        Data(SHA1.digest(Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8))).base64EncodedString()
    }
}
