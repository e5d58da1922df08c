import AgentCore
import Glibc
import Logging
import NIOCore
import Synchronization

/// The file that keeps units while the daemon is restarted or has died.
///
/// Changes are appended; when the file has grown it is written anew. Nothing is flushed to the disk: what a
/// machine loses when it goes down is not needed after its next start, for which all start-up scripts run again.
/// A journal that cannot be written costs nothing else: its problem is in ``problem``, and it is tried again.
public final class UnitJournal: Sendable {
    private struct State: Sendable {
        /// Records to append.
        var pending = ByteBuffer()
        /// Changes that came, and those of them that are written or given up.
        var changes: UInt64 = 0
        var settled: UInt64 = 0
        var isWriting = false
        /// A write takes so long that answers don't wait for it.
        var isSlow = false
        /// The file is not there, or misses something.
        var needsAll = true
        var isSetAside = false
        var problem: String?
    }

    private struct File: ~Copyable {
        var descriptor = OwnedDescriptor(-1)
        var bytes = 0
        /// At which size it is written anew.
        var limit = 0
    }

    // A closure inside a struct, since a Mutex can't hold one.
    private struct Source: Sendable {
        var all: @Sendable (_ taken: () -> Void) -> ByteBuffer? = { _ in nil }
    }

    private let path: String
    private let machine: String
    private let pool: BlockingPool
    private let executor: any TaskExecutor
    private let clock: AgentClock
    private let logger: Logger
    private let state = Watched(State())
    private let file = Mutex(File())
    private let source = Mutex(Source())

    /// - Parameters:
    ///   - path: of the file, in a directory that is this user's alone.
    ///   - machine: see `MachineStart`.
    ///   - pool: where files block.
    ///   - executor: runs the tasks that try again.
    public init(
        path: String, machine: String, pool: BlockingPool, executor: any TaskExecutor, clock: AgentClock, logger: Logger
    ) {
        (self.path, self.machine, self.pool, self.executor) = (path, machine, pool, executor)
        (self.clock, self.logger) = (clock, logger)
    }

    /// Why units would not outlive the daemon now; nil when they would.
    public var problem: String? { state.read(\.problem) }

    // MARK: At start

    /// Reads what an earlier daemon has written. Blocks.
    func read(events: EventLog = EventLog()) -> UnitHistory {
        let nothing = UnitHistory(events: events)
        let bytes: [UInt8]
        do {
            bytes = try OwnFile.read(path, limit: AgentSocketLimits.journalBytes)
        } catch  where error.code == .system(ENOENT) {
            return nothing
        } catch {
            if error.code == .invalid {
                // Ours, and larger than any that is written.
                setAside("\(error)")
            } else {
                fail("cannot read \(path): \(error)")
            }
            return nothing
        }
        let reading = UnitHistory.read(bytes, machine: machine, events: events)
        if reading.isOver {
            logger.debug("the kept units are of an earlier start of the machine", metadata: ["path": "\(path)"])
            return nothing
        }
        if reading.damagedBytes > 0 {
            setAside("\(reading.damagedBytes) of its \(bytes.count) bytes cannot be read")
        }
        let kept = reading.history.graph.count
        if kept > 0 {
            logger.info("units are kept from before the restart", metadata: ["units": "\(kept)", "path": "\(path)"])
        }
        return reading.history
    }

    /// Leaves a file for those who want to know what happened to it.
    private func setAside(_ reason: String) {
        let place = "\(path).damaged"
        let moved = OwnFile.isFree(place) && rename(path, place) == 0
        state.update { $0.isSetAside = true }
        logger.warning(
            "the file of kept units is damaged; what came after the damage is forgotten",
            metadata: ["error": "\(reason)", "path": "\(moved ? place : path)"])
    }

    /// - Parameter all: makes all records, and calls its argument while no change can come between; nil once there are none.
    func begin(all: @escaping @Sendable (_ taken: () -> Void) -> ByteBuffer?) {
        source.withLock { $0.all = all }
        // What could be read of a file that was set aside is nowhere else.
        if state.read(\.isSetAside) { append { _ in } }
    }

    // MARK: While it runs

    /// Appends a change. Returns before it is written; calls are to come in the order of the changes.
    func append(_ record: (inout ByteBuffer) -> Void) {
        let starts = state.update { state in
            state.changes += 1
            // The next try writes all.
            if state.problem != nil {
                (state.needsAll, state.settled) = (true, state.changes)
                return false
            }
            if !state.needsAll { record(&state.pending) }
            defer { state.isWriting = true }
            return !state.isWriting
        }
        if starts { write() }
    }

    /// All that was appended is void; what is there now is written.
    func forget() {
        state.update { ($0.pending, $0.needsAll) = (ByteBuffer(), true) }
        append { _ in }
    }

    /// Returns once what was appended before is in the file, or cannot be. A disk that does not answer is waited for a
    /// while, once.
    func written() async {
        let wanted: UInt64? = state.read { state in
            state.settled == state.changes || state.isSlow ? nil : state.changes
        }
        guard let wanted else { return }
        let limiter = TimeLimiter(clock: clock, executor: executor)
        let state = state
        let isInTime = await limiter.runIgnoringCancellation(
            atMost: .milliseconds(AgentSocketLimits.journalPatienceMilliseconds)
        ) {
            try? await state.first { $0.settled >= wanted || $0.isSlow ? true : nil }
        }
        guard isInTime == nil else { return }
        state.update { if $0.settled < wanted { $0.isSlow = true } }
    }

    private func write() {
        pool.submit { [self] runs in
            if runs {
                while writeNext() {}
            } else {
                settle()
            }
        }
    }

    /// The daemon is past its end.
    private func settle() { state.update { ($0.isWriting, $0.settled) = (false, $0.changes) } }

    /// - Returns: whether there may be more to write.
    private func writeNext() -> Bool {
        file.withLock { file in
            let (bytes, changes, needsAll) = state.update { state in
                defer { state.pending = ByteBuffer() }
                let isFull = file.bytes + state.pending.readableBytes > file.limit
                return (state.pending, state.changes, state.needsAll || isFull)
            }
            if !needsAll, bytes.readableBytes == 0 {
                return !state.update { state in
                    guard state.pending.readableBytes == 0, !state.needsAll else { return false }
                    state.isWriting = false
                    return true
                }
            }
            var number = changes
            do throws(CoreError) {
                if needsAll {
                    let records = source.withLock { $0 }.all { [state] in
                        number = state.update { state in
                            (state.pending, state.needsAll) = (ByteBuffer(), false)
                            return state.changes
                        }
                    }
                    guard let records else {
                        settle()
                        return false
                    }
                    try replace(&file, with: records)
                } else {
                    try append(bytes, to: &file)
                }
                state.update { ($0.settled, $0.problem, $0.isSlow) = (max($0.settled, number), nil, false) }
                return true
            } catch {
                fail("\(error)")
                return false
            }
        }
    }

    private func append(_ bytes: ByteBuffer, to file: inout File) throws(CoreError) {
        let failure = bytes.withUnsafeReadableBytes { writeAll($0, to: file.descriptor.number) }
        guard failure == 0 else { throw CoreError.system(failure, "cannot write \(path)") }
        file.bytes += bytes.readableBytes
    }

    private func replace(_ file: inout File, with records: ByteBuffer) throws(CoreError) {
        guard OwnFile.isFree(path) else {
            throw CoreError(.pathOccupied, "\(path) is not a file of this daemon; remove it")
        }
        let bytes = UnitHistory.header(machine) + Array(records.readableBytesView)
        try OwnFile.replace(path, with: bytes)
        file.descriptor = OwnedDescriptor(try OwnFile.open(path, O_WRONLY | O_APPEND))
        file.bytes = bytes.count
        file.limit = max(AgentSocketLimits.journalQuietBytes, 2 * bytes.count)
    }

    /// Nothing waits for this any more; all is written at the next try.
    private func fail(_ problem: String) {
        let isNews = state.update { state in
            defer {
                (state.problem, state.needsAll, state.isWriting) = (problem, true, false)
                (state.pending, state.settled) = (ByteBuffer(), state.changes)
            }
            return state.problem == nil
        }
        if isNews { logger.warning("units would not outlive the daemon", metadata: ["error": "\(problem)"]) }
        Task(executorPreference: executor) { [weak self, clock] in
            try? await clock.sleep(.seconds(AgentSocketLimits.journalRetrySeconds))
            self?.tryAgain()
        }
    }

    private func tryAgain() {
        let starts = state.update { state in
            defer { state.isWriting = true }
            return !state.isWriting
        }
        if starts { write() }
    }
}
