import AgentCore
import AgentProto
import ControlPlaneAPI
import DRPC
import DequeModule
import FoundationEssentials
import Glibc
import Logging

/// The queue of connection reports: clients that came and went.
package final class ConnectionReports: Sendable {
    struct State: Sendable {
        var waiting: Deque<Coder_Agent_V2_Connection> = []
        var sending = false
        /// Whether the overflow of the moment was logged.
        var overflows = false
    }

    let state = Watched(State())
    let dropped: CounterFamily
    let runtime: LinkRuntime

    package init(runtime: LinkRuntime, metrics: MetricsRegistry) {
        self.runtime = runtime
        dropped = metrics.counter(
            "agent_connection_reports_dropped_total", help: "Connection reports that were not delivered.")
        metrics.gauge("agent_connection_reports_waiting", help: "Connection reports that wait.") { [state] in
            Double(state.read { $0.waiting.count })
        }
    }

    /// Queues a report of now. Beyond 2048 it is dropped.
    /// - Parameters:
    ///   - id: the same for a client's coming and going.
    ///   - peer: the client's address, with or without port, as ``PeerIP`` takes it.
    ///   - status: the client's exit status; 0 for a connect.
    package func report(
        id: UUID, _ action: Coder_Agent_V2_Connection.Action, _ type: Coder_Agent_V2_Connection.TypeEnum, peer: String,
        status: Int32 = 0, reason: String? = nil
    ) {
        var connection = Coder_Agent_V2_Connection()
        connection.id = withUnsafeBytes(of: id.uuid) { Data($0) }
        connection.action = action
        connection.type = type
        connection.timestamp = runtime.wall().proto
        connection.ip = PeerIP.text(peer)
        connection.statusCode = status
        if let reason { connection.reason = String(reason.prefix(LinkLimits.connectionReasonCharacters)) }
        let (accepted, news) = state.update { state in
            guard state.waiting.count < LinkLimits.connectionReports else {
                defer { state.overflows = true }
                return (false, !state.overflows)
            }
            state.overflows = false
            state.waiting.append(connection)
            return (true, false)
        }
        if accepted { return }
        dropped.increment()
        if news {
            runtime.logger.warning(
                "too many connection reports wait; dropping", metadata: ["limit": "\(LinkLimits.connectionReports)"])
        }
    }
}

/// Sends the reports one after the other. One that fails is logged and dropped; the connection stays.
package struct ReportConnections: DrainableRoutine {
    package let name = "report connections"
    package let atShutdown = RoutineShutdown.remains
    private let reports: ConnectionReports

    package init(_ reports: ConnectionReports) { self.reports = reports }

    package func run(_ connection: any AgentConnection) async throws {
        while true {
            _ = try await reports.state.first { $0.waiting.isEmpty ? nil : true }
            let next = reports.state.update { state in
                let next = state.waiting.popFirst()
                state.sending = next != nil
                return next
            }
            guard let next else { continue }
            defer { reports.state.update { $0.sending = false } }
            var request = Coder_Agent_V2_ReportConnectionRequest()
            request.connection = next
            do {
                _ = try await connection.call(AgentAPI.reportConnection, request)
            } catch {
                reports.dropped.increment()
                reports.runtime.logger.warning(
                    "a connection report was not delivered",
                    metadata: ["type": "\(next.type)", "action": "\(next.action)", "error": "\(error)"])
                try Task.checkCancellation()
                guard let error = error as? DRPCError else { continue }
                // The others wait for the next connection.
                if error.isUnknownRPC || error.isDisconnect { throw error }
            }
        }
    }

    package var isDrained: Bool { reports.state.read { $0.waiting.isEmpty && !$0.sending } }

    package func drained() async {
        _ = try? await reports.state.first { $0.waiting.isEmpty && !$0.sending ? true : nil }
    }
}

/// The form of an address that the control plane takes.
package enum PeerIP {
    /// `10.0.0.1:22` → `10.0.0.1`, `[::1]:22` → `::1`, `fe80::1%eth0` → `fe80::1`, `localhost` →
    /// `127.0.0.1`. What is no IP address (a unix socket's peer) is blank.
    package static func text(_ peer: String) -> String {
        var host = peer[...]
        if host.hasPrefix("["), let end = host.firstIndex(of: "]") {
            host = host[host.index(after: host.startIndex)..<end]
        } else if let colon = host.firstIndex(of: ":"), colon == host.lastIndex(of: ":") {
            host = host[..<colon]
        }
        if let zone = host.firstIndex(of: "%") { host = host[..<zone] }
        if host == "localhost" { return "127.0.0.1" }
        let text = String(host)
        var address = in6_addr()
        let isAddress = inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1
        return isAddress ? text : ""
    }
}
