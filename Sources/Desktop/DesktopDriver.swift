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

/// The answer to an action (spec: virtual desktop, actions).
public struct ActionResult: Sendable, Equatable {
    public var output: String?
    /// A PNG, not yet base64.
    public var screenshot: [UInt8]?
    /// The size of the screenshot.
    public var size: DesktopSize?

    public init(output: String? = nil, screenshot: [UInt8]? = nil, size: DesktopSize? = nil) {
        self.output = output
        self.screenshot = screenshot
        self.size = size
    }
}

/// Drives one desktop. The session makes one for each desktop that it starts or adopts, and passes actions on to
/// it, which are performed in the order of the calls.
public protocol DesktopDriver: Sendable {
    /// The framebuffer's present size.
    var size: DesktopSize { get }
    /// Whether the connection is up. False as soon as the server closes it.
    var isAlive: Bool { get }

    /// Performs one validated action, never `wait` or `open`. When it is cancelled it releases what it pressed
    /// and throws.
    /// - Throws: ``DesktopError``: `.connectionLost` when the server is gone or does not answer,
    ///   `.invalid` for a key that does not exist.
    func perform(_ action: DesktopAction) async throws -> ActionResult

    /// Sends the server a request and waits for the answer, at most for the budget.
    /// - Throws: ``DesktopError`` `.connectionLost` when it does not answer.
    func probe(within budget: Duration) async throws

    /// A bridged viewer moved the pointer: its position has to be queried again.
    func pointerMovedByViewer()

    /// A bridged viewer disconnected; buttons that it held are released.
    func viewerLeft(heldButtons: Bool) async

    /// Releases every held button and key.
    func releaseAll() async

    /// Ends the connection and its thread; calls in flight throw. Any number of times.
    func close() async
}
