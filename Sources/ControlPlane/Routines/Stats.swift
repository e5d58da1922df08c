import AgentCore
import AgentProto
import ControlPlaneAPI
import Logging
import SwiftProtobuf

/// What the agent knows of those who use it.
package protocol StatsSource: Sendable {
    /// Connections that are open now, by kind: `http`, `websocket` and so on. Must not block.
    func openConnections() -> [String: Int64]

    /// What went through the tailnet node since the last call; nil where there is none.
    func takeNetworkUsage() async -> NetworkUsage?
}

extension StatsSource {
    package func takeNetworkUsage() async -> NetworkUsage? { nil }
}

/// Use of the tailnet node in an interval (docs/contracts/tailnet.md#statistics).
package struct NetworkUsage: Sendable {
    /// Distinct flows by protocol.
    package var flows: [String: Int64]
    package var receivedPackets: Int64
    package var receivedBytes: Int64
    package var sentPackets: Int64
    package var sentBytes: Int64
    /// Of the peers that are active; nil where none answered.
    package var medianLatency: Duration?

    package init(
        flows: [String: Int64], receivedPackets: Int64, receivedBytes: Int64, sentPackets: Int64, sentBytes: Int64,
        medianLatency: Duration?
    ) {
        (self.flows, self.receivedPackets, self.receivedBytes) = (flows, receivedPackets, receivedBytes)
        (self.sentPackets, self.sentBytes, self.medianLatency) = (sentPackets, sentBytes, medianLatency)
    }
}

/// Reports usage: first nothing, to learn the interval, then what there is at each interval.
package struct ReportStats: Routine {
    package let name = "stats"
    package let atShutdown = RoutineShutdown.stops
    private let source: any StatsSource
    private let metrics: MetricsRegistry
    private let runtime: LinkRuntime

    package init(source: any StatsSource, metrics: MetricsRegistry, runtime: LinkRuntime) {
        (self.source, self.metrics, self.runtime) = (source, metrics, runtime)
    }

    package func run(_ connection: any AgentConnection) async throws {
        var interval = LinkLimits.defaultStatsInterval
        var request = Coder_Agent_V2_UpdateStatsRequest()
        while true {
            try await runtime.tolerating(name) {
                let answer = try await connection.call(AgentAPI.updateStats, request)
                interval = Self.interval(answer.reportInterval)
            }
            try await runtime.clock.sleep(interval)
            request.stats = stats(await source.takeNetworkUsage())
        }
    }

    /// An interval of nothing or less would have us report without end.
    static func interval(_ asked: Google_Protobuf_Duration) -> Duration {
        asked.duration > .zero
            ? LinkLimits.clamp(asked, to: LinkLimits.statsInterval) : LinkLimits.defaultStatsInterval
    }

    private func stats(_ usage: NetworkUsage?) -> Coder_Agent_V2_Stats {
        var stats = Coder_Agent_V2_Stats()
        // Flows of the tailnet are what counts as use of the workspace, wherever there is a node.
        stats.connectionsByProto = usage?.flows ?? source.openConnections()
        stats.connectionCount = stats.connectionsByProto.values.reduce(0) {
            $0.addingReportingOverflow($1).partialValue
        }
        // -1: it is not known.
        stats.connectionMedianLatencyMs = usage?.medianLatency.map { $0 / .milliseconds(1) } ?? -1
        stats.rxPackets = usage?.receivedPackets ?? 0
        stats.rxBytes = usage?.receivedBytes ?? 0
        stats.txPackets = usage?.sentPackets ?? 0
        stats.txBytes = usage?.sentBytes ?? 0
        stats.metrics = metrics.samples(limit: LinkLimits.statsMetrics).map { sample in
            var metric = Coder_Agent_V2_Stats.Metric()
            metric.name = sample.name
            metric.type = sample.kind == .counter ? .counter : .gauge
            metric.value = sample.value
            metric.labels = sample.labels.map { label in
                var one = Coder_Agent_V2_Stats.Metric.Label()
                (one.name, one.value) = (label.name, label.value)
                return one
            }
            return metric
        }
        return stats
    }
}
