import AgentCore

/// The metrics of the process API.
struct ProcMetrics: Sendable {
    let started: CounterSeries
    let exited: CounterFamily
    let capturedBytes: CounterSeries
    private let registry: MetricsRegistry

    init(_ registry: MetricsRegistry, spools: SpoolStore?) {
        self.registry = registry
        started = registry.counter("agent_processes_started_total", help: "Processes started by the API.").with()
        exited = registry.counter(
            "agent_processes_exited_total", help: "Processes that ended, by reason.", labels: ["reason"])
        for reason in Reason.allCases { _ = exited.with(reason.rawValue) }
        capturedBytes = registry.counter(
            "agent_process_captured_bytes_total", help: "Bytes of output read from processes."
        ).with()
        registry.gauge("agent_process_spool_bytes", help: "Bytes of complete output on disk.") {
            spools.map { Double($0.bytes) } ?? 0
        }
    }

    func observe(
        running: @escaping @Sendable () -> Int, lingering: @escaping @Sendable () -> Int,
        followers: @escaping @Sendable () -> Int
    ) {
        registry.gauge("agent_process_followers", help: "Clients that follow the output of a process.") {
            Double(followers())
        }
        registry.gauge("agent_processes_running", help: "Processes that run.") { Double(running()) }
        registry.gauge("agent_processes_lingering", help: "Ended processes whose output is still held.") {
            Double(lingering())
        }
    }
}
