import AgentCore
import CPlatform
import Glibc
import Logging
import Synchronization

/// The queue of batches between boundary and the control plane, on disk.
///
/// Batches are staged in memory for a few milliseconds; the queue's own thread writes all staged batches in one
/// transaction. Neither ``enqueue(_:_:logs:)`` nor ``acknowledge(through:)`` ever waits for the disk. While the disk
/// cannot be written, batches are forwarded from memory; when the memory limit is reached, the newest is dropped and
/// counted.
public final class DurableQueue: Sendable {
    struct State {
        enum Thread { case absent, working, lingering, failing, idle }

        var chunks: [Chunk] = []
        /// Not on disk: in `chunks` and held by the thread.
        var staged = (batches: 0, bytes: 0)
        var stored = (batches: 0, bytes: 0)
        var doneThrough: Int64?
        var reader: Reader?
        /// Whether it came after the thread last checked.
        var readerIsNew = false
        var nextReader: UInt64 = 0
        /// Batches taken in so far.
        var taken = 0
        var drainWaiters: [(mark: Int, drained: Promise<Void>)] = []
        var thread = Thread.working
        /// Since when something is staged and nothing of it was written.
        var stagedSince: Duration?
        var closing = false
        var closed = false
        /// Fulfilled once the queue is closed.
        let ended = Promise<Void>()
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
        /// - Returns: all waiters, to be resumed outside of the lock.
        mutating func end() -> Waiting {
            closed = true
            defer { (reader, drainWaiters) = (nil, []) }
            return Waiting(reader: reader, others: drainWaiters.map(\.drained) + [ended])
        }

        struct Waiting: Sendable {
            var reader: Reader?
            var others: [Promise<Void>]

            func resume() {
                reader?.continuation.resume(returning: [])
                for other in others { other.fulfill() }
            }
        }

        /// Whether all batches up to the mark are forwarded or dropped. They go in order of arrival, after those that an
        /// earlier run left in the file.
        func isDone(_ mark: Int) -> Bool { taken - staged.batches - stored.batches >= mark }
    }

    struct Reader {
        var id: UInt64
        var after: Int64
        var batches: Int
        var bytes: Int
        var continuation: CheckedContinuation<[QueuedBatch], Never>
    }

    let configuration: Configuration
    let clock: AgentClock
    private let metrics: BoundaryMetrics
    private let logger: Logger
    let state = Mutex(State())
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
            ? nil : BoundaryError(.closed, "the kernel refused a thread for the boundary log queue")
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
                // The first one is logged at once, so the thread is woken.
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

    /// Batches that are not delivered yet.
    public var batches: Int { state.withLock { $0.staged.batches + $0.stored.batches } }

    /// Whether batches come faster than the working disk takes them: a quarter of the staging area is in use. No batch
    /// is lost when the sockets are read a moment later then.
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

    // MARK: - Reading

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
            // Another reader may have replaced it.
            let reader = state.withLock { state -> Reader? in
                guard state.reader?.id == number else { return nil }
                return state.reader.take()
            }
            reader?.continuation.resume(returning: [])
        }
    }

    /// Everything up to this batch is done; the thread deletes it soon.
    public func acknowledge(through id: Int64) {
        let idle = state.withLock { state in
            state.doneThrough = max(state.doneThrough ?? 0, id)
            return state.thread == .idle || state.thread == .failing
        }
        if idle { wakeThread() }
    }

    /// A mark for ``drained(through:)`` that stands for all batches taken in until now.
    public func mark() -> Int { state.withLock { $0.taken } }

    /// Whether all batches up to the mark are forwarded or dropped.
    public func isDrained(through mark: Int) -> Bool { state.withLock { $0.isDone(mark) } }

    /// Returns when all batches up to the mark (without one: up to this call) are forwarded or dropped, or the task is
    /// cancelled. Later batches are not waited for: they may never stop coming.
    public func drained(through mark: Int? = nil) async {
        let drained = Promise<Void>()
        state.withLock { state in
            let mark = mark ?? state.taken
            if state.isDone(mark) || state.closed {
                drained.fulfill()
            } else {
                state.drainWaiters.append((mark, drained))
            }
        }
        await drained.value(ifCancelled: ())
        state.withLock { $0.drainWaiters.removeAll { $0.drained === drained } }
    }

    /// Writes the staged batches and closes the file; batches on disk stay there. Takes no further batches. When the
    /// disk does not answer, returns after `limit`.
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
        let ended = state.withLock { state -> Promise<Void>? in
            if state.closed { return nil }
            state.closing = true
            if state.thread == .absent, state.isEmpty {
                (state.closed, state.thread) = (true, .working)
                return nil
            }
            return state.ended
        }
        guard let ended else { return }
        wakeThread()
        await ended.valueIgnoringCancellation
    }

    /// Closes the queue without its thread, which may be blocked in a call to the disk for ever.
    private func giveUp(_ limit: Duration) {
        let ended: (left: State.Waiting, lost: Int)? = state.withLock { state in
            guard !state.closed else { return nil }
            state.lost = state.staged.batches
            return (state.end(), state.lost)
        }
        guard let ended else { return }
        logger.error(
            "the disk does not answer; the boundary log queue is closed without being written",
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

    /// Wakes or starts the thread, which was in this state and counts as working now.
    private func signal(_ found: State.Thread) {
        guard found == .absent else {
            wa_eventfd_signal(wake)
            return
        }
        guard let error = start() else { return }
        // The next batch tries again; while the queue closes there is no next one.
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

    /// Waits until the thread is signalled, at most for the limit; nil waits for ever.
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
