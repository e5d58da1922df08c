import AgentCore
import FoundationEssentials
import Glibc
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import Synchronization

/// Answers requests: routing, errors, chat identity, metrics and the access log, for all listeners
/// together. It knows nothing of channels.
public final class HTTPService: Sendable {
    static let instanceHeader = HTTPField.Name("Workspace-Agent-Instance")
    private static let chatHeader = HTTPField.Name(ChatIdentity.chatHeader)
    private static let ancestorsHeader = HTTPField.Name(ChatIdentity.ancestorsHeader)

    /// New for each start of the daemon.
    public let instance: UUID
    public let limits: HTTPLimits
    let outputQueues: OutputQueues

    /// As the header says it.
    private let instanceText: String
    private let responder: RouterResponder<AgentRequestContext>
    private let table: RouteTable
    private let logger: Logger
    private let requests: CounterFamily
    private let durations: HistogramFamily
    private let shuttingDown = Atomic<Bool>(false)
    private let date = DateHeader()
    private let onExchange: @Sendable () -> Void

    /// - Parameters:
    ///   - routes: all routes; adding to them afterwards has no effect.
    ///   - instance: what `Workspace-Agent-Instance` says.
    ///   - onExchange: called after each exchange, on its event loop.
    public init(
        routes: AgentRoutes, metrics: MetricsRegistry, logger: Logger, instance: UUID = UUID(),
        limits: HTTPLimits = HTTPLimits(), onExchange: @escaping @Sendable () -> Void = {}
    ) {
        self.onExchange = onExchange
        self.instance = instance
        instanceText = instance.lowercased
        self.limits = limits
        self.logger = logger
        responder = routes.router.buildResponder()
        table = routes.table
        requests = metrics.counter(
            "agent_http_requests_total", help: "HTTP requests answered.", labels: ["route", "method", "status"])
        durations = metrics.histogram(
            "agent_http_request_duration_seconds", help: "From the end of a request to the end of its answer.",
            labels: ["route"])
        let closes = metrics.counter(
            "agent_http_output_queue_closes_total",
            help: "Connections closed because their clients did not read while all queues together were too long."
        ).with()
        outputQueues = OutputQueues(limit: HTTPLimits.queuedOutputBytes) { closes.increment() }
        metrics.gauge(
            "agent_http_output_queued_bytes", help: "Bytes in memory for clients that read slowly."
        ) { [weak outputQueues] in outputQueues.map { Double($0.bytes) } }
    }

    /// Whether shutdown has begun; then every answer closes its connection.
    public var isShuttingDown: Bool { shuttingDown.load(ordering: .relaxed) }

    /// From now on each answer is the last on its connection.
    public func beginShutdown() { shuttingDown.store(true, ordering: .relaxed) }

    func plan(_ request: HTTPRequest) -> RoutePlan { table.plan(request) }

    /// A request on its way to its answer.
    struct Exchange: Sendable {
        var method: String
        var path: String
        var route: String
        var status: Int
        var chat: ChatIdentity?
        var peer: String
        var started: ContinuousClock.Instant
    }

    /// Runs the route and turns whatever it throws into an answer.
    func respond(
        to head: HTTPRequest, body: RequestBody, from connection: ConnectionInfo, caller: CallerPresence,
        upgrade: UpgradeSlot
    ) async -> (Response, Exchange) {
        var exchange = begin(head, connection)
        var requestLogger = logger
        for (key, value) in exchange.chat?.logMetadata ?? [:] { requestLogger[metadataKey: key] = value }
        let source = AgentRequestSource(
            logger: requestLogger, connection: connection, chat: exchange.chat, caller: caller, upgrade: upgrade)
        let context = AgentRequestContext(source: source)
        let request = Request(head: head, body: body)
        var response: Response
        do {
            response = try await responder.respond(to: request, context: context)
        } catch {
            response = problem(for: error, request: head, logger: requestLogger).response
        }
        // The router gives up on an unknown path or method by throwing an HTTPError, which it turns
        // into a response itself.
        if context.endpointPath == nil || context.endpointPath == "NotFound" {
            response = unrouted(head).response
        } else {
            exchange.route = context.endpointPath ?? exchange.route
        }
        finish(&response, &exchange)
        return (response, exchange)
    }

    /// The answer to a request that was refused before any route saw it.
    func refuse(_ problem: HTTPProblem, head: HTTPRequest?, from connection: ConnectionInfo) -> (Response, Exchange) {
        var exchange = begin(head, connection)
        var response = problem.response
        finish(&response, &exchange)
        return (response, exchange)
    }

    /// Counts and logs a finished exchange.
    func record(_ exchange: Exchange, bytes: Int) {
        let duration = exchange.started.duration(to: .now)
        let seconds = Double(duration.components.seconds) + Double(duration.components.attoseconds) / 1e18
        requests.with(exchange.route, exchange.method, String(exchange.status)).increment()
        durations.with(exchange.route).observe(seconds)
        onExchange()
        guard logger.logLevel <= .debug else { return }
        var metadata: Logger.Metadata = [
            "method": "\(exchange.method)", "path": "\(exchange.path)", "status": "\(exchange.status)",
            "bytes": "\(bytes)", "duration_ms": "\(Double(Int(seconds * 1e6)) / 1000)", "peer": "\(exchange.peer)",
        ]
        if let chat = exchange.chat { metadata.merge(chat.logMetadata) { _, new in new } }
        logger.debug("http request", metadata: metadata)
    }

    private func begin(_ head: HTTPRequest?, _ connection: ConnectionInfo) -> Exchange {
        // Without the query: it may carry a token.
        let path = head?.pathOnly ?? ""
        let method = head?.method.rawValue ?? "-"
        let known = Self.knownMethods.contains(method)
        return Exchange(
            method: known ? method : "other", path: String(path), route: "none", status: 0, chat: head.flatMap(chat),
            peer: connection.peer, started: .now)
    }

    private static let knownMethods: Set<String> = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "-",
    ]

    private func finish(_ response: inout Response, _ exchange: inout Exchange) {
        exchange.status = response.status.code
        if let name = Self.instanceHeader { response.headers[name] = instanceText }
        response.headers[.date] = date.now()
        Self.makeInert(&response)
        if response.status != .switchingProtocols, let length = response.body.contentLength {
            response.headers[.contentLength] = String(length)
        }
    }

    /// What is read from a file or a process may be a web page: opened as one, it must run nothing on the origin of the
    /// page at `/ui`, whose session it would have.
    private static func makeInert(_ response: inout Response) {
        guard let type = response.headers[.contentType] else { return }
        response.headers[.xContentTypeOptions] = "nosniff"
        guard response.headers[.contentSecurityPolicy] == nil, !type.hasPrefix("application/json") else { return }
        response.headers[.contentSecurityPolicy] = "default-src 'none'; sandbox; frame-ancestors 'none'"
    }

    private func chat(_ head: HTTPRequest) -> ChatIdentity? {
        guard let name = Self.chatHeader, let ancestors = Self.ancestorsHeader else { return nil }
        guard let chat = head.headerFields[name] else { return nil }
        return ChatIdentity(chatHeader: chat, ancestorsHeader: head.headerFields[ancestors])
    }

    private func unrouted(_ head: HTTPRequest) -> HTTPProblem {
        let methods = table.methods(of: head.path ?? "/")
        guard !methods.isEmpty else { return HTTPProblem(.notFound, "Route not found.") }
        return HTTPProblem(
            .methodNotAllowed, "Method \(head.method.rawValue) is not allowed here.",
            headers: [.allow: methods.joined(separator: ", ")])
    }

    private func problem(for error: any Error, request: HTTPRequest, logger: Logger) -> HTTPProblem {
        if let problem = error as? HTTPProblem {
            if let cause = problem.cause {
                logger.notice(
                    "request failed",
                    metadata: [
                        "status": "\(problem.status.code)", "message": "\(problem.message)", "error": "\(cause)",
                    ])
            }
            return problem
        }
        if let error = error as? CoreError, error.code == .noThread {
            logger.warning("request refused", metadata: ["error": "\(error)"])
            return HTTPProblem(.serviceUnavailable, "The agent has no thread for this request.", detail: error.message)
        }
        logger.error("request failed", metadata: ["method": "\(request.method)", "error": "\(error)"])
        return HTTPProblem(.internalServerError, "Internal server error.")
    }
}

/// The `Date` header, made once a second.
private final class DateHeader: Sendable {
    private let cached = Mutex<(second: Int, text: String)>((0, ""))

    func now() -> String {
        let second = Glibc.time(nil)
        return cached.withLock {
            if $0.second != second { $0 = (second, Self.format(second)) }
            return $0.text
        }
    }

    private static let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// RFC 9110 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`.
    private static func format(_ second: Int) -> String {
        var second = second
        var parts = tm()
        gmtime_r(&second, &parts)
        func two(_ value: CInt) -> String { value < 10 ? "0\(value)" : "\(value)" }
        let day = days[Int(parts.tm_wday) % 7]
        let month = months[Int(parts.tm_mon) % 12]
        let time = "\(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec))"
        return "\(day), \(two(parts.tm_mday)) \(month) \(1900 + parts.tm_year) \(time) GMT"
    }
}
