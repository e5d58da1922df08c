import AgentCore

/// The desktop's metrics: starts and losses, viewers, and actions.
struct DesktopMetrics: Sendable {
    enum Start: String { case started, adopted, failed }

    private let registry: MetricsRegistry
    private let starts: CounterFamily
    private let startSeconds: HistogramSeries
    let lost: CounterSeries
    let actions: CounterFamily
    let viewers: GaugeSeries
    /// Bytes by direction: `out` to viewers, `in` from them.
    let bytesOut: CounterSeries
    let bytesIn: CounterSeries

    init(_ registry: MetricsRegistry) {
        self.registry = registry
        starts = registry.counter(
            "agent_desktop_starts_total", help: "Desktops started, adopted or failed to start.", labels: ["result"])
        startSeconds =
            registry.histogram(
                "agent_desktop_start_seconds", help: "How long a desktop took to start, failures included.",
                buckets: [0.1, 0.25, 0.5, 1, 2, 5, 10, 30]
            ).with()
        lost = registry.counter("agent_desktop_lost_total", help: "Desktops that died or answered no more.").with()
        actions = registry.counter(
            "agent_desktop_actions_total", help: "Actions by name and result.", labels: ["action", "result"])
        viewers = registry.gauge("agent_desktop_viewers", help: "Bridged viewers.").with()
        let bytes = registry.counter(
            "agent_desktop_viewer_bytes_total", help: "Bytes of RFB bridged for viewers.", labels: ["direction"])
        bytesOut = bytes.with("out")
        bytesIn = bytes.with("in")
    }

    /// - Parameter pending: actions that run or wait for their turn.
    func observe(running: @escaping @Sendable () -> Bool, pending: @escaping @Sendable () -> Int) {
        registry.gauge("agent_desktop_running", help: "1 while a desktop runs.") { running() ? 1 : 0 }
        registry.gauge("agent_desktop_actions_pending", help: "Actions that run or wait for their turn.") {
            Double(pending())
        }
    }

    func started(_ result: Start, after duration: Duration) {
        starts.with(result.rawValue).increment()
        let (seconds, attoseconds) = duration.components
        startSeconds.observe(Double(seconds) + Double(attoseconds) / 1e18)
    }
}
