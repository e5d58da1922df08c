import HTTPTypes
import Hummingbird

/// The routes of the daemon. Capabilities add theirs here. Also records what Hummingbird's router does not: the methods
/// and the body limit of a path.
public final class AgentRoutes {
    public typealias Handler = @Sendable (Request, AgentRequestContext) async throws -> Response

    let router = Router(context: AgentRequestContext.self)
    private var entries: [RouteTable.Entry] = []

    public init() {}

    /// Adds a route.
    /// - Parameters:
    ///   - method: the HTTP method.
    ///   - path: literal segments and `{name}` parameters.
    ///   - bodyLimit: bytes of request body that are accepted.
    ///   - streamsBody: the route runs as soon as the header is there and takes the body as it comes. An error of the
    ///     body (cut off, too slow, too large) is thrown to the route, which passes it on. A route that answers before
    ///     the body's end ends the connection.
    ///   - changes: whether it changes something, which read-only sessions may not; nil for all but GET and HEAD.
    public func on(
        _ method: HTTPRequest.Method, _ path: String, bodyLimit: Int = HTTPLimits.defaultBodyBytes,
        streamsBody: Bool = false, changes: Bool? = nil, _ handler: @escaping Handler
    ) {
        add(
            .init(path: path, method: method, bodyLimit: bodyLimit, streamsBody: streamsBody, changes: changes), handler
        )
    }

    private func add(_ entry: RouteTable.Entry, _ handler: @escaping Handler) {
        router.on(RouterPath(entry.path), method: entry.method, use: handler)
        entries.append(entry)
    }

    public func get(_ path: String, _ handler: @escaping Handler) { on(.get, path, handler) }

    public func post(
        _ path: String, bodyLimit: Int = HTTPLimits.defaultBodyBytes, changes: Bool = true, _ handler: @escaping Handler
    ) {
        on(.post, path, bodyLimit: bodyLimit, changes: changes, handler)
    }

    /// Adds a route that answers with a WebSocket. Only such routes accept the token in the query.
    /// - Parameter changes: whether what the client sends changes something, which read-only sessions may not.
    public func webSocket(_ path: String, changes: Bool, _ handler: @escaping Handler) {
        add(.init(path: path, method: .get, isWebSocket: true, changes: changes), handler)
    }

    /// Every route as `METHOD /path`, in the order in which they were added.
    public var list: [String] { entries.map { "\($0.method.rawValue) \($0.path)" } }

    var table: RouteTable { RouteTable(entries: entries) }
}

/// Methods and body limits by path.
struct RouteTable: Sendable {
    struct Entry: Sendable {
        var path: String
        var segments: [Substring.UTF8View]
        var method: HTTPRequest.Method
        var bodyLimit: Int
        var isWebSocket: Bool
        var streamsBody: Bool
        var changes: Bool

        init(
            path: String, method: HTTPRequest.Method, bodyLimit: Int = HTTPLimits.defaultBodyBytes,
            isWebSocket: Bool = false, streamsBody: Bool = false, changes: Bool? = nil
        ) {
            self.path = path
            segments = path.utf8.split(separator: UInt8(ascii: "/"))
            self.method = method
            self.bodyLimit = bodyLimit
            self.isWebSocket = isWebSocket
            self.streamsBody = streamsBody
            self.changes = changes ?? (method != .get && method != .head)
        }

        func matches(_ path: [Substring.UTF8View]) -> Bool {
            guard path.count == segments.count else { return false }
            return zip(segments, path).allSatisfy { $0.first == UInt8(ascii: "{") || $0.elementsEqual($1) }
        }
    }

    let entries: [Entry]
    /// Whether any route has a larger limit than the default, or streams; otherwise no lookup is needed.
    private let hasLargeBodies: Bool

    init(entries: [Entry]) {
        self.entries = entries
        hasLargeBodies = entries.contains { $0.bodyLimit > HTTPLimits.defaultBodyBytes || $0.streamsBody }
    }

    /// The methods that the path answers to, sorted; empty for an unknown path.
    func methods(of uri: String) -> [String] {
        let path = Self.segments(uri)
        return Set(entries.filter { $0.matches(path) }.map(\.method.rawValue)).sorted()
    }

    func bodyLimit(of uri: String) -> Int {
        guard hasLargeBodies else { return HTTPLimits.defaultBodyBytes }
        let path = Self.segments(uri)
        return entries.filter { $0.matches(path) }.map(\.bodyLimit).max() ?? HTTPLimits.defaultBodyBytes
    }

    /// Whether the route takes the body as it comes.
    func streamsBody(_ request: HTTPRequest) -> Bool {
        guard hasLargeBodies else { return false }
        let path = Self.segments(request.path ?? "")
        return entries.contains { $0.streamsBody && $0.method == request.method && $0.matches(path) }
    }

    /// Whether the route changes something; what has none changes nothing.
    func changes(_ request: HTTPRequest) -> Bool {
        let path = Self.segments(request.path ?? "")
        return entries.contains { $0.changes && $0.method == request.method && $0.matches(path) }
    }

    /// Whether the path is that of a WebSocket.
    func isWebSocket(_ uri: String) -> Bool {
        let path = Self.segments(uri)
        return entries.contains { $0.isWebSocket && $0.matches(path) }
    }

    // By bytes: characters take ten times as long to find.
    private static func segments(_ uri: String) -> [Substring.UTF8View] {
        uri.utf8.prefix { $0 != UInt8(ascii: "?") }.split(separator: UInt8(ascii: "/"))
    }
}
