import HTTPTypes

/// What the process manager refuses, and why. Equal when the codes are.
public struct ProcError: Error, Sendable, Equatable {
    public enum Code: Sendable, Equatable {
        case tooManyProcesses
        case startFailed(LaunchError)
        case startTooLarge
        case tokenConflict
        case notFound
        case notRunning
        case notPermitted
        case shuttingDown
    }

    public var code: Code
    /// More for a person, where there is more to say.
    public var detail: String?
    public var cause: (any Error)?

    public init(_ code: Code, detail: String? = nil, cause: (any Error)? = nil) {
        self.code = code
        self.detail = detail
        self.cause = cause
    }

    public static func == (a: ProcError, b: ProcError) -> Bool { a.code == b.code }
}
