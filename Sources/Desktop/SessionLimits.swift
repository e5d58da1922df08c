/// The bounds of the desktop's session and its viewers; tests shorten the times.
struct SessionLimits: Sendable {
    /// From the first use to a desktop that answers, the end of an earlier one included.
    var start = DesktopLimits.startBudget
    /// How long after that a start is given up that hangs in a step without its own time limit.
    var startSlack = Duration.seconds(1)
    /// From SIGTERM to SIGKILL for an `up` that exceeds its time.
    var upGrace = Duration.seconds(1)
    /// How long a process that the program reports may take to execute the program it is reported as.
    var naming = Duration.seconds(1)
    /// How long a desktop of an earlier run of the agent may take to answer before it is given up.
    var adoption = Duration.seconds(5)
    /// A desktop that answered within this time is not probed again.
    var probeAfter = Duration.seconds(2)
    /// How long a desktop may take to answer before it is killed and a new one started.
    var probe = Duration.seconds(5)
    /// A window manager that has ended is started again at most once within this time.
    var windowManagerRestart = Duration.seconds(5)
    /// Between SIGTERM and SIGKILL for openbox and Xvnc.
    var stopGrace = Duration.seconds(2)
    /// How long SIGKILL is waited for.
    var killGrace = Duration.seconds(2)
    /// How long shutdown waits until buttons and keys are released.
    var release = Duration.seconds(1)

    /// Bytes of `up`'s stdout; a program that prints more before it exits is killed.
    static let upOutputBytes = 256 << 10
    /// Bytes of `up`'s stderr that are kept, the last ones.
    static let upErrorBytes = 4 << 10
    /// High-water mark of a viewer's two channels: at it, nothing more is read from the opposite side.
    static let viewerBufferBytes = 512 << 10
    /// How long the VNC server may take to accept a viewer.
    static let viewerConnect = Duration.seconds(5)
    /// How long the VNC server may take to close the connection of a viewer that disconnected.
    static let viewerLeave = Duration.seconds(1)
    /// Bytes of one of the viewer page's files.
    static let viewerFileBytes = 8 << 20
    /// Directories below the viewer's; deeper files are not served.
    static let viewerDepth = 6
}
