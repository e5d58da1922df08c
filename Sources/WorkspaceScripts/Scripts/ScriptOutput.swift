import AgentCore
import ControlPlaneAPI
import FoundationEssentials
import Logging
import Synchronization

/// Takes a script's output from the reactor's thread to its log file and to the control plane's log, on
/// a thread that may block. When the disk is behind, the gate is held, and the script waits.
final class ScriptOutput: Sendable {
    private struct State: Sendable {
        var pending: [(stream: CommandStream, bytes: [UInt8])] = []
        var pendingBytes = 0
        var draining = false
    }

    // The lock only proves to the compiler what `draining` sees to: one drain at a time. It is never
    // contended, so holding it while the file is written costs nothing.
    private struct Sink: ~Copyable {
        var file: ScriptLogFile?
        var stdout = LineSplitter()
        var stderr = LineSplitter()
    }

    let gate = OutputGate()
    private let source: Data
    private let store: LogStore
    private let pool: BlockingPool
    private let executor: any TaskExecutor
    private let wallTime: @Sendable () -> WallTime
    private let logger: Logger
    private let state = Watched(State())
    private let sink: Mutex<Sink>

    /// - Parameter pool: where files block.
    init(
        source: Data, store: LogStore, pool: BlockingPool, executor: any TaskExecutor,
        wallTime: @escaping @Sendable () -> WallTime, logger: Logger
    ) {
        self.source = source
        self.store = store
        self.pool = pool
        self.executor = executor
        self.wallTime = wallTime
        self.logger = logger
        sink = Mutex(Sink())
    }

    /// Opens the log file; without one the output still goes to the control plane.
    func open(_ path: String) async {
        do {
            try await pool.run { [self] in
                // Made under the lock: it never leaves it.
                try sink.withLock { $0.file = try ScriptLogFile(path: path) }
            }
        } catch {
            complain("no log file: \(error)")
        }
    }

    /// On the reactor's thread: only queues.
    func receive(_ stream: CommandStream, _ bytes: UnsafeRawBufferPointer) {
        let start = state.update { state in
            state.pending.append((stream, [UInt8](bytes)))
            state.pendingBytes += bytes.count
            if state.pendingBytes >= ScriptLimits.scriptPendingBytes { gate.hold() }
            defer { state.draining = true }
            return !state.draining
        }
        if start { drainSoon() }
    }

    /// Returns once all that was received is in the file and in the store, unfinished lines too, and
    /// behind it lines of ours.
    func finish(_ notes: [(level: ScriptLogLine.Level, text: String)]) async {
        await state.waitIgnoringCancellation { !$0.draining }
        _ = try? await pool.runToEnd { [self] in
            sink.withLock { sink in
                if let line = sink.stdout.finish() { append(.info, line) }
                if let line = sink.stderr.finish() { append(.error, line) }
                for note in notes {
                    if let problem = sink.file?.write(Array("\(note.text)\n".utf8)) { complain(problem) }
                }
                sink.file = nil
            }
        }
        for note in notes { append(note.level, note.text) }
    }

    private func drainSoon() {
        Task(executorPreference: executor) { [self] in
            do {
                // One turn at a time: a script that never stops writing must not keep the thread from
                // the others.
                while try await pool.run({ [self] in drain() }) {}
            } catch {
                // The pool is closed: the daemon is past its end.
                settle()
            }
        }
    }

    /// - Returns: false when there was nothing left.
    private func drain() -> Bool {
        let chunks = state.update { state in
            defer { (state.pending, state.pendingBytes) = ([], 0) }
            return state.pending
        }
        guard !chunks.isEmpty else { return !settleIfEmpty() }
        gate.release()
        sink.withLock { sink in
            for (stream, bytes) in chunks {
                if let problem = sink.file?.write(bytes) { complain(problem) }
                switch stream {
                case .stdout: for line in sink.stdout.feed(bytes) { append(.info, line) }
                case .stderr: for line in sink.stderr.feed(bytes) { append(.error, line) }
                }
            }
        }
        return true
    }

    private func settleIfEmpty() -> Bool {
        state.update { state in
            guard state.pending.isEmpty else { return false }
            state.draining = false
            return true
        }
    }

    private func settle() {
        state.update { ($0.pending, $0.pendingBytes, $0.draining) = ([], 0, false) }
        gate.release()
    }

    private func append(_ level: ScriptLogLine.Level, _ text: String) {
        store.append(ScriptLogLine(time: wallTime(), level: level, text: text), source: source)
    }

    private func complain(_ problem: String) {
        logger.warning("\(problem)", metadata: ["log_source_id": "\(source.text)"])
    }
}
