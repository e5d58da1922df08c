import AgentCore
import AgentProto
import ControlPlaneAPI
import FoundationEssentials
import Logging

/// Keeps the health of apps over connections.
package final class AppHealthMonitor: Sendable {
    let state = Watched(AppHealthState())
    let prober: any AppProber
    let runtime: LinkRuntime

    package init(prober: any AppProber, runtime: LinkRuntime) { (self.prober, self.runtime) = (prober, runtime) }

    func update(_ apps: [Coder_Agent_V2_WorkspaceApp]) {
        let now = runtime.clock.now()
        let left = state.update { $0.update(apps, now: now) }
        if left > 0 { runtime.logger.warning("too many apps with health checks", metadata: ["left_out": "\(left)"]) }
    }
}

/// Checks the apps of the manifest and reports changes.
package struct ReportAppHealth: Routine {
    package let name = "app health"
    package let atShutdown = RoutineShutdown.stops
    private let monitor: AppHealthMonitor

    package init(_ monitor: AppHealthMonitor) { self.monitor = monitor }

    package func run(_ connection: any AgentConnection) async throws {
        defer { monitor.state.update { $0.endConnection() } }
        _ = try await monitor.state.first { $0.isKnown ? true : nil }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await check() }
            group.addTask { try await report(connection) }
            // Neither ends but by an error.
            defer { group.cancelAll() }
            try await group.next()
        }
    }

    private func check() async throws {
        monitor.state.update { $0.forgetAsked() }
        try await withThrowingDiscardingTaskGroup { group in
            while true {
                try await awaitTurn()
                let now = monitor.runtime.clock.now()
                for app in monitor.state.update({ $0.takeDue(now) }) {
                    group.addTask {
                        let healthy = await monitor.prober.isHealthy(app.url, within: app.patience)
                        try Task.checkCancellation()
                        monitor.state.update { $0.observe(app.id, success: healthy) }
                    }
                }
            }
        }
    }

    /// Sleeps towards the next turn, at most for the shortest interval, so that another app's answer
    /// or a new manifest's apps are not slept past.
    private func awaitTurn() async throws {
        let due = try await monitor.state.first(\.nextDue)
        let wait = due - monitor.runtime.clock.now()
        if wait > .zero { try await monitor.runtime.clock.sleep(min(wait, LinkLimits.appInterval.lowerBound)) }
    }

    private func report(_ connection: any AgentConnection) async throws {
        while true {
            let changes = try await monitor.state.first { state -> [AppHealthState.Change]? in
                let changes = state.changes
                return changes.isEmpty ? nil : changes
            }
            var request = Coder_Agent_V2_BatchUpdateAppHealthRequest()
            request.updates = changes.map { change in
                var update = Coder_Agent_V2_BatchUpdateAppHealthRequest.HealthUpdate()
                update.id = change.id
                update.health = change.health
                return update
            }
            try await monitor.runtime.tolerating(name) {
                _ = try await connection.call(AgentAPI.batchUpdateAppHealths, request)
                monitor.state.update { $0.acknowledge(changes) }
            }
        }
    }
}
