import AgentHTTP
import HTTPTypes

extension DesktopError {
    /// The answer that tells of it.
    var problem: HTTPProblem {
        let status: HTTPResponse.Status =
            switch code {
            case .invalid: .badRequest
            case .notFound: .notFound
            case .tooLarge: .contentTooLarge
            case .tooMany: .tooManyRequests
            case .failed, .connectionLost: .internalServerError
            case .shuttingDown: .serviceUnavailable
            }
        // Our own faults are worth a line of the log; what the caller got wrong is not, and a start that failed
        // has one already.
        let cause = status == .internalServerError && !isAboutStart ? self : nil
        return HTTPProblem(status, message, detail: detail, cause: cause)
    }
}

/// Runs a part of a route and turns its ``DesktopError`` into an answer.
func answering<T: Sendable>(_ body: () async throws -> T) async throws -> T {
    do {
        return try await body()
    } catch let error as DesktopError {
        throw error.problem
    }
}
