/// Every bound of the WebSocket layer, and what happens at it.
public enum WebSocketLimits {
    /// Payload bytes of one data frame that we send as a byte stream; more are split. With its header
    /// a frame is at most 128 KiB, which is what a buffer holds. A peer may send frames of any
    /// length, since their payload is passed on as it comes.
    public static let frameBytes = (128 << 10) - headerBytes
    /// Payload bytes from which a frame goes to the transport without waiting for a flush.
    public static let fullBytes = 64 << 10
    /// Payload bytes of a control frame; a longer one is a protocol error (RFC 6455 section 5.5).
    public static let controlBytes = 125
    /// UTF-8 bytes of the reason in a close frame of ours; longer ones are cut.
    public static let reasonBytes = controlBytes - 2
    /// Bytes of the longest frame header.
    public static let headerBytes = 14
    /// Bytes from which a server's buffer goes out as it is behind its frame's header, instead of
    /// being copied into one buffer with it.
    public static let copyBytes = 8 << 10
}
