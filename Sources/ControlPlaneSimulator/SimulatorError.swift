/// What went wrong in the simulator. Two errors are equal when their codes are.
package struct SimulatorError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of failure; callers branch on it.
    package enum Code: Sendable, Equatable {
        /// A manifest file is not what it should be.
        case manifest
        /// What was waited for did not come in time.
        case timeout
        /// An address cannot be listened on, or a TLS file not be used.
        case listen
        /// The server or proxy is stopped.
        case stopped
    }

    package var code: Code
    /// One sentence for a person: what, which path or value, what to try.
    package var message: String
    /// The failure below this one, where there was one.
    package var cause: (any Error)?

    package init(_ code: Code, _ message: String, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
    }

    package static func == (a: SimulatorError, b: SimulatorError) -> Bool { a.code == b.code }

    package var description: String { cause.map { "\(message): \($0)" } ?? message }
}
