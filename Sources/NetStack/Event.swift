import IPAddresses
import NIOCore

/// Names a connection. An id is never used again.
package struct ConnectionID: Hashable, Sendable, CustomStringConvertible {
    var slot: UInt32
    var generation: UInt32

    package var description: String { "\(slot).\(generation)" }
}

/// Why a connection failed.
package enum ConnectionFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// The peer sent RST, or ``NetStack/reset(peer:)`` was called.
    case reset
    /// The peer answered our SYN with RST.
    case refused
    /// The peer did not answer in time.
    case timedOut

    package var description: String {
        switch self {
        case .reset: "the peer reset the connection"
        case .refused: "the peer refused the connection"
        case .timedOut: "the peer did not answer in time"
        }
    }
}

/// What the driver has to know. Nothing follows ``closed(_:)`` or ``failed(_:_:)`` of an id.
package enum NetStackEvent: Sendable, Equatable {
    /// A SYN came and isn't answered yet: call ``NetStack/accept(_:)`` or ``NetStack/refuse(_:)``.
    case connectionRequested(ConnectionID, local: Endpoint, remote: Endpoint)
    /// The handshake is over.
    case established(ConnectionID)
    /// There is something to read, and was nothing before: read until there is nothing.
    case readable(ConnectionID)
    /// A write was not taken whole, and there is room again.
    case writable(ConnectionID)
    /// All was read, and the peer sends no more.
    case endOfInput(ConnectionID)
    /// Both sides ended, and all was read.
    case closed(ConnectionID)
    case failed(ConnectionID, ConnectionFailure)
    /// A UDP datagram.
    case datagram(local: Endpoint, remote: Endpoint, ByteBuffer)
    /// A UDP flow was idle for so long that it is over.
    case flowEnded(local: Endpoint, remote: Endpoint)
}
