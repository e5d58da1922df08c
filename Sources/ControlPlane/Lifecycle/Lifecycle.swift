import AgentCore
import AgentProto
import ControlPlaneAPI
import Logging

/// The lifecycle of one agent session. It begins as CREATED, which the control plane knows by itself.
package final class Lifecycle: Sendable {
    let history = Watched(LifecycleHistory())
    private let runtime: LinkRuntime

    package init(runtime: LinkRuntime) { self.runtime = runtime }

    package var current: Coder_Agent_V2_Lifecycle.State { history.read(\.current) }

    /// Enters the state now. One that may not follow the current one is dropped, with a line in the
    /// log: start scripts that end during shutdown are no news.
    /// - Returns: whether it was entered.
    @discardableResult package func set(_ state: Coder_Agent_V2_Lifecycle.State) -> Bool {
        let now = runtime.wall().proto
        let (done, before) = history.update { history in
            let before = history.current
            return (history.record(state, at: now), before)
        }
        runtime.logger.log(
            level: done ? .info : .debug, done ? "lifecycle" : "lifecycle state dropped: it may not follow",
            metadata: ["state": "\(state)", "before": "\(before)"])
        return done
    }
}

/// Reports every state after CREATED in order, resumed after a reconnect at the first that is not acknowledged.
///
/// A state whose acknowledgement was lost with the connection is sent again: each is acknowledged
/// exactly once, and may arrive twice.
package struct ReportLifecycle: DrainableRoutine {
    package let name = "report lifecycle"
    package let atShutdown = RoutineShutdown.remains
    let lifecycle: Lifecycle

    package init(_ lifecycle: Lifecycle) { self.lifecycle = lifecycle }

    package func run(_ connection: any AgentConnection) async throws {
        while true {
            let entry = try await lifecycle.history.first(\.next)
            var request = Coder_Agent_V2_UpdateLifecycleRequest()
            request.lifecycle.state = entry.state
            request.lifecycle.changedAt = entry.changedAt
            _ = try await connection.call(AgentAPI.updateLifecycle, request)
            lifecycle.history.update { $0.acknowledge(entry) }
        }
    }

    package var isDrained: Bool { lifecycle.history.read { $0.next == nil } }

    package func drained() async { _ = try? await lifecycle.history.first { $0.next == nil ? true : nil } }
}
