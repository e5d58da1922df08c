import AgentCore
import HTTPTypes
import HummingbirdCore
import NIOCore

/// Decides from the head of a request whether it is allowed, before its body is read and any route runs. A value
/// without I/O.
public struct AccessPolicy: Sendable {
    /// What a TCP listener requires.
    public enum TokenRule: Sendable {
        case required(Secret<String>)
        /// `--http-auth none`: a network layer protects the address.
        case none
    }

    public var tokenRule: TokenRule
    /// Names in `Host` that are accepted beside the listener's address and localhost, as ``Authority/canonical(_:)``
    /// writes them.
    public var allowedHosts: Set<String>
    /// The uid of the daemon; a unix peer must have it or be root.
    public var ownUID: UInt32
    /// A page that a browser can open.
    public var page: BrowserPage?
    /// Whom the page at `/ui` was opened for; nil without that page.
    public var sessions: PageSessions?

    public init(
        tokenRule: TokenRule, allowedHosts: Set<String> = [], ownUID: UInt32, page: BrowserPage? = nil,
        sessions: PageSessions? = nil
    ) {
        self.tokenRule = tokenRule
        self.page = page
        self.sessions = sessions
        self.allowedHosts = Set(allowedHosts.map { Authority.canonical($0.lowercased()) })
        self.ownUID = ownUID
    }

    /// Why the request is refused, or nil when it may go on.
    /// - Parameters:
    ///   - targetHost: the host of a target in absolute form; it must be right as well as `Host`.
    ///   - hasBody: a body follows that must be JSON; not that of a route that takes any bytes, which clients send
    ///     without a type. What a page sends to such a route has its `Origin`. With the token in its header, JSON
    ///     needs no type either: a page of another site cannot send that header.
    ///   - takesQueryToken: the request is for a WebSocket route; a browser can send the token for it only in the
    ///     query.
    ///   - changes: whether the route changes something.
    public func refusal(
        of head: HTTPRequest, from connection: ConnectionInfo, targetHost: String? = nil, hasBody: Bool = false,
        takesQueryToken: Bool = false, changes: Bool = true
    ) -> HTTPProblem? {
        if case .unix(_, let uid) = connection.transport, uid != ownUID, uid != 0 {
            return HTTPProblem(.forbidden, "This socket serves uid \(ownUID) and root only.")
        }
        let hosts = [head.authority] + (targetHost.map { [$0] } ?? [])
        if let origin = head.headerFields[.origin], !hosts.allSatisfy({ Self.isSameOrigin(origin, host: $0) }) {
            return HTTPProblem(.forbidden, "Requests from other origins are refused.")
        }
        let localHost: String
        switch connection.transport {
        case .unix: return nil
        case .tunnel: return hosts.lazy.compactMap(tunnelHostProblem).first { _ in true }
        case .tcp(let host, _): localHost = host
        }
        for host in hosts {
            if let problem = hostProblem(host, localHost: localHost) { return problem }
        }
        let session = sessions?.mode(of: head)
        if session == .readOnly, changes { return HTTPProblem(.forbidden, "This session is read-only.") }
        if session == nil, let problem = tokenProblem(head, takesQueryToken) { return problem }
        // A page of another site can send a body without a type, but not to a unix socket.
        guard hasBody, head.headerFields[.contentType] == nil, !hasToken(head) else { return nil }
        return HTTPProblem(
            .unsupportedMediaType, "Content-Type must be application/json.",
            detail: "There is none, and no bearer token in an Authorization header.")
    }

    // A page of another site can make a browser send requests to us under its own host name (DNS rebinding), so only
    // known names are served.
    private func hostProblem(_ authority: String?, localHost: String) -> HTTPProblem? {
        guard let authority, let host = Authority(authority)?.host else {
            return HTTPProblem(.badRequest, "A valid Host header is required.")
        }
        let own: Set<String> = ["localhost", "127.0.0.1", "::1", Authority.canonical(localHost.lowercased())]
        let name = Authority.canonical(host)
        guard own.contains(name) || allowedHosts.contains(name) else {
            return HTTPProblem(
                .forbidden, "Host \"\(host)\" is not served here.", detail: "Allow it with --http-allowed-host.")
        }
        return nil
    }

    /// A peer's browser may be led to our address by a public name, too. Names that cannot be registered are those of
    /// the tunnel.
    private func tunnelHostProblem(_ authority: String?) -> HTTPProblem? {
        guard let authority else { return nil }
        guard let host = Authority(authority)?.host else {
            return HTTPProblem(.badRequest, "A valid Host header is required.")
        }
        let name = Authority.canonical(host)
        let isPrivate = name.contains(":") || !name.contains(".") || name.hasSuffix(".coder")
        guard !isPrivate, !allowedHosts.contains(name), !Self.isIPv4(name) else { return nil }
        return HTTPProblem(
            .forbidden, "Host \"\(host)\" is not served here.", detail: "Allow it with --http-allowed-host.")
    }

    private static func isIPv4(_ host: String) -> Bool {
        let parts = host.split(separator: ".", omittingEmptySubsequences: false)
        return parts.count == 4 && parts.allSatisfy { UInt8($0) != nil }
    }

    private func tokenProblem(_ head: HTTPRequest, _ takesQueryToken: Bool) -> HTTPProblem? {
        guard case .required(let token) = tokenRule else { return nil }
        if head.pathOnly == "/healthz" { return nil }
        if head.headerFields[.authorization] != nil {
            return hasToken(head) ? nil : Self.unauthorized("The bearer token is wrong.")
        }
        // Browsers cannot set headers on a WebSocket, nor when they open a page.
        if takesQueryToken || page?.isPage(head) ?? false, let value = Self.queryToken(head.path ?? "") {
            return token.matches(Array(value.utf8)) ? nil : Self.unauthorized("The token in the query is wrong.")
        }
        if let page, page.admits(head) { return nil }
        // It looks for itself what the address is worth, and answers with a page.
        if let sessions, sessions.isPage(head) { return nil }
        return Self.unauthorized("A bearer token is required.")
    }

    /// Whether the request has the right token in its header.
    private func hasToken(_ head: HTTPRequest) -> Bool {
        guard case .required(let token) = tokenRule, let header = head.headerFields[.authorization] else {
            return false
        }
        let scheme = header.prefix { $0 != " " }
        let value = header.dropFirst(scheme.count).drop { $0 == " " }
        return scheme.lowercased() == "bearer" && token.matches(Array(value.utf8))
    }

    private static func unauthorized(_ message: String) -> HTTPProblem {
        HTTPProblem(
            .unauthorized, message, detail: "Send \"Authorization: Bearer TOKEN\" with the token from the token file.",
            headers: [.wwwAuthenticate: "Bearer"])
    }

    private static func queryToken(_ path: String) -> String? {
        PercentEncoding.pairs(ofQuery: URI(path).query ?? "").first { $0.key == "token" }?.value
    }

    /// Whether an `Origin` names the same host and port as `Host`.
    static func isSameOrigin(_ origin: String, host: String?) -> Bool {
        guard let host, let separator = origin.firstRange(of: "://") else { return false }
        let scheme = origin[..<separator.lowerBound].lowercased()
        guard let a = Authority(String(origin[separator.upperBound...])), let b = Authority(host) else { return false }
        let implied = scheme == "https" ? 443 : 80
        return a.host == b.host && (a.port ?? implied) == (b.port ?? implied)
    }
}

/// `host[:port]` of a URL or a `Host` header, IPv6 in brackets.
struct Authority: Equatable {
    /// Lower case, without brackets.
    var host: String
    var port: Int?

    init?(_ text: String) {
        var rest = text[...]
        if rest.first == "[" {
            guard let end = rest.firstIndex(of: "]") else { return nil }
            host = rest[rest.index(after: rest.startIndex)..<end].lowercased()
            rest = rest[rest.index(after: end)...]
        } else {
            let end = rest.firstIndex(of: ":") ?? rest.endIndex
            host = rest[..<end].lowercased()
            rest = rest[end...]
        }
        guard !host.isEmpty, !host.contains("/"), !host.contains("@") else { return nil }
        guard !rest.isEmpty else { return }
        guard rest.first == ":", let port = UInt16(rest.dropFirst()) else { return nil }
        self.port = Int(port)
    }

    /// One way to write a host: without the dot that ends a complete domain name, IP addresses in their shortest form,
    /// an IPv4 one within IPv6 as IPv4.
    /// - Parameter host: lower case, without brackets.
    static func canonical(_ host: String) -> String {
        let name = host.hasSuffix(".") ? String(host.dropLast()) : host
        guard let address = try? SocketAddress(ipAddress: name, port: 0), let text = address.ipAddress else {
            return name
        }
        let mapped = "::ffff:"
        return text.hasPrefix(mapped) && text.contains(".") ? String(text.dropFirst(mapped.count)) : text
    }
}
