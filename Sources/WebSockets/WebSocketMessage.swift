import NIOCore

/// A whole message of a WebSocket.
public enum WebSocketMessage: Sendable, Equatable {
    case text(String)
    case binary(ByteBuffer)

    /// Bytes of the payload.
    package var byteCount: Int {
        switch self {
        case .text(let text): text.utf8.count
        case .binary(let buffer): buffer.readableBytes
        }
    }
}

/// Why a WebSocket was closed (RFC 6455 section 7.4).
public struct WebSocketCloseCode: Sendable, Equatable, ExpressibleByIntegerLiteral {
    public var value: UInt16
    public init(integerLiteral value: UInt16) { self.value = value }
    public init(_ value: UInt16) { self.value = value }

    public static let normal: Self = 1000
    public static let goingAway: Self = 1001
    public static let protocolError: Self = 1002
    public static let unsupportedData: Self = 1003
    public static let invalidPayload: Self = 1007
    public static let policyViolation: Self = 1008
    public static let messageTooBig: Self = 1009
    public static let internalError: Self = 1011
}

/// Which side of the connection this is: a client masks what it sends, a server must get masked
/// frames (RFC 6455 section 5.1).
public enum WebSocketRole: Sendable { case server, client }
