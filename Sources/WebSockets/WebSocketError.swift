/// Why a WebSocket could not be opened, or ended otherwise than in order. Two errors are equal when
/// their codes are.
public struct WebSocketError: Error, Sendable, Equatable, CustomStringConvertible {
    public enum Code: Sendable, Equatable {
        /// The opening handshake breaks RFC 6455 section 4.
        case handshake
        /// The peer broke the protocol; closed with this code (1002, 1003 or 1007).
        case violation(WebSocketCloseCode)
        /// The peer closed with this code; nil when it gave none.
        case peerClosed(WebSocketCloseCode?)
        /// The peer did not answer a ping in time.
        case noPong
        /// The transport ended without a close frame.
        case cutOff
    }

    public var code: Code
    /// One sentence for a person.
    public var message: String

    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    static func violation(_ message: String) -> WebSocketError { .init(.violation(.protocolError), message) }

    public static func == (a: WebSocketError, b: WebSocketError) -> Bool { a.code == b.code }
    public var description: String { message }
}
