import AgentCore
import CPlatform
import Glibc
import Logging
import Synchronization

/// The queue of batches between boundary and the control plane, on disk.
///
/// Batches are staged in memory, a few milliseconds' worth, and a thread of the queue's own writes
/// all that is there in one transaction. Neither ``enqueue(_:_:logs:)`` nor ``acknowledge(through:)``
/// ever waits for a disk. While the disk cannot be written, staged batches wait in memory, are
/// forwarded from there, and the newest is dropped and counted when that is full.
public final class DurableQueue: Sendable {
    /// Where the queue is and how much it may hold.
    public struct Configuration: Sendable {
        /// The database; its directory is made (0700) when missing.
        public var path: String
        public var maximumBatches = BoundaryLimits.queueBatches
        public var maximumBytes = BoundaryLimits.queueBytes
        public var maximumStagedBatches = BoundaryLimits.stagedBatches
        public var maximumStagedBytes = BoundaryLimits.stagedBytes
        public var maximumPages = BoundaryLimits.filePages
        /// Commits are at least so far apart while batches keep coming.
        public var commitInterval = Duration.milliseconds(5)
        /// First and longest wait before a disk that failed is tried again.
        public var retry: (first: Duration, longest: Duration) = (.milliseconds(100), .seconds(10))
        /// How long batches of a queue that cannot be opened yet wait for the older ones in it.
        public var openGrace = Duration.seconds(30)
        /// Without a file the thread starts with the first batch or reader: a queue that nobody uses
        /// costs nothing.
        public var startsWhenNeeded = false

        /// - Parameter directory: the agent's state directory.
        public init(directory: String) { path = "\(directory)/boundary-logs/queue.db" }
    }

    /// What the queue is like at a moment.
    public struct Status: Sendable, Equatable {
        /// Batches and payload bytes, on disk and on the way there.
        public var batches = 0
        public var bytes = 0
        /// Of these, those that a crash of the agent would lose.
        public var stagedBatches = 0
        /// Seconds since 1970 of the oldest.
        public var oldest: Int64?
        /// Why the disk is not written, while it is not.
        public var trouble: String?
        /// Where a damaged file was put in this life of the agent.
        public var setAside: String?
        /// Batches dropped because there was no room.
        public var dropped = 0
    }

    struct State {
        enum Thread { case absent, working, lingering, failing, idle }

        var chunks: [Chunk] = []
        /// Not on disk: in `chunks` and in the thread's hands.
        var staged = (batches: 0, bytes: 0)
        var stored = (batches: 0, bytes: 0)
        var doneThrough: Int64?
        var reader: Reader?
        /// It came after the thread last looked.
        var readerIsNew = false
        var nextReader: UInt64 = 0
        /// Batches taken in so far.
        var taken = 0
        var drainWaiters: [UInt64: (mark: Int, continuation: CheckedContinuation<Void, Never>)] = [:]
        var nextWaiter: UInt64 = 0
        var thread = Thread.working
        /// Since when something is staged and nothing of it was written.
        var stagedSince: Duration?
        var closing = false
        var closed = false
        var closeWaiters: [CheckedContinuation<Void, Never>] = []
        /// Batches that were not on disk at the end.
        var lost = 0
        var status = Status()

        mutating func unstage(batches: Int, bytes: Int, now: Duration) {
            staged.batches -= batches
            staged.bytes -= bytes
            stagedSince = staged.batches > 0 ? now : nil
        }

        var isEmpty: Bool { staged.batches + stored.batches == 0 }

        /// Marks the queue as closed.
        /// - Returns: who waited for anything of it; to be resumed outside of the lock.
        mutating func end() -> Waiting {
            closed = true
            defer { (reader, drainWaiters, closeWaiters) = (nil, [:], []) }
            return Waiting(reader: reader, others: drainWaiters.values.map(\.continuation) + closeWaiters)
        }

        struct Waiting: Sendable {
            var reader: Reader?
            var others: [CheckedContinuation<Void, Never>]

            func resume() {
                reader?.continuation.resume(returning: [])
                for other in others { other.resume() }
            }
        }

        /// Whether all that was there at the mark has gone. Batches go in the order in which they came;
        /// those that a file of an earlier life holds have to go first.
        func isDone(_ mark: Int) -> Bool { taken - staged.batches - stored.batches >= mark }
    }

    struct Reader {
        var id: UInt64
        var after: Int64
        var batches: Int
        var bytes: Int
        var continuation: CheckedContinuation<[QueuedBatch], Never>
    }

    private let configuration: Configuration
    private let clock: AgentClock
    private let metrics: BoundaryMetrics
    private let logger: Logger
    private let state = Mutex(State())
    private let wake: CInt

    /// - Parameters:
    ///   - clock: for the age of batches.
    ///   - registry: where the gauges of the queue are registered.
    public init(
        configuration: Configuration, clock: AgentClock, metrics: BoundaryMetrics, registry: MetricsRegistry,
        logger: Logger
    ) throws {
        self.configuration = configuration
        self.clock = clock
        self.metrics = metrics
        self.logger = logger
        wake = wa_eventfd()
        guard wake >= 0 else { throw CoreError.system(wake, "eventfd") }
        if configuration.startsWhenNeeded, access(configuration.path, F_OK) != 0, errno == ENOENT {
            state.withLock { $0.thread = .absent }
        } else if let error = start() {
            throw error
        }
        registry.gauge("agent_boundary_log_proxy_queue_batches", help: "Batches that wait to be forwarded.") {
            [weak self] in self.map { Double($0.status.batches) }
        }
        registry.gauge("agent_boundary_log_proxy_queue_bytes", help: "Payload bytes that wait to be forwarded.") {
            [weak self] in self.map { Double($0.status.bytes) }
        }
    }

    deinit { Glibc.close(wake) }

    private func start() -> BoundaryError? {
        let started = startThread("boundary-queue") { [self] in
            var engine = QueueEngine(
                configuration: configuration, clock: clock, metrics: metrics, logger: logger, queue: self)
            engine.run()
        }
        return started
            ? nil : BoundaryError(.closed, "the kernel refuses a thread for the boundary log queue")
    }

    public var status: Status {
        state.withLock { state in
            var status = state.status
            status.batches = state.staged.batches + state.stored.batches
            status.bytes = state.staged.bytes + state.stored.bytes
            status.stagedBatches = state.staged.batches
            if status.batches == 0 {
                status.oldest = nil
            } else if status.oldest == nil {
                status.oldest = state.chunks.first?.received
            }
            return status
        }
    }

    /// What makes the daemon degraded (spec: over half full, or a batch older than 5 minutes; also a
    /// disk that cannot be written or does not answer).
    public func health() -> HealthRegistry.Report? {
        let status = status
        var reasons: [String] = []
        if let trouble = status.trouble {
            reasons.append("\(trouble); \(status.stagedBatches) batches are in memory only")
        } else if let since = state.withLock({ $0.stagedSince }), case let age = clock.now() - since,
            age > BoundaryLimits.slowDisk
        {
            reasons.append(
                "the disk has not answered the boundary log queue for \(age.components.seconds) s; "
                    + "\(status.stagedBatches) batches are in memory only")
        }
        if status.batches * 2 > configuration.maximumBatches || status.bytes * 2 > configuration.maximumBytes {
            reasons.append("boundary log queue is over half full: \(status.batches) batches, \(status.bytes) bytes")
        }
        if let oldest = status.oldest, case let age = clock.wallSeconds() - oldest, age > 300 {
            reasons.append("boundary log queue has waited \(age) s for the control plane")
        }
        if !reasons.isEmpty { return HealthRegistry.Report(reasons.joined(separator: "; ")) }
        return status.setAside.map {
            HealthRegistry.Report("a damaged boundary log queue was set aside as \($0)", degrades: false)
        }
    }

    // MARK: - Taking in

    /// Takes in one batch. Never waits.
    /// - Parameter parts: of the bytes; one after the other they are the encoded request.
    /// - Returns: false when there was no room: the batch is dropped and counted.
    @discardableResult
    public func enqueue(_ bytes: UnsafeRawBufferPointer, _ parts: [Range<Int>], logs: Int) -> Bool {
        var size = 0
        for part in parts { size += part.count }
        let (taken, found) = state.withLock { state -> (Bool, State.Thread?) in
            guard hasRoom(state, size) else {
                state.status.dropped += 1
                // The first of many is told at once.
                return (false, state.status.dropped == 1 && state.thread != .working ? state.thread : nil)
            }
            if state.chunks.last.map({ $0.bytes + size > BoundaryLimits.chunkBytes }) ?? true {
                state.chunks.append(Chunk(received: clock.wallSeconds()))
            }
            state.chunks[state.chunks.count - 1].append(bytes, parts, logs: logs)
            if state.staged.batches == 0 { state.stagedSince = clock.now() }
            state.staged.batches += 1
            state.staged.bytes += size
            state.taken += 1
            let signals =
                switch state.thread {
                case .working, .failing: false
                case .idle, .absent: true
                case .lingering:
                    state.staged.bytes * 4 > configuration.maximumStagedBytes
                        || state.staged.batches * 4 > configuration.maximumStagedBatches
                }
            defer { if signals { state.thread = .working } }
            return (true, signals ? state.thread : nil)
        }
        if !taken { metrics.dropped(.bufferFull, logs: logs) }
        if let found { signal(found) }
        return taken
    }

    /// Whether more comes than a disk that works takes: a quarter of the staging area is in use. Writers
    /// that wait a moment then lose nothing.
    public var isCrowded: Bool {
        state.withLock { state in
            state.status.trouble == nil && !state.closing
                && (state.staged.bytes * 4 > configuration.maximumStagedBytes
                    || state.staged.batches * 4 > configuration.maximumStagedBatches)
        }
    }

    private func hasRoom(_ state: State, _ size: Int) -> Bool {
        !state.closing
            && state.staged.batches < configuration.maximumStagedBatches
            && state.staged.bytes + size <= configuration.maximumStagedBytes
            && state.staged.batches + state.stored.batches < configuration.maximumBatches
            && state.staged.bytes + state.stored.bytes + size <= configuration.maximumBytes
    }

    // MARK: - Handing out

    /// The next batches in order; waits until there is one. For one reader at a time.
    /// - Returns: nothing when the task was cancelled or the queue closed.
    public func read(after id: Int64, batches: Int, bytes: Int) async -> [QueuedBatch] {
        let number = state.withLock { state in
            state.nextReader += 1
            return state.nextReader
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let reader = Reader(
                    id: number, after: id, batches: batches, bytes: bytes, continuation: continuation)
                let refused = state.withLock { state in
                    if state.closed || state.closing || Task.isCancelled { return [reader] }
                    defer { (state.reader, state.readerIsNew) = (reader, true) }
                    return state.reader.map { [$0] } ?? []
                }
                for reader in refused { reader.continuation.resume(returning: []) }
                wakeThread()
            }
        } onCancel: {
            // Another one may have come since.
            let reader = state.withLock { state -> Reader? in
                guard state.reader?.id == number else { return nil }
                return state.reader.take()
            }
            reader?.continuation.resume(returning: [])
        }
    }

    /// Everything up to this batch is done: it is deleted soon.
    public func acknowledge(through id: Int64) {
        let idle = state.withLock { state in
            state.doneThrough = max(state.doneThrough ?? 0, id)
            return state.thread == .idle || state.thread == .failing
        }
        if idle { wakeThread() }
    }

    /// Stands for all batches that were taken in until now.
    public func mark() -> Int { state.withLock { $0.taken } }

    /// Whether everything up to the mark has gone.
    public func isDrained(through mark: Int) -> Bool { state.withLock { $0.isDone(mark) } }

    /// Returns when everything has gone that was there at the mark, or at this call, or the task is
    /// cancelled. What comes meanwhile is not waited for: it may never stop coming.
    public func drained(through mark: Int? = nil) async {
        let (id, mark) = state.withLock { state in
            state.nextWaiter += 1
            return (state.nextWaiter, mark ?? state.taken)
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let done = state.withLock { state in
                    if state.isDone(mark) || state.closed || Task.isCancelled { return true }
                    state.drainWaiters[id] = (mark, continuation)
                    return false
                }
                if done { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.drainWaiters.removeValue(forKey: id) }?.continuation.resume()
        }
    }

    /// Writes what is staged and closes the file. What is left stays on disk; nothing is taken in
    /// any more. A disk that does not answer is given up after `limit`.
    /// - Returns: how many batches were not on disk at the end.
    @discardableResult
    public func close(within limit: Duration = BoundaryLimits.closeLimit) async -> Int {
        enum Event { case closed, late, cancelled }
        return await withTaskGroup(of: Event.self) { group in
            group.addTask {
                await self.closed()
                return .closed
            }
            group.addTask { [clock] in
                do { try await clock.sleep(limit) } catch { return .cancelled }
                return .late
            }
            for await event in group {
                if event == .late { giveUp(limit) }
                if event == .closed { group.cancelAll() }
            }
            return state.withLock { $0.lost }
        }
    }

    private func closed() async {
        await withCheckedContinuation { continuation in
            let done = state.withLock { state in
                if state.closed { return true }
                state.closing = true
                if state.thread == .absent, state.isEmpty {
                    (state.closed, state.thread) = (true, .working)
                    return true
                }
                state.closeWaiters.append(continuation)
                return false
            }
            if done { continuation.resume() } else { wakeThread() }
        }
    }

    /// Ends the queue without its thread, which may be in a call to the disk for ever.
    private func giveUp(_ limit: Duration) {
        let ended: (left: State.Waiting, lost: Int)? = state.withLock { state in
            guard !state.closed else { return nil }
            state.lost = state.staged.batches
            return (state.end(), state.lost)
        }
        guard let ended else { return }
        logger.error(
            "the disk does not answer; the agent ends without writing its boundary log queue",
            metadata: ["seconds": "\(limit.components.seconds)", "batches": "\(ended.lost)"])
        ended.left.resume()
    }

    private func wakeThread() {
        let found = state.withLock { state in
            defer { state.thread = .working }
            return state.thread
        }
        if found != .working { signal(found) }
    }

    /// Has the thread look, which was in this state and counts as working now.
    private func signal(_ found: State.Thread) {
        guard found == .absent else {
            wa_eventfd_signal(wake)
            return
        }
        guard let error = start() else { return }
        // The next batch tries again; at the end there is none.
        let ended: (left: State.Waiting, lost: [Chunk])? = state.withLock { state in
            state.thread = state.closing ? .working : .absent
            state.status.trouble = error.message
            guard state.closing, !state.closed else { return nil }
            defer { state.chunks = [] }
            state.lost = state.staged.batches
            return (state.end(), state.chunks)
        }
        guard let ended else { return }
        for chunk in ended.lost { metrics.dropped(.bufferFull, batches: chunk.batches, logs: chunk.logs) }
        ended.left.resume()
    }

    // MARK: - For the thread

    func withState<T>(_ body: (inout sending State) -> sending T) -> sending T { state.withLock(body) }

    /// Waits until there is something to do, at most so long; nil is for ever.
    func wait(_ limit: Duration?) {
        var item = pollfd(fd: wake, events: Int16(POLLIN), revents: 0)
        let milliseconds =
            limit.map {
                CInt(clamping: $0.components.seconds * 1_000 + $0.components.attoseconds / 1_000_000_000_000_000 + 1)
            } ?? -1
        poll(&item, 1, milliseconds)
        wa_eventfd_drain(wake)
        state.withLock { $0.thread = .working }
    }
}
