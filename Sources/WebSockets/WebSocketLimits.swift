/// Every bound of the WebSocket layer, and what happens at it.
enum WebSocketLimits {
    /// Payload bytes of one data frame that we send as a byte stream; more are split. With its header
    /// a frame is at most 128 KiB, which is what a buffer holds. A peer may send frames of any
    /// length, since their payload is passed on as it comes.
    static let frameBytes = (128 << 10) - headerBytes
    /// Payload bytes from which a frame goes to the transport without waiting for a flush.
    static let fullBytes = 64 << 10
    /// Payload bytes of a control frame; a longer one is a protocol error (RFC 6455 section 5.5).
    static let controlBytes = 125
    /// UTF-8 bytes of the reason in a close frame of ours; longer ones are cut.
    static let reasonBytes = controlBytes - 2
    /// Bytes of the longest frame header.
    static let headerBytes = 14
    /// Bytes from which a server's buffer is written after its frame's header, instead of being copied into one buffer
    /// with it.
    static let copyBytes = 8 << 10
}
