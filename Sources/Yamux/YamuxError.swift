/// Why a stream or a session failed. Two errors are equal when their codes are.
public struct YamuxError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of failure; callers branch on it.
    public enum Code: Sendable, Equatable {
        /// The other side broke the protocol; it got GoAway 1 and the session is over.
        case protocolViolation
        /// The other side ended the session with this GoAway code.
        case goAway(UInt32)
        /// No new streams: one of the sides sent GoAway 0, or the ids are used up. A new session
        /// is needed.
        case notAccepting
        /// A limit of ``YamuxLimits`` is reached; it may work later.
        case limit
        /// The other side reset the stream.
        case reset
        /// A ping was not answered in time.
        case keepAliveTimeout
        /// The transport ended or failed.
        case transportClosed
        /// We closed the session.
        case closed
    }

    public var code: Code
    /// One sentence for a person.
    public var message: String
    /// The failure below this one, where there was one.
    public var cause: (any Error)?

    public init(_ code: Code, _ message: String, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
    }

    public static func == (a: YamuxError, b: YamuxError) -> Bool { a.code == b.code }

    public var description: String { cause.map { "\(message): \($0)" } ?? message }

    static func violation(_ message: String) -> YamuxError { YamuxError(.protocolViolation, message) }
}
