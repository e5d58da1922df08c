/// Where a VNC server listens.
package enum RFBEndpoint: Sendable, Equatable {
    /// A unix socket's path.
    case unix(String)
    case tcp(host: String, port: Int)
}

/// Width and height in pixels, each at least 1.
package struct DesktopSize: Sendable, Equatable {
    var width: Int
    var height: Int

    init(width: Int, height: Int) {
        self.width = width
        self.height = height
    }
}

/// The answer to an action (docs/contracts/desktop.md#actions).
package struct ActionResult: Sendable, Equatable {
    var output: String?
    /// A PNG, not yet base64.
    var screenshot: [UInt8]?
    /// The size of the screenshot.
    var size: DesktopSize?
    /// Whether what was waited for came in time.
    var met: Bool?
    var windows: [DesktopWindow]?
    /// The desktop was replaced since the last answer: programs that ran on the earlier one are gone.
    var desktopRestarted = false

    init(output: String? = nil, screenshot: [UInt8]? = nil, size: DesktopSize? = nil) {
        self.output = output
        self.screenshot = screenshot
        self.size = size
    }
}

/// Drives one desktop. The session makes one for each desktop that it starts or adopts, and passes actions on to
/// it, which are performed in the order of the calls.
package protocol DesktopDriver: Sendable {
    /// The framebuffer's present size.
    var size: DesktopSize { get }
    /// Whether the connection is up. False as soon as the server closes it.
    var isAlive: Bool { get }

    /// Performs one action. When it is cancelled it releases what it pressed and throws.
    /// - Parameter space: what the action's coordinates and the answer's mean.
    /// - Throws: ``DesktopError``: `.connectionLost` when the server is gone or does not answer,
    ///   `.invalid` for a key that does not exist, `.pointerHeld` while a viewer holds a button.
    func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult

    /// Sends the server a request and waits for the answer, at most for the budget.
    /// - Throws: ``DesktopError`` `.connectionLost` when it does not answer.
    func probe(within budget: Duration) async throws

    /// A bridged viewer connected. Until it leaves, the pointer's position has to be queried.
    func viewerCame()

    /// A bridged viewer pressed a key or moved the pointer.
    func viewerSentInput()

    /// A bridged viewer pressed its first button, or released its last: while one holds a button, the server drops
    /// the pointer events of all others.
    func viewerHolds(_ holds: Bool)

    /// A bridged viewer disconnected; buttons that it held are released.
    func viewerLeft(heldButtons: Bool) async

    /// Releases every held button and key.
    func releaseAll() async

    /// Ends the connection and its thread; calls in flight throw. Any number of times.
    func close() async
}
