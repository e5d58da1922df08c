import AgentProto
import AsyncHTTPClient
import FoundationEssentials
import Logging
import NIOCore

/// Asks an app whether it is well.
package protocol AppProber: Sendable {
    /// Whether the app answered below 500 in time.
    func isHealthy(_ url: String) async -> Bool
}

/// Asks by GET. A redirect is an answer like any other and not followed: it shows that the app runs,
/// and where it leads may be somebody else's.
package struct HTTPAppProber: AppProber {
    /// How the client must be made.
    package static var clientConfiguration: HTTPClient.Configuration {
        var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
        configuration.timeout.connect = .seconds(5)
        configuration.connectionPool.idleTimeout = .seconds(5)
        return configuration
    }

    private let client: HTTPClient

    package init(client: HTTPClient) { self.client = client }

    package func isHealthy(_ url: String) async -> Bool {
        guard url.hasPrefix("http://") || url.hasPrefix("https://") else { return false }
        do {
            let request = try HTTPClient.Request(url: url)
            // The body is of no interest; leaving it closes the connection.
            return try await HTTPExchange.perform(request, on: client, deadline: .now() + .seconds(5)) { head, _ in
                head.status.code < 500
            }
        } catch {
            return false
        }
    }
}

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
                        let healthy = await isHealthy(app)
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

    private func isHealthy(_ app: AppHealthState.App) async -> Bool {
        let (prober, url) = (monitor.prober, app.url)
        let answer = try? await monitor.runtime.within(LinkLimits.appAnswer, "app \(app.slug)") {
            await prober.isHealthy(url)
        }
        return answer ?? false
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
