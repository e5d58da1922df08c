import HTTPTypes
import Hummingbird

/// An answer other than success, and the body that explains it (docs/contracts/http-api.md#errors).
///
/// Routes throw it. Any other error of a route becomes a 500 without details; the error is logged.
public struct HTTPProblem: Error, Sendable, Equatable {
    /// What was wrong with one field of the input.
    public struct Validation: Codable, Sendable, Equatable {
        public var field: String
        public var detail: String

        public init(field: String, detail: String) {
            self.field = field
            self.detail = detail
        }
    }

    public var status: HTTPResponse.Status
    /// One sentence.
    public var message: String
    /// More details; never a secret.
    public var detail: String?
    public var validations: [Validation]
    /// Further response headers, `Allow` of a 405 among them.
    public var headers: HTTPFields
    /// The underlying error: for the log, never for the client.
    public var cause: (any Error)?

    public init(
        _ status: HTTPResponse.Status, _ message: String, detail: String? = nil, validations: [Validation] = [],
        headers: HTTPFields = [:], cause: (any Error)? = nil
    ) {
        self.status = status
        self.message = message
        self.detail = detail
        self.validations = validations
        self.headers = headers
        self.cause = cause
    }

    public static func == (a: HTTPProblem, b: HTTPProblem) -> Bool {
        a.status == b.status && a.message == b.message && a.detail == b.detail && a.validations == b.validations
    }

    /// 400 for one bad field.
    public static func invalid(_ field: String, _ detail: String, message: String? = nil) -> HTTPProblem {
        HTTPProblem(
            .badRequest, message ?? "Invalid value for \"\(field)\".",
            validations: [Validation(field: field, detail: detail)])
    }

    /// 503 once shutdown has begun.
    public static let shuttingDown = HTTPProblem(.serviceUnavailable, "The agent is shutting down.")

    private struct Body: Encodable {
        var message: String
        var detail: String?
        var validations: [Validation]?
    }

    var response: Response {
        let body = Body(message: message, detail: detail, validations: validations.isEmpty ? nil : validations)
        var response = Response.json(body, status: status)
        for field in headers { response.headers.append(field) }
        return response
    }
}
