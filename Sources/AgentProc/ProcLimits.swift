/// Every bound of the process API, in one place (docs/contracts/process-api.md#limits).
public enum ProcLimits {
    /// Bytes kept of the beginning, and as many of the end, of a process's output.
    public static let headBytes = 16 << 10
    public static let tailBytes = 16 << 10
    /// Bytes of one rendered line, the suffix included.
    public static let lineBytes = 2_048
    /// Processes that run at once; a further start is 429.
    public static let running = 500
    /// Scripts and metadata commands that run at once, or whose output is still held; a further one
    /// cannot be started.
    public static let commands = 256
    /// Exited processes that are remembered; the oldest goes first.
    public static let exited = 1_000
    /// How long an exited process is remembered.
    public static let retention = Duration.seconds(300)
    /// Forgotten processes that still count as lingering, because something holds their output.
    public static let outliving = 500
    /// Sessions without a leader that are remembered for shutdown, and how many more come to that before those
    /// that nothing is left of are looked for.
    public static let endedSessions = 4_000
    public static let endedSessionsSwept = 1_000
    /// Bytes of a command, and of all arguments of an argv; more is 413.
    public static let commandBytes = 256 << 10
    /// Bytes of all names and values of a request's env; more is 413.
    public static let environmentBytes = 1 << 20
    /// Bytes of a request body: the two above, each byte escaped as `\u00XX`, and the rest.
    public static let startBodyBytes = 8 << 20
    /// Bytes of a client token.
    public static let clientTokenBytes = 256
    /// Bytes of recent output kept in memory for a process with a terminal, or while a client follows the output.
    public static let recentBytes = 256 << 10
    /// Bytes of output that a client that follows it gets at once.
    static let followBytes = 64 << 10
    /// Waits for output whose bytes are in memory at once, ``followBytes`` each; more wait for their turn.
    static let matchesAtOnce = 64
    /// Milliseconds of a wait's matching after which it is another one's turn.
    static let matchPieceMilliseconds = 25
    /// For how long a wait whose time is over still looks at what there is already.
    static let lookGrace = Duration.seconds(1)
    /// Looks at files, for waits, that may hang at once in a file system that does not answer.
    static let hangingLooks = 16
    /// Bytes read from a spool at once.
    static let rawBytes = 256 << 10
    /// What a terminal may still hold of the output of a program that has ended.
    static let terminalBytes = 128 << 10
    /// Between two signs of life of a stream that has nothing to say.
    static let streamHeartbeat = Duration.seconds(15)
    /// How long a terminal has another size, so that its programs draw their screens anew.
    static let redrawPause = Duration.milliseconds(100)
    /// Rows or columns of a terminal.
    public static let terminalLines = 1...10_000
    /// Bytes of a terminal's name.
    public static let terminalNameBytes = 64
    /// Maximum of `wait_ms` of a start, and default and maximum of `timeout_ms` of a waiting read.
    public static let waitMilliseconds = 300_000
    /// Maximum of `timeout_ms` of a start: a week.
    public static let runMilliseconds = 7 * 24 * 3_600_000
    /// Between SIGTERM and SIGKILL after a process's time is over.
    public static let timeoutGrace = Duration.seconds(5)
    /// Between SIGTERM and SIGKILL at shutdown.
    public static let shutdownGrace = Duration.seconds(2)
    /// How long shutdown waits for what SIGKILL hit.
    public static let killGrace = Duration.seconds(2)
    /// Bytes of a command as lists show it, which is all that is kept of it.
    public static let shownCommandBytes = 4_096
    /// Bytes of a list's answer that are made at once; the rest is made as the client reads.
    static let listPieceBytes = 64 << 10
    /// Default and maximum of `limit` of a list.
    public static let defaultList = 10
    public static let maximumList = 1_000
    /// Bytes of one process's spool, and of all together.
    public static let spoolBytes = 64 << 20
    public static let spoolTotalBytes = 1 << 30
    /// Bytes of one process that may wait for the disk; then its pipe is not read for a moment.
    public static let spoolPendingBytes = 8 << 20
    /// How long in all a process may be held up by a slow disk before its spool is given up.
    public static let spoolPatience = Duration.seconds(1)
    /// Longest single argument or variable that Linux takes (MAX_ARG_STRLEN less the NUL).
    public static let kernelArgumentBytes = 131_071
}
