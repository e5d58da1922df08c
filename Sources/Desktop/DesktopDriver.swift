/// Where a VNC server listens.
public enum RFBEndpoint: Sendable, Equatable {
    /// A unix socket's path.
    case unix(String)
    case tcp(host: String, port: Int)
}

/// Width and height in pixels, each at least 1.
public struct DesktopSize: Sendable, Equatable {
    public var width: Int
    public var height: Int

    public init(width: Int, height: Int) {
        self.width = width
        self.height = height
    }
}

/// The answer to an action (docs/contracts/desktop.md#actions).
public struct ActionResult: Sendable, Equatable {
    public var output: String?
    /// A PNG, not yet base64.
    public var screenshot: [UInt8]?
    /// The size of the screenshot.
    public var size: DesktopSize?
    /// Whether what was waited for came in time.
    public var met: Bool?
    var windows: [DesktopWindow]?
    /// The desktop was replaced since the last answer: programs that ran on the earlier one are gone.
    public var desktopRestarted = false

    public init(output: String? = nil, screenshot: [UInt8]? = nil, size: DesktopSize? = nil) {
        self.output = output
        self.screenshot = screenshot
        self.size = size
    }

    /// The answer to an action that has nothing else to say.
    init(performed kind: DesktopAction.Kind) { self.init(output: "\(kind.rawValue) action performed") }
}

/// Drives one desktop. The session makes one for each desktop that it starts or adopts, and passes actions on to
/// it, which are performed in the order of the calls.
public protocol DesktopDriver: Sendable {
    /// The framebuffer's present size.
    var size: DesktopSize { get }
    /// Whether the connection is up. False as soon as the server closes it.
    var isAlive: Bool { get }

    /// Performs one validated action for which ``DesktopAction/Kind/isOfDriver`` holds. When it is cancelled it releases what it pressed
    /// and throws.
    /// - Throws: ``DesktopError``: `.connectionLost` when the server is gone or does not answer,
    ///   `.invalid` for a key that does not exist, `.pointerHeld` while a viewer holds a button.
    func perform(_ action: DesktopAction) async throws -> ActionResult

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
