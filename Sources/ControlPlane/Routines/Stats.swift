import AgentCore
import AgentProto
import ControlPlaneAPI
import Logging
import SwiftProtobuf

/// What the agent knows of those who use it.
package protocol StatsSource: Sendable {
    /// Connections that are open now, by kind: `http`, `websocket` and so on. Must not block.
    func openConnections() -> [String: Int64]
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
            request.stats = stats()
        }
    }

    /// An interval of nothing or less would have us report without end.
    static func interval(_ asked: Google_Protobuf_Duration) -> Duration {
        asked.duration > .zero
            ? LinkLimits.clamp(asked, to: LinkLimits.statsInterval) : LinkLimits.defaultStatsInterval
    }

    private func stats() -> Coder_Agent_V2_Stats {
        var stats = Coder_Agent_V2_Stats()
        stats.connectionsByProto = source.openConnections()
        stats.connectionCount = stats.connectionsByProto.values.reduce(0) {
            $0.addingReportingOverflow($1).partialValue
        }
        // Unknown: it is not measured.
        stats.connectionMedianLatencyMs = -1
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
