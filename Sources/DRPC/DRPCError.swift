/// What went wrong in a call or on its connection. Two errors are equal when their codes are.
public struct DRPCError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of failure; callers branch on it.
    public enum Code: Sendable, Equatable {
        /// The other side answered with an error of this code; thrown by a handler, this is what
        /// the client gets. 0 is "no code".
        case remote(UInt64)
        /// The other side broke the protocol; the connection is closed without an answer.
        case protocolViolation
        /// The stream ended where a message was due.
        case endOfStream
        /// The call was cancelled by one of the sides.
        case cancelled
        /// The connection is closed, or could not be made.
        case closed
        /// A message or a queue is past a bound of ``DRPCLimits``.
        case limit
        /// The bytes of a message are not what its type says.
        case undecodable
    }

    /// The code of an rpc that the server knows and doesn't offer.
    public static let unimplementedCode: UInt64 = 12

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

    public static func == (a: DRPCError, b: DRPCError) -> Bool { a.code == b.code }

    public var description: String { cause.map { "\(message): \($0)" } ?? message }

    /// Whether the server has no such rpc, so that a caller may fall back to an older one.
    public var isUnknownRPC: Bool {
        switch code {
        case .remote(Self.unimplementedCode): true
        case .remote(0): message.hasPrefix(Self.unknownRPCPrefix)
        default: false
        }
    }

    static let unknownRPCPrefix = "protocol error: unknown rpc: "

    static func violation(_ message: String) -> DRPCError { DRPCError(.protocolViolation, message) }

    /// The error where a Go client gets io.EOF.
    static var endOfStream: DRPCError { DRPCError(.endOfStream, "EOF") }

    /// What a handler's failure looks like on the wire.
    static func answer(for error: any Error) -> ErrorPayload {
        guard let error = error as? DRPCError else { return ErrorPayload(code: 0, text: "\(error)") }
        if case .remote(let code) = error.code { return ErrorPayload(code: code, text: error.message) }
        return ErrorPayload(code: 0, text: error.description)
    }
}
