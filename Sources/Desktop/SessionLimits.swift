/// The bounds of the desktop's session and its viewers; tests shorten the times.
public struct SessionLimits: Sendable {
    /// From the first use to a desktop that answers, the end of an earlier one included.
    public var start = DesktopLimits.startBudget
    /// How long after that a start that hangs in what has no time of its own is given up.
    public var startSlack = Duration.seconds(1)
    /// From SIGTERM to SIGKILL for an `up` that is over time.
    public var upGrace = Duration.seconds(1)
    /// How long a process that the program tells of may take to become what it is said to be.
    public var naming = Duration.seconds(1)
    /// How long an earlier life's desktop may take to answer before it is given up.
    public var adoption = Duration.seconds(5)
    /// A desktop that has answered within this time is taken to answer still.
    public var probeAfter = Duration.seconds(2)
    /// How long a desktop may take to answer before it is killed and a new one started.
    public var probe = Duration.seconds(5)
    /// Between SIGTERM and SIGKILL for openbox and Xvnc.
    public var stopGrace = Duration.seconds(2)
    /// How long SIGKILL is waited for.
    public var killGrace = Duration.seconds(2)
    /// How long shutdown waits until buttons and keys are released.
    public var release = Duration.seconds(1)

    /// Bytes of `up`'s stdout; a program that prints more before it exits is killed.
    public static let upOutputBytes = 256 << 10
    /// Bytes of `up`'s stderr that are kept, the last ones.
    public static let upErrorBytes = 4 << 10
    /// Bytes on their way to a viewer beyond which nothing more is read from the VNC server for it, and
    /// the other way round: the high mark of each channel.
    public static let viewerBufferBytes = 512 << 10
    /// How long the VNC server may take to accept a viewer.
    public static let viewerConnect = Duration.seconds(5)
    /// How long the VNC server may take to end the connection of a viewer that has gone.
    public static let viewerLeave = Duration.seconds(1)
    /// Bytes of one of the viewer page's files.
    public static let viewerFileBytes = 8 << 20
    /// Directories below the viewer's; deeper files are not served.
    public static let viewerDepth = 6

    public init() {}
}
