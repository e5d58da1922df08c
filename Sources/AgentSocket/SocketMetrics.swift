import AgentCore

/// The metrics of the agent socket.
struct SocketMetrics: Sendable {
    /// How a client's connection was handled.
    enum Admission: String {
        case accepted
        case refusedPeer = "refused_peer"
        case refusedLimit = "refused_limit"
        case evicted
    }

    private let connections: CounterFamily
    private let violations: CounterFamily
    private let calls: [String: (ok: CounterSeries, failed: CounterSeries)]

    init(registry: MetricsRegistry, rpcs: [String]) {
        connections = registry.counter(
            "agent_socket_connections_total", help: "Connections to the agent socket by result.",
            labels: ["result"])
        violations = registry.counter(
            "agent_socket_violations_total",
            help: "Connections closed because the client broke the protocol or a bound.")
        let family = registry.counter(
            "agent_socket_calls_total", help: "Calls by method and result.", labels: ["method", "result"])
        var calls: [String: (ok: CounterSeries, failed: CounterSeries)] = [:]
        for rpc in rpcs {
            let method = String(rpc.split(separator: "/").last ?? "")
            calls[rpc] = (family.with(method, "ok"), family.with(method, "error"))
        }
        self.calls = calls
    }

    func connection(_ admission: Admission) { connections.with(admission.rawValue).increment() }
    func violation() { violations.increment() }

    func call(_ rpc: String, succeeded: Bool) {
        guard let series = calls[rpc] else { return }
        (succeeded ? series.ok : series.failed).increment()
    }
}
