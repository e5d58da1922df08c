import HTTPTypes
import NIOHTTP1
import NIOHTTPTypesHTTP1

/// The head of a request, with checks that the decoder does not make.
struct RequestHead {
    /// The head with its target in origin form, for policy and routes.
    let request: HTTPRequest
    /// The host of a target in absolute form (`GET http://host/ HTTP/1.1`), which is checked as `Host` is.
    let targetHost: String?
    let version: HTTPVersion
    let keepsAlive: Bool
    let expectsContinue: Bool
    /// How its route has it handled.
    let plan: RoutePlan
    /// The body that it announces.
    let body: RequestFraming.Body
    /// Whether it offers another protocol. The decoder stops after it, so it is the connection's last request, also
    /// when the offer is declined.
    let offersUpgrade: Bool
    let hasBody: Bool
    /// `Content-Length`, when given.
    let declaredLength: Int?
    /// Why it is refused, whichever client sent it.
    let problem: HTTPProblem?

    init(_ head: HTTPRequestHead, plan: (HTTPRequest) -> RoutePlan) {
        var head = head
        version = head.version
        keepsAlive = head.isKeepAlive
        expectsContinue = head.headers.first(name: "expect")?.lowercased() == "100-continue"
        offersUpgrade = head.headers.contains(name: "upgrade") || head.method == .CONNECT
        // HTTP/1.0 knows no upgrade (RFC 9110 section 7.8).
        if head.version == .http1_0 { head.headers.remove(name: "upgrade") }
        let isChunked = head.headers.contains(name: "transfer-encoding")
        // The decoder takes 64 bits.
        declaredLength = head.headers.first(name: "content-length").map { Int(Self.trimmed($0)) ?? .max }
        hasBody = isChunked || (declaredLength ?? 0) > 0
        let target = Target(head)
        targetHost = target?.host
        let method = try? HTTPRequest.Method(head.method)
        request = HTTPRequest(
            method: method ?? .get, scheme: "http", authority: head.headers.first(name: "host"),
            path: target?.path ?? head.uri, headerFields: HTTPFields(head.headers, splitCookie: false))
        let plan = plan(request)
        self.plan = plan
        // The decoder expects no body after CONNECT.
        let isFramed = head.method != .CONNECT
        body =
            isFramed && isChunked ? .chunked(limit: plan.bodyLimit) : .length(isFramed ? declaredLength ?? 0 : 0)
        problem =
            if head.uri.utf8.count > HTTPLimits.uriBytes {
                .uriTooLong
            } else if target == nil || method == nil {
                .malformed
            } else {
                Self.hostProblem(head) ?? Self.codingProblem(head)
            }
    }

    var expectedBody: HTTPConnectionState.Body {
        guard hasBody else { return .none }
        return plan.streamsBody
            ? .streamed(limit: plan.bodyLimit, declared: declaredLength)
            : .collected(limit: plan.bodyLimit, declared: declaredLength)
    }

    /// HTTP/1.1 has one Host field on every transport, and proxies may interpret two differently (RFC 9112 section 3.2).
    private static func hostProblem(_ head: HTTPRequestHead) -> HTTPProblem? {
        switch head.headers["host"].count {
        case 1: nil
        case 0: head.version == .http1_0 ? nil : HTTPProblem(.badRequest, "The request has no Host header.")
        default: HTTPProblem(.badRequest, "The request has more than one Host header.")
        }
    }

    /// Only a single `Transfer-Encoding: chunked` is supported (RFC 9112 section 6.1): a body whose end a proxy could
    /// see elsewhere is refused.
    private static func codingProblem(_ head: HTTPRequestHead) -> HTTPProblem? {
        let fields = head.headers["transfer-encoding"]
        guard let field = fields.first else { return nil }
        func malformed(_ detail: String) -> HTTPProblem {
            HTTPProblem(.badRequest, "The request has an invalid Transfer-Encoding header.", detail: detail)
        }
        guard fields.count == 1 else { return malformed("There is more than one.") }
        guard head.version != .http1_0 else { return malformed("HTTP/1.0 has none.") }
        guard !head.headers.contains(name: "content-length") else { return malformed("There is Content-Length too.") }
        let codings = field.lowercased().split(separator: ",", omittingEmptySubsequences: false).map(trimmed)
        if codings == ["chunked"] { return nil }
        let names = codings.map { trimmed($0.prefix { $0 != ";" }) }
        guard let unknown = names.first(where: { $0 != "chunked" && !$0.isEmpty }) else {
            return malformed("It must be \"chunked\".")
        }
        return HTTPProblem(
            .notImplemented, "Transfer coding \"\(unknown.prefix(40))\" is not supported.",
            detail: "Send the body with Content-Length or as chunked.")
    }

    private static func trimmed(_ text: some StringProtocol) -> String {
        func isBlank(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        let bytes = Substring(text).utf8.drop(while: isBlank)
        guard let last = bytes.lastIndex(where: { !isBlank($0) }) else { return "" }
        return String(Substring(bytes[...last]))
    }

    /// The target of a request line (RFC 9112 section 3.2) in origin form.
    private struct Target {
        private static let authorityEnds = Array("/?#".utf8)

        var path: String
        var host: String?

        /// nil when it is no valid target.
        init?(_ head: HTTPRequestHead) {
            let uri = head.uri
            if uri.utf8.first == UInt8(ascii: "/") || uri == "*" || head.method == .CONNECT {
                path = PercentEncoding.normalized(target: uri)
                return
            }
            guard let separator = uri.firstRange(of: "://") else { return nil }
            guard ["http", "https"].contains(uri[..<separator.lowerBound].lowercased()) else { return nil }
            let rest = uri[separator.upperBound...]
            let end = rest.utf8.firstIndex { Self.authorityEnds.contains($0) } ?? rest.endIndex
            let authority = String(rest[..<end])
            guard Authority(authority) != nil else { return nil }
            host = authority
            let tail = rest[end...]
            path = PercentEncoding.normalized(
                target: tail.utf8.first == UInt8(ascii: "/") ? String(tail) : "/\(tail)")
        }
    }
}
