import AgentCore
import AgentProto
import ControlPlaneAPI
import FoundationEssentials
import Logging
import Synchronization

/// The lines that wait for the control plane: scripts add to it at any time, ``LogSender`` empties it
/// over whatever connection there is.
package final class LogStore: Sendable {
    private struct State {
        var queue = LogQueue()
        var closed = false
        /// ``LogStore/flush()`` was called.
        var flush = false
    }

    private let state = Mutex(State())
    private let logger: Logger
    private let lines: CounterFamily
    fileprivate let work = Wakeup()
    fileprivate let flushSignal = Wakeup()

    package init(metrics: MetricsRegistry, logger: Logger) {
        self.logger = logger
        lines = metrics.counter(
            "agent_script_log_lines_total", help: "Lines of script output by result.", labels: ["result"])
        for result in ["sent", "dropped", "refused"] { _ = lines.with(result) }
        metrics.gauge("agent_script_log_queue_bytes", help: "Text of log lines that wait to be sent.") { [weak self] in
            self.map { Double($0.state.withLock { $0.queue.textBytes }) }
        }
    }

    /// Queues a line; never blocks. Any thread.
    package func append(_ line: ScriptLogLine, source: Data) {
        let (admission, isDue) = state.withLock { state in
            (state.queue.append(line, source: source), state.queue.isDue)
        }
        switch admission {
        case .queued:
            work.signal()
            if isDue { flushSignal.signal() }
        case .dropped(let isFirst):
            lines.with("dropped").increment()
            if isFirst {
                logger.warning(
                    "script output is written faster than the control plane takes it; lines are left out of its log, the log file has them all",
                    metadata: ["log_source_id": "\(source.text)"])
            }
        case .refused: lines.with("refused").increment()
        }
    }

    /// Sends what is there without waiting for the second to be over.
    package func flush() {
        state.withLock { $0.flush = true }
        flushSignal.signal()
    }

    /// Shutdown: no more lines come. ``LogSender`` returns once all is delivered.
    package func close() {
        state.withLock { $0.closed = true }
        work.signal()
        flushSignal.signal()
    }

    package var isEmpty: Bool { state.withLock { $0.queue.isEmpty } }

    fileprivate var lineCount: Int { state.withLock { $0.queue.lines } }
    fileprivate var isClosed: Bool { state.withLock { $0.closed } }
    fileprivate var isInFlight: Bool { state.withLock { $0.queue.isInFlight } }
    fileprivate var isUrgent: Bool {
        state.withLock { state in
            defer { state.flush = false }
            return state.flush || state.closed || state.queue.isDue
        }
    }
    fileprivate func nextBatch() -> LogQueue.Batch? { state.withLock { $0.queue.nextBatch() } }

    fileprivate func acknowledge(limitExceeded: Bool) {
        let (sent, refused) = state.withLock { $0.queue.acknowledge(limitExceeded: limitExceeded) }
        lines.with("sent").increment(by: sent)
        guard limitExceeded else { return }
        lines.with("refused").increment(by: refused)
        logger.warning(
            "the control plane's limit for this agent's logs is reached; no more script output is sent, the log files have it all"
        )
    }
}

/// The routine that sends logs.
package struct LogSender: Routine {
    package let name = "send logs"
    package let atShutdown = RoutineShutdown.remains
    private let store: LogStore
    private let clock: AgentClock

    package init(store: LogStore, clock: AgentClock) {
        self.store = store
        self.clock = clock
    }

    /// Returns only after ``LogStore/close()``, when all is delivered.
    package func run(_ connection: any AgentConnection) async throws {
        // What was in flight when the last connection dropped goes at once.
        var mayWait = !store.isInFlight
        while true {
            if store.isEmpty {
                if store.isClosed { return }
                try await store.work.wait()
                continue
            }
            if mayWait, !store.isUrgent {
                try await store.flushSignal.wait(atMost: ScriptLimits.logFlushInterval, clock)
            }
            mayWait = true
            // What comes meanwhile waits for the next second.
            var owed = store.lineCount
            while owed > 0, let batch = store.nextBatch() {
                let response = try await connection.call(AgentAPI.batchCreateLogs, batch.request)
                store.acknowledge(limitExceeded: response.logLimitExceeded)
                owed -= batch.lines.count
            }
        }
    }
}
