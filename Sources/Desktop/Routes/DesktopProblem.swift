import AgentHTTP
import HTTPTypes

extension DesktopError {
    /// The HTTP answer for it.
    var problem: HTTPProblem {
        let status: HTTPResponse.Status =
            switch code {
            case .invalid: .badRequest
            case .notFound: .notFound
            case .pointerHeld: .conflict
            case .tooLarge: .contentTooLarge
            case .tooMany: .tooManyRequests
            case .failed, .connectionLost: .internalServerError
            case .shuttingDown: .serviceUnavailable
            }
        // With a cause it is logged. A client's mistake is not worth that, and a failed start was logged already.
        let cause = status == .internalServerError && !isAboutStart ? self : nil
        return HTTPProblem(status, message, detail: detail, cause: cause)
    }
}

/// Runs a part of a route and turns its ``DesktopError`` into an HTTP answer.
func answering<T: Sendable>(_ body: () async throws -> T) async throws -> T {
    do {
        return try await body()
    } catch let error as DesktopError {
        throw error.problem
    }
}
