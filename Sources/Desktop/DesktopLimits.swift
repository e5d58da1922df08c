import CDesktop

/// Every bound of the desktop, in one place (docs/contracts/desktop.md).
package enum DesktopLimits {
    /// Bytes of an action's body.
    package static let actionBytes = 1 << 20
    /// Milliseconds of `duration`, at most; more is refused.
    package static let durationMilliseconds = 60_000
    /// How long a desktop may take to come up, the end of an earlier one included.
    package static let startBudget = Duration.seconds(30)
    /// Recordings that run at once; a further one is 429.
    package static let recordings = 5
    /// Bytes of a recording that are sent; more is 413.
    package static let recordingBytes = 100 << 20
    /// Bytes of a thumbnail; a larger one is left out.
    package static let thumbnailBytes = 10 << 20
    /// How long a recording goes on without an action.
    package static let recordingIdle = Duration.seconds(600)
    /// Between SIGINT and SIGKILL for a recorder.
    package static let recordingStop = Duration.seconds(15)
    /// How long shutdown waits for recordings to be finished.
    package static let shutdownRecordings = Duration.seconds(3)
    /// How long a stopped recording's files are kept.
    package static let recordingRetention = Duration.seconds(3_600)
    /// How long a program that is opened is watched for failing at once.
    package static let openCheck = Duration.milliseconds(300)
    /// Lines of what such a program wrote that the answer has, the last ones.
    package static let openLines = 5
    /// Distinct characters outside the keyboard layout that one desktop types as keys; further ones go
    /// through the clipboard. The X server has this many spare keycodes.
    package static let spareKeycodes = 19
    /// Clicks of the wheel in one action; more is refused.
    package static let scrollAmount = 1_000
    /// Pixels of one side of the coordinate space that a caller declares; more is refused.
    package static let declaredSide = 8_192
    /// Factors by which a picture may be scaled.
    package static let scales = 0.05...8.0
    /// Pixels of one side of a picture, and of a desktop that is resized.
    package static let pictureSide = 8_192
    /// Keys of one combination.
    package static let combinationKeys = 16
    /// Combinations that one action presses in order.
    package static let combinations = 64
    /// Keys that are held during a click.
    package static let modifiers = 8
    /// Bytes of UTF-8 that are put on the clipboard or read from it.
    package static let clipboardBytes = 1 << 20
    /// How long the VNC server may take to send the clipboard before xclip is asked.
    package static let clipboardAnswer = Duration.seconds(1)
    /// How long after a key or a click a program may take to put something on the clipboard, before it is read.
    package static let clipboardDelay = Duration.milliseconds(200)
    /// How long after that a further program may.
    package static let clipboardSettles = Duration.milliseconds(20)
    /// How long a viewer may hold a button before an action of the pointer fails.
    package static let viewerHold = Duration.seconds(2)
    /// Waits for a still screen at once; a further one is 429.
    package static let stillnessWaits = 16
    /// How long the window manager and the programs may take to follow a new size.
    package static let resizeBudget = Duration.seconds(5)
    /// Bytes of UTF-8 that go through the clipboard at once; longer text goes in pieces.
    package static let pasteBytes = 16 << 10
    /// How long a program may take to fetch what is pasted.
    package static let pasteBudget = Duration.seconds(5)
    /// How long a program gets to paste where there is no signal that it has.
    package static let blindPaste = Duration.milliseconds(500)
    /// How long the VNC server may take to answer a request; then the connection counts as lost.
    package static let answerBudget = Duration.seconds(5)
    /// From the first connection attempt to a server that answers.
    package static let connectBudget = Duration.seconds(10)
    /// How long a helper program (xclip) may take.
    package static let helperBudget = Duration.seconds(5)
    /// How long a subcommand of portabledesktop may take, and the bytes it may print.
    package static let programBudget = Duration.seconds(10)
    /// Added for each character that it types, at 12 ms each on a fast machine.
    package static let programPerCharacter = Duration.milliseconds(100)
    package static let programOutputBytes = 64 << 20
    /// Characters that one subcommand types, at about 12 ms each, and steps of the wheel, at 100 ms each.
    package static let programTypes = 200
    package static let programScrolls = 20
    /// How long closing waits until the server has processed the release of held keys and buttons.
    package static let releaseBudget = Duration.seconds(1)
    /// Actions that wait for their turn; a further one is 429.
    package static let queuedActions = 256
    /// Pixels of a desktop of which a screenshot is taken (four bytes each while it is made).
    package static let screenshotPixels = 64 << 20
    /// Keys or clicks that are sent before we wait until the server has processed them.
    package static let eventsAtOnce = 64
    /// Steps of a drag and the time between them: programs ignore a drag without movement.
    package static let dragSteps = 6
    package static let dragStep = Duration.milliseconds(6)
    /// How long a key is held before it repeats, and the time between repeats (30 Hz).
    package static let repeatDelay = Duration.milliseconds(500)
    package static let repeatInterval = Duration.microseconds(33_333)
    /// Requests about windows that are answered at once; a further one is 429.
    package static let windowCalls = 16
    /// Windows that are listed; of more the lowest, or oldest, are left out.
    package static let windows = Int(WD_X_WINDOWS)
    /// How long the X server may take to answer in all of a request about windows, besides the waits.
    package static let windowAnswers = Duration.seconds(5)
    /// How long a window manager that is just starting may take to announce itself.
    package static let windowManagerBudget = Duration.seconds(2)
    /// How long a window may take to become the active one.
    package static let focusBudget = Duration.seconds(2)
}
