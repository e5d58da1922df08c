/// A desktop that is up.
package struct RunningDesktop: Sendable {
    /// The X display, such as `:3`.
    package var display: String
    /// Where its VNC server listens: what a bridged viewer is connected to.
    package var endpoint: RFBEndpoint
    /// The TCP port that the program reported.
    package var vncPort: Int
    /// Seconds since 1970 when it came up.
    package var since: Int64
    package var driver: any DesktopDriver

    package init(
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
package protocol DesktopProvider: Sendable {
    /// The running desktop, which is started when there is none. Simultaneous first uses share one start.
    /// - Throws: ``DesktopError``.
    func desktop() async throws -> RunningDesktop

    /// The running desktop, if there is one; starts nothing.
    var current: RunningDesktop? { get }
}
