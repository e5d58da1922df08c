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

/// How a request is handled before its route runs, decided once from its method and path.
struct RoutePlan: Sendable, Equatable {
    /// Bytes of body: the most that any method of the path accepts.
    var bodyLimit = HTTPLimits.defaultBodyBytes
    /// The route runs at once and reads the body as it comes.
    var streamsBody = false
    /// Read-only sessions may not use the route. False where there is none.
    var changes = false
    var isWebSocket = false
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

    /// The methods that the path answers to, sorted; empty for an unknown path.
    func methods(of uri: String) -> [String] {
        let path = Self.segments(uri)
        return Set(entries.filter { $0.matches(path) }.map(\.method.rawValue)).sorted()
    }

    /// Finds the route of a request.
    func plan(_ request: HTTPRequest) -> RoutePlan {
        let path = Self.segments(request.path ?? "")
        var plan = RoutePlan()
        var limit: Int?
        for entry in entries where entry.matches(path) {
            limit = max(limit ?? 0, entry.bodyLimit)
            guard entry.method == request.method else { continue }
            // Where two routes match, only the router knows which one runs, so the stricter rule applies.
            plan.streamsBody = plan.streamsBody || entry.streamsBody
            plan.changes = plan.changes || entry.changes
            plan.isWebSocket = plan.isWebSocket || entry.isWebSocket
        }
        plan.bodyLimit = limit ?? plan.bodyLimit
        return plan
    }

    // By bytes: characters take ten times as long to find.
    private static func segments(_ uri: String) -> [Substring.UTF8View] {
        uri.utf8.prefix { $0 != UInt8(ascii: "?") }.split(separator: UInt8(ascii: "/"))
    }
}
