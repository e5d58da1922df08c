import AgentCore
import HTTPTypes

/// A page for browsers on listeners that ask for a token. A browser sends no header when it opens an address,
/// so the page takes the token in its query, as WebSockets do, and sets a cookie that opens the files below
/// it and nothing else.
public struct BrowserPage: Sendable {
    /// The page's path; the files are below it.
    public let path: String
    private let cookie: String
    private let ticket: Secret<String>

    /// - Parameters:
    ///   - path: begins with a slash and ends without one.
    ///   - cookie: the cookie's name.
    public init(path: String, cookie: String) {
        self.path = path
        self.cookie = cookie
        // New for each start. It only gives access to files of a public package.
        ticket = Secret((0..<4).map { _ in String(UInt64.random(in: 0 ... .max), radix: 36) }.joined())
    }

    /// The value of Set-Cookie. Without a path it applies to the page's directory as the browser sees it, also behind a
    /// proxy that adds a path prefix.
    public var setCookie: String { "\(cookie)=\(ticket.reveal()); HttpOnly; SameSite=Strict" }

    /// Whether the request is for the page itself.
    func isPage(_ head: HTTPRequest) -> Bool {
        (head.method == .get || head.method == .head) && (head.pathOnly == path || head.pathOnly == "\(path)/")
    }

    /// Whether the request is for a file below the page and has the cookie.
    func admits(_ head: HTTPRequest) -> Bool {
        guard head.method == .get || head.method == .head, head.pathOnly.hasPrefix("\(path)/") else { return false }
        return head.headerFields[values: .cookie].flatMap { $0.split(separator: ";") }.contains { pair in
            let parts = pair.drop { $0 == " " }.split(separator: "=", maxSplits: 1)
            return parts.count == 2 && parts[0] == cookie && ticket.matches(Array(parts[1].utf8))
        }
    }
}

extension HTTPRequest {
    /// The path without its query.
    var pathOnly: Substring { Substring((path ?? "/").utf8.prefix { $0 != UInt8(ascii: "?") }) }
}
