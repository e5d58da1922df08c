/// Why the unit graph refused something. Two errors are equal when their codes are.
public struct UnitError: Error, Sendable, Equatable, CustomStringConvertible {
    public enum Code: Sendable, Equatable {
        /// The name is empty.
        case nameRequired
        /// The unit is not registered.
        case notFound
        /// Something that the unit wants is not completed.
        case notReady
        /// The unit has the wanted status already.
        case sameStatus
        /// The edge would close a cycle.
        case cycle
        /// A bound of ``AgentSocketLimits`` is reached.
        case limit
    }

    public var code: Code
    /// The innermost part of the text that a client gets.
    public var message: String
    public var cause: (any Error)?

    public init(_ code: Code, _ message: String, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
    }

    public static func == (a: UnitError, b: UnitError) -> Bool { a.code == b.code }

    public var description: String { message }

    static let nameRequired = UnitError(.nameRequired, "unit name is required")
    static let notFound = UnitError(.notFound, "unit not found")
    static let notReady = UnitError(.notReady, "unit not ready")
    static let sameStatus = UnitError(.sameStatus, "same status already set")
    static let cycle = UnitError(.cycle, "cycle detected")
}
