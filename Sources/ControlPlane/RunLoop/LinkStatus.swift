import AgentCore
import ControlPlaneAPI
import FoundationEssentials
import SwiftProtobuf

/// How the link is doing, as /healthz and the metrics tell it.
package enum LinkStatus: Sendable, Equatable {
    /// Not run yet, or ended.
    case off
    /// No connection; tried again and again. `problem` is why the last attempt or connection ended.
    case connecting(since: Google_Protobuf_Timestamp, attempts: Int, problem: String?)
    case connected(since: Google_Protobuf_Timestamp, APIVersion)
    /// The control plane does not want us; still tried every 10 s.
    case refused(since: Google_Protobuf_Timestamp, reason: String)

    /// What /healthz says. Holds no secret, since errors hold none.
    var report: HealthRegistry.Report {
        switch self {
        case .off: .init("control plane: not running", degrades: false)
        case .connecting(let since, let attempts, let problem):
            .init(
                "control plane: connecting since \(Self.text(since))"
                    + (attempts > 1 ? ", attempt \(attempts)" : "") + (problem.map { ": \($0)" } ?? ""))
        case .connected(let since, let version):
            .init("control plane: connected since \(Self.text(since)), API \(version)", degrades: false)
        case .refused(let since, let reason):
            .init("control plane: refused since \(Self.text(since)), asked again every 10 s: \(reason)")
        }
    }

    /// The value of the gauge.
    var number: Double {
        switch self {
        case .off: 0
        case .connecting: 1
        case .connected: 2
        case .refused: 3
        }
    }

    private static func text(_ time: Google_Protobuf_Timestamp) -> String {
        Date(timeIntervalSince1970: Double(time.seconds)).formatted(.iso8601)
    }
}

/// Why a connection ended; the label of a metric.
enum Disconnect: Sendable {
    /// We closed it in order.
    case shutdown
    /// The transport ended, on either side.
    case ended(String)
    /// A routine failed.
    case routine(String, any Error)

    var label: String {
        switch self {
        case .shutdown: "shutdown"
        case .ended: "ended"
        case .routine: "routine"
        }
    }

    var problem: String? {
        switch self {
        case .shutdown: nil
        case .ended(let reason): reason
        case .routine(let name, let error): "\(name): \(error)"
        }
    }
}

/// The link's metrics.
struct LinkMetrics: Sendable {
    let connects: CounterFamily
    let dialFailures: CounterFamily
    let disconnects: CounterFamily
    let routineFailures: CounterFamily
    let stuck: GaugeFamily
    let state: GaugeFamily
    let lastConnected: GaugeFamily

    init(_ registry: MetricsRegistry) {
        connects = registry.counter("agent_control_plane_connects_total", help: "Connections made.")
        dialFailures = registry.counter(
            "agent_control_plane_dial_failures_total", help: "Attempts to connect that failed.", labels: ["permanent"])
        disconnects = registry.counter(
            "agent_control_plane_disconnects_total", help: "Connections that ended.", labels: ["reason"])
        routineFailures = registry.counter(
            "agent_control_plane_routine_failures_total", help: "Routines that failed.", labels: ["routine"])
        stuck = registry.gauge(
            "agent_control_plane_routines_stuck", help: "Routines that hang since an earlier connection.", labels: [])
        state = registry.gauge(
            "agent_control_plane_state", help: "0 not running, 1 connecting, 2 connected, 3 refused.", labels: [])
        lastConnected = registry.gauge(
            "agent_control_plane_last_connected_seconds", help: "When it last connected, in seconds since 1970.",
            labels: [])
    }
}
