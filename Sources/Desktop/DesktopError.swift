/// Why the desktop refused or failed something. Two errors are equal when their codes are.
package struct DesktopError: Error, Sendable, Equatable {
    package enum Code: Sendable, Equatable {
        /// The request itself is wrong: 400.
        case invalid
        /// There is nothing of that name: 404.
        case notFound
        /// A viewer holds the pointer: 409.
        case pointerHeld
        /// The recording is larger than may be sent: 413.
        case tooLarge
        /// A limit on how many may run or wait at once: 429.
        case tooMany
        /// The desktop, or a program that it needs, failed: 500.
        case failed
        /// The connection to the VNC server is lost, so that a new desktop has to be started: 500.
        case connectionLost
        /// Shutdown has begun: 503.
        case shuttingDown
    }

    package var code: Code
    /// One sentence, for the client.
    package var message: String
    /// More for a person; never a secret.
    package var detail: String?
    package var cause: (any Error)?

    package init(_ code: Code, _ message: String, detail: String? = nil, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.detail = detail
        self.cause = cause
    }

    package static func == (a: DesktopError, b: DesktopError) -> Bool { a.code == b.code }
}
