import AgentCore
import HTTPTypes
import Hummingbird
import NIOCore

/// The routes that belong to no capability: health, ports and debugging.
public struct CoreRoutes: Sendable {
    /// The most bytes of the daemon's log that `/debug/logs` returns.
    public static let logTailBytes = 10 << 20

    public var health: HealthRegistry
    public var metrics: MetricsRegistry
    public var ports: ListeningPorts
    /// The redacted manifest as JSON; nil before there is one.
    public var manifest: @Sendable () -> ByteBuffer?
    /// The last bytes of the daemon's own log, at most the given number.
    public var logTail: @Sendable (Int) async throws -> ByteBuffer

    public init(
        health: HealthRegistry, metrics: MetricsRegistry, ports: ListeningPorts,
        manifest: @escaping @Sendable () -> ByteBuffer? = { nil },
        logTail: @escaping @Sendable (Int) async throws -> ByteBuffer
    ) {
        self.health = health
        self.metrics = metrics
        self.ports = ports
        self.manifest = manifest
        self.logTail = logTail
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
        routes.get("/debug/logs") { [logTail] request, _ in
            _ = try Query(request, allowed: [])
            return .text(try await logTail(Self.logTailBytes))
        }
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
