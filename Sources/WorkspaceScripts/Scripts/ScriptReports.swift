import AgentCore
import AgentProto
import ControlPlaneAPI
import DRPC
import DequeModule
import FoundationEssentials
import Logging
import Synchronization

/// Results of scripts until the control plane has them, over as many connections as it takes.
package final class ScriptReports: Sendable {
    private struct State {
        var waiting: Deque<Coder_Agent_V2_Timing> = []
        var closed = false
        /// How often the first was refused.
        var refusals = 0
    }

    private let state = Mutex(State())
    private let logger: Logger
    private let dropped: CounterSeries
    fileprivate let work = Wakeup()

    package init(metrics: MetricsRegistry, logger: Logger) {
        self.logger = logger
        dropped = metrics.counter(
            "agent_script_reports_dropped_total", help: "Script results that the control plane never got."
        ).with()
    }

    package func add(_ timing: Coder_Agent_V2_Timing) {
        let isFull = state.withLock { state in
            state.waiting.append(timing)
            guard state.waiting.count > ScriptLimits.scriptReports else { return false }
            // Not the first: it may be on its way.
            state.waiting.remove(at: 1)
            return true
        }
        if isFull {
            dropped.increment()
            logger.warning("too many script results wait for the control plane; the oldest is dropped")
        }
        work.signal()
    }

    /// - Returns: whether the result is to be dropped, since it was refused so often.
    fileprivate func refused(_ timing: Coder_Agent_V2_Timing, _ error: DRPCError) -> Bool {
        let isLast = state.withLock { state in
            state.refusals += 1
            guard state.refusals >= ScriptLimits.scriptReportRefusals else { return false }
            state.refusals = 0
            return true
        }
        guard isLast else { return false }
        dropped.increment()
        logger.warning(
            "the control plane refuses the result of a script",
            metadata: ["script_id": "\(UUID(wire: timing.scriptID)?.lowercased ?? "")", "error": "\(error)"])
        return true
    }

    /// Shutdown: no more come. ``ScriptReporter`` returns once all are delivered.
    package func close() {
        state.withLock { $0.closed = true }
        work.signal()
    }

    package var isEmpty: Bool { state.withLock { $0.waiting.isEmpty } }
    fileprivate var isClosed: Bool { state.withLock { $0.closed } }
    fileprivate var first: Coder_Agent_V2_Timing? { state.withLock { $0.waiting.first } }
    fileprivate func removeFirst() {
        state.withLock { state in
            _ = state.waiting.popFirst()
            state.refusals = 0
        }
    }
}

/// The routine that reports them, in order.
package struct ScriptReporter: Routine {
    package let name = "report scripts"
    package let atShutdown = RoutineShutdown.remains
    private let reports: ScriptReports

    package init(reports: ScriptReports) { self.reports = reports }

    /// Returns only after ``ScriptReports/close()``, when all is delivered.
    package func run(_ connection: any AgentConnection) async throws {
        while true {
            while let timing = reports.first {
                var request = Coder_Agent_V2_WorkspaceAgentScriptCompletedRequest()
                request.timing = timing
                do {
                    _ = try await connection.call(AgentAPI.scriptCompleted, request)
                } catch let error as DRPCError {
                    // Refused by a control plane that is there: asking for ever would tear down every
                    // connection and keep all later results from it.
                    guard case .remote = error.code, !error.isUnknownRPC, reports.refused(timing, error) else {
                        throw error
                    }
                }
                reports.removeFirst()
            }
            if reports.isClosed { return }
            try await reports.work.wait()
        }
    }
}
