import AgentProto
import DequeModule
import FoundationEssentials
import Synchronization

/// The last runs of the manifest's scripts, for those who look. Outlives agent sessions.
package final class ScriptHistory: Sendable {
    /// What is known of one script.
    package struct Record: Sendable {
        /// Runs under way.
        package var running = 0
        /// Where its output went last; empty before the first run.
        package var logPath = ""
        /// Those that have ended, newest first.
        package var runs: Deque<Coder_Agent_V2_Timing> = []
    }

    /// Runs that are kept of each script.
    package static let runsKept = 20

    private let records = Mutex<[Data: Record]>([:])

    package init() {}

    /// - Parameter id: of the script, 16 raw bytes.
    package func record(_ id: Data) -> Record? { records.withLock { $0[id] } }

    /// Forgets scripts that the manifest no longer has, unless they run.
    func keep(_ scripts: [WorkspaceScript]) {
        let ids = Set(scripts.map(\.id))
        records.withLock { records in records = records.filter { ids.contains($0.key) || $0.value.running > 0 } }
    }

    func started(_ id: Data, logPath: String) {
        records.withLock {
            $0[id, default: Record()].running += 1
            $0[id, default: Record()].logPath = logPath
        }
    }

    func ended(_ timing: Coder_Agent_V2_Timing) {
        records.withLock { records in
            var record = records[timing.scriptID] ?? Record()
            record.running = max(0, record.running - 1)
            record.runs.prepend(timing)
            if record.runs.count > Self.runsKept { record.runs.removeLast() }
            records[timing.scriptID] = record
        }
    }
}
