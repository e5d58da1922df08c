/// Every bound of the boundary log proxy, and what happens at it.
public enum BoundaryLimits {
    /// Longest wait of the forwarder between two checks of which session is due.
    static let duePollInterval = Duration.milliseconds(250)
    /// Ids of batches stay below it. A file with a higher one counts as damaged and is set aside.
    static let largestID: Int64 = 1 << 53
    /// Payload bytes of one frame. A longer one closes its connection.
    public static let frameBytes = 32_768
    /// Connections served at once. A further one is closed at once, with a log line.
    public static let connections = 1_024
    /// Connections that may wait to be accepted; a unix socket refuses more (EAGAIN).
    public static let backlog: Int32 = 1_024
    /// Milliseconds between two checks whether a connection waits to be accepted while the proxy stops; it goes on
    /// listening until none does at two in a row.
    public static let acceptMilliseconds: Int64 = 20
    /// The most of these checks; then it stops listening in any case.
    public static let acceptChecks = 100
    /// Times, 10 ms apart, that a connection is checked while the proxy stops; it is closed when nothing came since
    /// the last check, and at the last one.
    public static let drainTurns = 50
    /// Milliseconds for which a connection is not read while the disk is behind. Then it is read all the same, and
    /// what has no room is dropped: a disk that hangs must not block boundary.
    public static let pauseMilliseconds = 2_000
    /// Sessions whose sequence numbers are tracked. At the limit the half that has been silent longest is dropped:
    /// a gap across that moment is not counted.
    public static let sessions = 1_024
    /// UTF-8 bytes of a session id. Sequence numbers of longer ones are not tracked.
    public static let sessionBytes = 128

    /// Batches in the queue, on disk and in memory. At the limit the newest is dropped.
    public static let queueBatches = 100_000
    /// Payload bytes in the queue. The newest batch is dropped when it would go past it.
    public static let queueBytes = 64 << 20
    /// Batches that are not on disk yet. At the limit the newest is dropped.
    public static let stagedBatches = 32_768
    /// Payload bytes that are not on disk yet. The newest batch is dropped when it would go past it.
    public static let stagedBytes = 16 << 20
    /// Payload bytes of a chunk of the staging area, and so about of one transaction.
    public static let chunkBytes = 1 << 20
    /// Pages (of 4 KiB) of the queue's file, more than the payload limit takes with one batch a page. At the limit
    /// the disk counts as full.
    public static let filePages = 65_536
    /// How long the agent's shutdown waits for the disk. Batches that are not on disk then are lost, and logged.
    public static let closeLimit = Duration.seconds(5)
    /// When nothing was written for longer while batches wait in memory, the daemon is degraded.
    public static let slowDisk = Duration.seconds(10)
    /// Damaged files that are kept beside the queue; then the oldest is deleted.
    public static let setAside = 3

    /// Batches that are being sent, or were read to be sent next. At the limit no more are read.
    public static let windowBatches = 512
    /// Payload bytes of the same.
    public static let windowBytes = 2 << 20
    /// Batches from the oldest unacknowledged one to the newest that was read. At the limit no more are read.
    public static let windowSpan = 8_192
    /// Calls at the same time, each of another session. Others wait.
    public static let calls = 16
    /// Batches of one session that wait before they are sent together in one call.
    public static let mergeFrom = 16
    /// Payload bytes of batches that are sent together.
    public static let mergeBytes = 256 << 10
    /// Times that the control plane may refuse a batch as invalid; then it is dropped.
    public static let refusals = 3
}
