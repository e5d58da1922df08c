import FoundationEssentials
import NIOCore
import NIOHTTP1

/// A peer's text as part of a message of ours.
enum PeerText {
    /// Fields whose values are no secrets.
    private static let open: Set<String> = ["user-agent", "accept", "content-type"]

    /// One line without control characters, of limited length.
    /// - Parameter sent: what the peer was sent. Values that it quotes are left out: they may be secrets.
    static func line(_ text: String, sent: HTTPHeaders = [:]) -> String {
        var text = text
        for field in sent where field.value.utf8.count >= 4 && !open.contains(field.name.lowercased()) {
            text = text.replacing(field.value, with: "***")
        }
        var result = ""
        var count = 0
        for scalar in text.unicodeScalars {
            guard count < DialLimits.messageCharacters else { return result + "…" }
            let isControl = scalar.properties.generalCategory == .control
            if isControl, result.last == " " || result.isEmpty { continue }
            result.unicodeScalars.append(isControl ? " " : scalar)
            count += 1
        }
        while result.last == " " { result.removeLast() }
        return result
    }
}

/// An answer of the control plane that is not the one asked for.
struct HTTPFailure {
    /// The control plane's error body.
    struct Body: Decodable {
        struct Validation: Decodable {
            var field: String?
            var detail: String?
        }
        var message: String?
        var detail: String?
        var validations: [Validation]?
    }

    var status: Int
    /// nil when the body is not the control plane's.
    var body: Body?
    var location: String?

    init(status: Int, location: String? = nil, body: ByteBuffer) {
        self.status = status
        self.location = location
        self.body = try? JSONDecoder().decode(Body.self, from: Data(body.readableBytesView))
    }

    /// Whether it is the refusal of our version (docs/contracts/websockets.md#the-request-that-opens-the-link).
    var refusesVersion: Bool {
        status == 400 && body?.validations?.contains { $0.field?.lowercased() == "version" } == true
    }

    /// - Parameters:
    ///   - request: method and address, without secrets.
    ///   - sent: the request's fields, which the answer may quote.
    func error(_ request: String, sent: HTTPHeaders) -> ControlPlaneError {
        func line(_ text: String) -> String { PeerText.line(text, sent: sent) }
        var message = "\(request) was answered with \(status)"
        if let text = body?.message, !text.isEmpty {
            message += ": \(line(text))"
            if let detail = body?.detail, !detail.isEmpty { message += " (\(line(detail)))" }
            for validation in body?.validations?.prefix(8) ?? [] {
                message += "; \(line(validation.field ?? "")): \(line(validation.detail ?? ""))"
            }
        } else if status != 401 {
            message +=
                " \(HTTPResponseStatus(statusCode: status).reasonPhrase), and not by a control plane's error body"
        }
        switch status {
        case 401: message += "; check the agent's token"
        case 300..<400:
            // Followed, it would take the token to wherever it points.
            let target = location.flatMap { try? ServerAddress(String($0.prefix { $0 != "?" }), what: "") }
            message += "; redirects are not followed: set --agent-url to "
            message +=
                target.map { "where it leads (it names \($0.isSecure ? "https" : "http")://\($0.authority))" }
                ?? "where it leads"
        case 404: message += "; check --agent-url"
        default: break
        }
        return ControlPlaneError(.http(status), message)
    }
}
