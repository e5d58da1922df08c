/// Every bound of the RPC, and what happens at it.
public enum DRPCLimits {
    /// Data bytes of one packet. A longer one ends the connection when a peer sends it, and fails
    /// the call when we would.
    public static let packetBytes = 4_194_304
    /// Data bytes that we put into one frame; more are split. A peer may send longer frames.
    public static let frameDataBytes = 65_536
    /// Bytes of one varint. A longer one ends the connection.
    public static let varintBytes = 10
    /// Text of an error answer, so that it fits one frame with its code; longer text is cut.
    public static let errorTextBytes = frameDataBytes - 8
    /// Encoded bytes of a call's metadata. More ends the connection when a client sends it, and
    /// fails the call when we would.
    public static let metadataBytes = 65_536
    /// Pairs of a call's metadata. At more, the same as with ``metadataBytes``.
    public static let metadataPairs = 1_024
    /// Packets of one connection that are handled before its event loop serves others.
    public static let packetsInARow = 64
    /// Messages of a stream that wait for their reader. The connection isn't read while so many do.
    public static let queuedMessages = 16
    /// Bytes of messages that wait for their reader; one message may go past it.
    public static let queuedMessageBytes = 1_048_576
    /// Messages that a handler sends before its event loop polls the sockets again.
    public static let messagesInARow = 64
    /// Handlers of one connection that were cancelled and have not returned yet. The connection
    /// isn't read while so many do.
    public static let lingeringHandlers = 8
    /// Calls that wait for their turn on one client connection. More fail at once.
    public static let queuedCalls = 1_024
    /// Bytes of unfinished packets that all connections of one server may hold together. The
    /// connection that goes past it is closed.
    public static let unfinishedBytes = 64 * 1_048_576
    /// What a connection may always hold in unfinished packets, so that a greedy client can't block the small requests of
    /// others.
    public static let unfinishedBytesGranted = 65_536
    /// Bytes of answers that a connection may hold for its client; it isn't read while it holds
    /// more. One answer may go past it.
    public static let unsentBytesOfConnection = 65_536
    /// Bytes of answers that the connections past ``unsentBytesOfConnection`` may hold together. Past the limit, those that
    /// have been stuck longest are closed.
    public static let unsentBytes = 64 * 1_048_576
}
