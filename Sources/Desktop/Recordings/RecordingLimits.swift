/// The bounds of recordings; tests set smaller ones.
package struct RecordingLimits: Sendable {
    /// Recorders that run at once.
    package var running = DesktopLimits.recordings
    /// Bytes of a video that are sent. The recorder ends by itself a little above that: more could never be sent
    /// and would only fill the disk.
    package var videoBytes = DesktopLimits.recordingBytes
    /// Bytes of a thumbnail that are sent.
    package var thumbnailBytes = DesktopLimits.thumbnailBytes
    /// How long a recording goes on without an action.
    package var idle = DesktopLimits.recordingIdle
    /// From the start of a recorder to its first frame.
    package var start = Duration.seconds(15)
    /// After this time a recorder without a sign is taken to record.
    package var fallbackReady = Duration.seconds(3)
    /// Between SIGINT and SIGKILL.
    package var stop = DesktopLimits.recordingStop
    /// The same at the daemon's shutdown.
    package var shutdown = DesktopLimits.shutdownRecordings
    /// How long shutdown waits after SIGKILL.
    package var kill = Duration.seconds(1)
    /// How long a stopped recording is kept.
    package var retention = DesktopLimits.recordingRetention
    /// Stopped recordings that are kept; the oldest goes first.
    package var kept = 50
    /// Bytes of all stopped recordings together; the oldest goes first.
    package var keptBytes = 1 << 30
    /// Bytes of what a recorder wrote to stderr that are kept for the log.
    package var errorBytes = 2_000

    package init() {}
}
