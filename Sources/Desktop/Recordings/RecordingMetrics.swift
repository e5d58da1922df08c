import AgentCore

/// The metrics of recordings.
struct RecordingMetrics: Sendable {
    /// Why a recording produced no video.
    enum Failure: String, Sendable, CaseIterable {
        /// It never began.
        case start
        /// The recorder ended by itself, and left no usable video.
        case died
        /// The recorder did not end in time when it was stopped, or left no usable video.
        case stop
    }

    let started: CounterSeries
    let failed: CounterFamily
    private let registry: MetricsRegistry

    init(_ registry: MetricsRegistry) {
        self.registry = registry
        started = registry.counter(
            "agent_desktop_recordings_started_total", help: "Recordings whose first frame was written."
        ).with()
        failed = registry.counter(
            "agent_desktop_recordings_failed_total", help: "Recordings that gave no video, by reason.",
            labels: ["reason"])
        for failure in Failure.allCases { _ = failed.with(failure.rawValue) }
    }

    func observe(running: @escaping @Sendable () -> Int) {
        registry.gauge("agent_desktop_recordings_running", help: "Recordings that run.") { Double(running()) }
    }
}
