import AgentCore
import HTTPTypes
import Hummingbird
import NIOCore

/// The routes that belong to no capability: health, ports and debugging.
public struct CoreRoutes: Sendable {
    public var health: HealthRegistry
    public var metrics: MetricsRegistry
    public var ports: ListeningPorts
    /// The redacted manifest as JSON; nil before there is one.
    public var manifest: @Sendable () -> ByteBuffer?
    /// The daemon's own log files; nil without them.
    public var log: RotatingLogSink?
    /// Where log files are read.
    public var pool: BlockingPool
    /// Has what was logged before a request reach the files. Blocks.
    public var flushLog: @Sendable () -> Void

    public init(
        health: HealthRegistry, metrics: MetricsRegistry, ports: ListeningPorts,
        manifest: @escaping @Sendable () -> ByteBuffer? = { nil }, log: RotatingLogSink? = nil, pool: BlockingPool,
        flushLog: @escaping @Sendable () -> Void = {}
    ) {
        self.health = health
        self.metrics = metrics
        self.ports = ports
        self.manifest = manifest
        self.log = log
        self.pool = pool
        self.flushLog = flushLog
    }

    private struct Hello: Encodable { var message = "Hello from the agent!" }
    private struct Health: Encodable {
        var status: String
        var reasons: [String]
    }
    private struct Ports: Encodable { var ports: [ListeningPorts.Port] }

    public func add(to routes: AgentRoutes) {
        let hello = Response.json(Hello())
        routes.get("/") { request, _ in
            _ = try Query(request, allowed: [])
            return hello
        }
        routes.get("/healthz") { [health] request, _ in
            _ = try Query(request, allowed: [])
            let reports = health.reports()
            return .json(
                Health(status: reports.contains(where: \.degrades) ? "degraded" : "ok", reasons: reports.map(\.text)))
        }
        routes.get("/api/v0/listening-ports") { [ports] request, _ in
            _ = try Query(request, allowed: [])
            return .json(Ports(ports: try await ports.current()))
        }
        routes.get("/debug/prometheus", prometheus)
        routes.get("/debug/manifest") { [manifest] request, _ in
            _ = try Query(request, allowed: [])
            guard let json = manifest() else { throw HTTPProblem(.internalServerError, "no manifest in-memory") }
            return .json(bytes: json)
        }
        routes.get("/debug/logs", logs)
    }

    private func logs(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let query = try Query(request, allowed: ["after"])
        let after = try query["after"].map { text in
            guard let moment = timestamp(fromRFC3339: text) else {
                throw HTTPProblem.invalid(
                    "after", "must be a time as in RFC 3339, 2026-01-31T12:00:00Z, not \"\(text)\"")
            }
            return moment
        }
        guard let log else { return .text(ByteBuffer()) }
        let excerpt = try await pool.run { [flushLog] in
            flushLog()
            guard let after else { return log.tail(HTTPLimits.logTailBytes) }
            return log.files(after: after, current: HTTPLimits.logTailBytes, total: HTTPLimits.logFilesBytes)
        }
        let body = ResponseBody { [pool] writer in
            while let piece = try await pool.run({ excerpt.next() }) { try await writer.write(piece) }
            try await writer.finish(nil)
        }
        return Response(status: .ok, headers: [.contentType: "text/plain; charset=utf-8"], body: body)
    }

    /// The routes of a listener for Prometheus alone.
    public func addMetrics(to routes: AgentRoutes) {
        routes.get("/metrics", prometheus)
        routes.get("/debug/prometheus", prometheus)
    }

    private func prometheus(_ request: Request, _ context: AgentRequestContext) throws -> Response {
        _ = try Query(request, allowed: [])
        return .text(
            ByteBuffer(string: metrics.render()), contentType: "text/plain; version=0.0.4; charset=utf-8")
    }
}

extension Response {
    /// A plain text answer.
    public static func text(_ bytes: ByteBuffer, contentType: String = "text/plain; charset=utf-8") -> Response {
        Response(status: .ok, headers: [.contentType: contentType], body: ResponseBody(byteBuffer: bytes))
    }
}
