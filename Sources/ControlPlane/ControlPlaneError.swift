/// What went wrong on the way to the control plane. Two errors are equal when their codes are.
package struct ControlPlaneError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of failure; the run loop branches on it.
    package enum Code: Sendable, Equatable {
        /// The address cannot be reached, or the transport failed.
        case unreachable
        /// TLS could not be agreed on, or the certificate is not trusted.
        case tls
        /// The control plane answered with this HTTP status instead of 101 or 200.
        case http(Int)
        /// It speaks none of our versions.
        case version
        /// The token could not be had: file, metadata service or exchange.
        case token
        /// A flag, file or command of ours is wrong.
        case configuration
        /// What arrived breaks the protocol.
        case protocolViolation
        /// The manifest makes no sense.
        case manifest
        /// Something took longer than its limit.
        case timeout
    }

    package var code: Code
    /// One sentence for a person: what, which address, what to try. Never holds a secret.
    package var message: String
    /// The failure below this one, where there was one.
    package var cause: (any Error)?

    package init(_ code: Code, _ message: String, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
    }

    /// Whether trying again soon cannot succeed: retried at the ceiling, and shown by /healthz
    /// (docs/contracts/control-plane.md#run-loop).
    package var isPermanent: Bool {
        switch code {
        case .http(401), .http(403), .http(404), .version: true
        default: false
        }
    }

    package static func == (a: ControlPlaneError, b: ControlPlaneError) -> Bool { a.code == b.code }

    package var description: String { cause.map { "\(message): \($0)" } ?? message }
}
