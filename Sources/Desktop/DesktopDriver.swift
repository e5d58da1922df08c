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

/// What an action answers (spec: virtual desktop, actions).
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

/// Drives one desktop. The session makes one for each desktop that it starts or adopts; routes hand
/// it actions. Implemented over RFB; everything happens in the order of the calls.
public protocol DesktopDriver: Sendable {
    /// The framebuffer's present size.
    var size: DesktopSize { get }
    /// Whether the connection stands. Turns false at once when the server goes away.
    var isAlive: Bool { get }

    /// Performs one action that was validated before; `wait` and `open` never come here.
    /// Cancelled, it releases what it pressed and throws.
    /// - Throws: ``DesktopError``: `.connectionLost` when the server is gone or answers no more,
    ///   `.invalid` for a key that does not exist.
    func perform(_ action: DesktopAction) async throws -> ActionResult

    /// Asks the server something and waits for the answer, at most as long as given.
    /// - Throws: ``DesktopError`` `.connectionLost` when it does not answer.
    func probe(within budget: Duration) async throws

    /// A bridged viewer moved the pointer: the position has to be asked for again.
    func pointerMovedByViewer()

    /// A bridged viewer is gone; whatever button it held is released by the server's side of us.
    func viewerLeft(heldButtons: Bool) async

    /// Lets go of every button and key that is held.
    func releaseAll() async

    /// Ends the connection and its thread; calls in flight throw. Any number of times.
    func close() async
}
