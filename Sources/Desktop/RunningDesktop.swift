/// A desktop that is up.
public struct RunningDesktop: Sendable {
    /// The X display, such as `:3`.
    public var display: String
    /// Where its VNC server listens: what a bridged viewer is connected to.
    public var endpoint: RFBEndpoint
    /// The TCP port that the program reported.
    public var vncPort: Int
    /// Seconds since 1970 when it came up.
    public var since: Int64
    public var driver: any DesktopDriver

    public init(
        display: String, endpoint: RFBEndpoint, vncPort: Int, since: Int64, driver: any DesktopDriver
    ) {
        self.display = display
        self.endpoint = endpoint
        self.vncPort = vncPort
        self.since = since
        self.driver = driver
    }
}

/// Provides the desktop; implemented by ``DesktopSession``.
public protocol DesktopProvider: Sendable {
    /// The running desktop, which is started when there is none. Simultaneous first uses share one start.
    /// - Throws: ``DesktopError``.
    func desktop() async throws -> RunningDesktop

    /// The running desktop, if there is one; starts nothing.
    var current: RunningDesktop? { get }
}
