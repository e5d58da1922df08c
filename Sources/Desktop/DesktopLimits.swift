import CDesktop

/// Every bound of the desktop, in one place (docs/contracts/desktop.md).
public enum DesktopLimits {
    /// Bytes of an action's body.
    public static let actionBytes = 1 << 20
    /// Milliseconds of `duration`, at most; more is refused.
    public static let durationMilliseconds = 60_000
    /// How long a desktop may take to come up, the end of an earlier one included.
    public static let startBudget = Duration.seconds(30)
    /// Recordings that run at once; a further one is 429.
    public static let recordings = 5
    /// Bytes of a recording that are sent; more is 413.
    public static let recordingBytes = 100 << 20
    /// Bytes of a thumbnail; a larger one is left out.
    public static let thumbnailBytes = 10 << 20
    /// How long a recording goes on without an action.
    public static let recordingIdle = Duration.seconds(600)
    /// Between SIGINT and SIGKILL for a recorder.
    public static let recordingStop = Duration.seconds(15)
    /// How long shutdown waits for recordings to be finished.
    public static let shutdownRecordings = Duration.seconds(3)
    /// How long a stopped recording's files are kept.
    public static let recordingRetention = Duration.seconds(3_600)
    /// How long a program that is opened is watched for failing at once.
    public static let openCheck = Duration.milliseconds(300)
    /// Lines of what such a program wrote that the answer has, the last ones.
    public static let openLines = 5
    /// Distinct characters outside the keyboard layout that one desktop types as keys; further ones go
    /// through the clipboard. The X server has this many spare keycodes.
    public static let spareKeycodes = 19
    /// Clicks of the wheel in one action; more is refused.
    public static let scrollAmount = 1_000
    /// Pixels of one side of the coordinate space that a caller declares; more is refused.
    public static let declaredSide = 8_192
    /// Factors by which a picture may be scaled.
    public static let scales = 0.05...8.0
    /// Pixels of one side of a picture, and of a desktop that is resized.
    public static let pictureSide = 8_192
    /// Keys of one combination.
    public static let combinationKeys = 16
    /// Combinations that one action presses in order.
    public static let combinations = 64
    /// Keys that are held during a click.
    public static let modifiers = 8
    /// Bytes of UTF-8 that are put on the clipboard or read from it.
    public static let clipboardBytes = 1 << 20
    /// How long the VNC server may take to send the clipboard before xclip is asked.
    public static let clipboardAnswer = Duration.seconds(1)
    /// How long after a key or a click a program may take to put something on the clipboard, before it is read.
    public static let clipboardDelay = Duration.milliseconds(200)
    /// How long after that a further program may.
    public static let clipboardSettles = Duration.milliseconds(20)
    /// How long a viewer may hold a button before an action of the pointer fails.
    public static let viewerHold = Duration.seconds(2)
    /// Waits for a still screen at once; a further one is 429.
    public static let stillnessWaits = 16
    /// How long the window manager and the programs may take to follow a new size.
    public static let resizeBudget = Duration.seconds(5)
    /// Bytes of UTF-8 that go through the clipboard at once; longer text goes in pieces.
    public static let pasteBytes = 16 << 10
    /// How long a program may take to fetch what is pasted.
    public static let pasteBudget = Duration.seconds(5)
    /// How long a program gets to paste where there is no signal that it has.
    public static let blindPaste = Duration.milliseconds(500)
    /// How long the VNC server may take to answer a request; then the connection counts as lost.
    public static let answerBudget = Duration.seconds(5)
    /// From the first connection attempt to a server that answers.
    public static let connectBudget = Duration.seconds(10)
    /// How long a helper program (xclip) may take.
    public static let helperBudget = Duration.seconds(5)
    /// How long a subcommand of portabledesktop may take, and the bytes it may print.
    public static let programBudget = Duration.seconds(10)
    /// Added for each character that it types, at 12 ms each on a fast machine.
    public static let programPerCharacter = Duration.milliseconds(100)
    public static let programOutputBytes = 64 << 20
    /// Characters that one subcommand types, at about 12 ms each, and steps of the wheel, at 100 ms each.
    public static let programTypes = 200
    public static let programScrolls = 20
    /// How long closing waits until the server has processed the release of held keys and buttons.
    public static let releaseBudget = Duration.seconds(1)
    /// Actions that wait for their turn; a further one is 429.
    public static let queuedActions = 256
    /// Pixels of a desktop of which a screenshot is taken (four bytes each while it is made).
    public static let screenshotPixels = 64 << 20
    /// Keys or clicks that are sent before we wait until the server has processed them.
    public static let eventsAtOnce = 64
    /// Steps of a drag and the time between them: programs ignore a drag without movement.
    public static let dragSteps = 6
    public static let dragStep = Duration.milliseconds(6)
    /// How long a key is held before it repeats, and the time between repeats (30 Hz).
    public static let repeatDelay = Duration.milliseconds(500)
    public static let repeatInterval = Duration.microseconds(33_333)
    /// Requests about windows that are answered at once; a further one is 429.
    public static let windowCalls = 16
    /// Windows that are listed; of more the lowest, or oldest, are left out.
    public static let windows = Int(WD_X_WINDOWS)
    /// How long the X server may take to answer in all of a request about windows, besides the waits.
    public static let windowAnswers = Duration.seconds(5)
    /// How long a window manager that is just starting may take to announce itself.
    public static let windowManagerBudget = Duration.seconds(2)
    /// How long a window may take to become the active one.
    public static let focusBudget = Duration.seconds(2)
}
