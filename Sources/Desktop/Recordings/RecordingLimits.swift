/// The bounds of recordings; tests set smaller ones.
public struct RecordingLimits: Sendable {
    /// Recorders that run at once.
    public var running = DesktopLimits.recordings
    /// Bytes of a video that are sent. The recorder ends by itself a little above that: more could never be sent
    /// and would only fill the disk.
    public var videoBytes = DesktopLimits.recordingBytes
    /// Bytes of a thumbnail that are sent.
    public var thumbnailBytes = DesktopLimits.thumbnailBytes
    /// How long a recording goes on without an action.
    public var idle = DesktopLimits.recordingIdle
    /// From the start of a recorder to its first frame.
    public var start = Duration.seconds(15)
    /// After this time a recorder without a sign is taken to record.
    public var fallbackReady = Duration.seconds(3)
    /// Between SIGINT and SIGKILL.
    public var stop = DesktopLimits.recordingStop
    /// The same at the daemon's shutdown.
    public var shutdown = DesktopLimits.shutdownRecordings
    /// How long shutdown waits after SIGKILL.
    public var kill = Duration.seconds(1)
    /// How long a stopped recording is kept.
    public var retention = DesktopLimits.recordingRetention
    /// Stopped recordings that are kept; the oldest goes first.
    public var kept = 50
    /// Bytes of all stopped recordings together; the oldest goes first.
    public var keptBytes = 1 << 30
    /// Bytes of what a recorder wrote to stderr that are kept for the log.
    public var errorBytes = 2_000

    public init() {}
}
