import NIOCore

/// Every bound of the multiplexer, and what happens at it.
public enum YamuxLimits {
    /// Bytes that each side may send on a stream before the other gives some back. More ends the
    /// session (the reference's default, and the least that it accepts).
    public static let window: UInt32 = 262_144
    /// Consumed bytes of a stream that are added to its window again in one WindowUpdate.
    public static let windowUpdate: UInt32 = window / 2
    /// Streams that the other side opened and our application has not accepted yet. Further ones
    /// are reset (the reference's default).
    public static let acceptBacklog = 256
    /// Streams of a session, of both sides together. At it the stream that has waited longest for
    /// the other side's FIN is reset; without one, a local open fails and a remote one is reset.
    public static let streams = 4_096
    /// Payload of a Data frame of ours: a dRPC frame of 64 KiB with its header. Longer writes are
    /// split, and streams take turns frame by frame.
    public static let dataFrameBytes = 69_632
    /// Bytes of a stream that wait to be sent until its channel says that it isn't writable.
    public static let writeHighWaterMark = 65_536
    /// Bytes of a stream that wait to be sent from which its channel is writable again.
    public static let writeLowWaterMark = 32_768
    /// Payloads up to here are copied behind their header; longer ones are a write of their own.
    public static let copiedPayloadBytes = 8_192
    /// Payload that is handed to the transport between two flushes.
    public static let batchBytes = 262_144
    /// Payload that a session sends before its event loop serves other channels.
    public static let bytesInARow = 1_048_576
    /// Header bytes written since the transport stopped being writable. At the limit no stream can be opened and the
    /// transport isn't read, so that a peer can't make us queue answers without end.
    public static let stalledHeaderBytes = 65_536
    /// Ids of remote streams that are remembered, counted back from the highest, to tell a second
    /// SYN from a first. An id further back is taken for a new one.
    public static let rememberedIDs: UInt32 = 4_096
    /// Bytes for a stream whose channel is closed that are dropped silently. At the limit the stream is reset, so that
    /// the sender notices instead of waiting for window.
    public static let discardedBytes: UInt32 = windowUpdate
    /// How long a closed stream waits for the other side's FIN; then it is reset (the reference's
    /// default).
    public static let closeTimeout = TimeAmount.minutes(5)
    /// Time between two pings (the reference's default).
    public static let keepAliveInterval = TimeAmount.seconds(30)
    /// Time for the answer to a ping; without one the session ends (the reference's default).
    public static let pingTimeout = TimeAmount.seconds(10)
    /// How long the last GoAway may take to reach the transport before it is closed anyway.
    public static let farewellTimeout = TimeAmount.seconds(1)
}
