/// What the desktop refuses or could not do, and why. Equal when the codes are.
public struct DesktopError: Error, Sendable, Equatable {
    public enum Code: Sendable, Equatable {
        /// The request itself is wrong: 400.
        case invalid
        /// Nothing of that name is there: 404.
        case notFound
        /// What was recorded is larger than may be sent: 413.
        case tooLarge
        /// A limit on how many at once: 429.
        case tooMany
        /// The desktop, or a program that it needs, failed: 500.
        case failed
        /// The connection to the VNC server is gone, so that a new desktop has to be found: 500.
        case connectionLost
        /// Shutdown has begun: 503.
        case shuttingDown
    }

    public var code: Code
    /// One sentence, for the client.
    public var message: String
    /// More for a person, where there is more to say; never a secret.
    public var detail: String?
    public var cause: (any Error)?

    public init(_ code: Code, _ message: String, detail: String? = nil, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.detail = detail
        self.cause = cause
    }

    public static func == (a: DesktopError, b: DesktopError) -> Bool { a.code == b.code }
}
