/// Every bound of the boundary log proxy, and what happens at it.
public enum BoundaryLimits {
    /// How long the forwarder waits at most before it looks which session is due.
    static let dueNap = Duration.milliseconds(250)
    /// Numbers of batches stay below it. A file with a higher one is damaged and set aside.
    static let largestID: Int64 = 1 << 53
    /// Payload bytes of one frame. A longer one closes its connection.
    public static let frameBytes = 32_768
    /// Connections served at once. A further one is closed at once, with a log line.
    public static let connections = 1_024
    /// Connections that may wait to be accepted; a unix socket refuses more (EAGAIN).
    public static let backlog: Int32 = 1_024
    /// Milliseconds between two looks whether a connection waits to be accepted while the proxy stops; it listens
    /// on until none has at two in a row.
    public static let acceptMilliseconds: Int64 = 20
    /// Looks at most; then it stops listening in any case.
    public static let acceptLooks = 100
    /// Times, 10 ms apart, that a connection is looked at while the proxy stops; it is closed when
    /// nothing came in between, and at the last.
    public static let drainTurns = 50
    /// Milliseconds for which a connection is not read while more comes than the disk takes. Then it is read
    /// all the same, and what has no room is dropped: a disk that hangs must not hold a writer up.
    public static let pauseMilliseconds = 2_000
    /// Sessions whose sequence numbers are remembered. At the limit the half that has been silent
    /// longest is forgotten: a hole across that moment is not counted.
    public static let sessions = 1_024
    /// UTF-8 bytes of a session id whose sequence numbers are watched. Longer ones are not.
    public static let sessionBytes = 128

    /// Batches in the queue, on disk and on the way there. The newest is dropped at it.
    public static let queueBatches = 100_000
    /// Payload bytes in the queue. The newest batch is dropped when it would go past it.
    public static let queueBytes = 64 << 20
    /// Batches that are not on disk yet. The newest is dropped at it.
    public static let stagedBatches = 32_768
    /// Payload bytes that are not on disk yet. The newest batch is dropped when it would go past it.
    public static let stagedBytes = 16 << 20
    /// Payload bytes that a piece of the staging area holds; one transaction takes about so many.
    public static let chunkBytes = 1 << 20
    /// Pages (of 4 KiB) of the queue's file: payload at the limit in its worst packing (one batch a page)
    /// takes fewer. Reaching it is a full disk.
    public static let filePages = 65_536
    /// How long the end of the agent waits for the disk. What is not on it then is lost, and said so.
    public static let closeLimit = Duration.seconds(5)
    /// Batches that wait longer in memory without anything being written degrade the daemon.
    public static let slowDisk = Duration.seconds(10)
    /// Damaged files that are kept beside the queue. The oldest is deleted for a further one.
    public static let setAside = 3

    /// Batches that are sent, or read to be sent next. No more are read at it.
    public static let windowBatches = 512
    /// Payload bytes of the same.
    public static let windowBytes = 2 << 20
    /// Batches from the oldest that is not done to the newest that was read. No more are read at it.
    public static let windowSpan = 8_192
    /// Calls under way at once; each is of another session. Others wait.
    public static let calls = 16
    /// Batches of one session that wait before they are sent together in one call.
    public static let mergeFrom = 16
    /// Payload bytes of batches that are sent together.
    public static let mergeBytes = 256 << 10
    /// Times that the control plane may refuse a batch as invalid; then it is dropped.
    public static let refusals = 3
}
