import AgentCore

/// What the proxy counts (docs/contracts/boundary.md#metrics). Every series is found once, at start.
public struct BoundaryMetrics: Sendable {
    /// Why a batch that was taken in, or could have been, never reached the control plane.
    public enum DropReason: String, CaseIterable, Sendable {
        /// The queue, or the memory before a disk that cannot be written, was full.
        case bufferFull = "buffer_full"
        /// The control plane refused it as invalid.
        case forwardFailed = "forward_failed"
        /// The queue's file was damaged and the batch could not be read any more.
        case queueDamaged = "queue_damaged"
    }

    /// What was wrong with a frame.
    public enum Rejection: String, CaseIterable, Sendable {
        case unknownTag = "unknown_tag"
        case tooLarge = "too_large"
        case undecodable
        case empty
        case truncated
    }

    private let batchesDropped: [DropReason: CounterSeries]
    private let logsDropped: [DropReason: CounterSeries]
    private let channelFull: CounterSeries
    private let batchFull: CounterSeries
    private let rejected: [Rejection: CounterSeries]
    private let forwarded: CounterSeries
    private let gaps: CounterSeries

    public init(registry: MetricsRegistry) {
        let batches = registry.counter(
            "agent_boundary_log_proxy_batches_dropped_total", help: "Batches of boundary logs lost, by reason.",
            labels: ["reason"])
        let logs = registry.counter(
            "agent_boundary_log_proxy_logs_dropped_total",
            help: "Boundary logs lost, by reason; what boundary says that it dropped itself included.",
            labels: ["reason"])
        let frames = registry.counter(
            "agent_boundary_log_proxy_frames_rejected_total", help: "Frames that were not taken in, by reason.",
            labels: ["reason"])
        batchesDropped = Dictionary(uniqueKeysWithValues: DropReason.allCases.map { ($0, batches.with($0.rawValue)) })
        logsDropped = Dictionary(uniqueKeysWithValues: DropReason.allCases.map { ($0, logs.with($0.rawValue)) })
        channelFull = logs.with("boundary_channel_full")
        batchFull = logs.with("boundary_batch_full")
        rejected = Dictionary(uniqueKeysWithValues: Rejection.allCases.map { ($0, frames.with($0.rawValue)) })
        forwarded =
            registry.counter(
                "agent_boundary_log_proxy_batches_forwarded_total",
                help: "Batches that the control plane has acknowledged."
            ).with()
        gaps =
            registry.counter(
                "agent_boundary_log_proxy_sequence_gaps_total",
                help: "Holes in the sequence numbers of a boundary session: logs that never came."
            ).with()
    }

    /// - Parameters:
    ///   - batches: how many; 0 or less adds nothing.
    ///   - logs: log lines in them.
    func dropped(_ reason: DropReason, batches: Int = 1, logs: Int) {
        batchesDropped[reason]?.increment(by: batches)
        logsDropped[reason]?.increment(by: logs)
    }

    /// Counts that boundary reports of itself; 0 and less are ignored.
    func droppedByBoundary(channelFull: Int64, batchFull: Int64) {
        self.channelFull.increment(by: Int(clamping: channelFull))
        self.batchFull.increment(by: Int(clamping: batchFull))
    }

    func rejectedFrame(_ reason: Rejection) { rejected[reason]?.increment() }
    func forwarded(_ batches: Int) { forwarded.increment(by: batches) }
    func foundGaps(_ count: Int) { if count > 0 { gaps.increment(by: count) } }
}
