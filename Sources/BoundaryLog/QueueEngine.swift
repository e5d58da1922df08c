import AgentCore
import Glibc
import Logging

/// The queue's thread, which alone uses the database.
struct QueueEngine {
    var configuration: DurableQueue.Configuration
    let clock: AgentClock
    let metrics: BoundaryMetrics
    let logger: Logger
    let queue: DurableQueue

    var database: QueueDatabase?
    /// Taken from the queue and not on disk.
    var held: [Chunk] = []
    var doneThrough: Int64?
    var nextID: Int64
    /// The newest batch that a reader got.
    var readThrough: Int64 = 0
    /// Batches on disk that a reader got and has not acknowledged.
    var unacknowledged = 0
    var lastCommit: Duration?
    var failure: (attempts: Int, retryAt: Duration, error: BoundaryError)?
    /// Since when no file could be opened; nil once one was.
    var unopenedSince: Duration?
    /// The newest batch that is in the file, or may be.
    var storedThrough: Int64 = 0
    var displaced: BoundaryError?
    var stored = (batches: 0, bytes: 0, logs: 0)
    var closing = false
    var mayShrink = false
    var loggedDrops = (count: 0, at: Duration?.none)

    init(
        configuration: DurableQueue.Configuration, clock: AgentClock, metrics: BoundaryMetrics, logger: Logger,
        queue: DurableQueue
    ) {
        self.configuration = configuration
        self.clock = clock
        self.metrics = metrics
        self.logger = logger
        self.queue = queue
        // Ids rise across restarts even where the older ones cannot be read.
        nextID = max(1, clock.wallSeconds()) * 1_000_000
        unopenedSince = clock.now()
    }

    mutating func run() {
        while true {
            take()
            work()
            serve()
            publish()
            if closing { return finish() }
            rest()
        }
    }

    // MARK: - One turn

    private mutating func take() {
        let (chunks, done, closing) = queue.withState { state in
            let taken = (state.chunks, state.doneThrough, state.closing)
            state.chunks = []
            state.doneThrough = nil
            return taken
        }
        for var chunk in chunks {
            chunk.firstID = nextID
            nextID += Int64(chunk.batches)
            // Small ones together: each is a transaction.
            if let last = held.indices.last, held[last].bytes + chunk.bytes <= BoundaryLimits.chunkBytes {
                held[last].append(chunk)
            } else {
                held.append(chunk)
            }
        }
        self.closing = closing
        if let done {
            doneThrough = max(doneThrough ?? 0, done)
            forget(through: done)
        }
    }

    /// Drops batches that were forwarded out of memory.
    mutating func forget(through id: Int64) {
        guard let first = held.first, first.firstID <= id else { return }
        var gone = (batches: 0, bytes: 0)
        while let chunk = held.first, chunk.firstID <= id {
            let dropped = held[0].drop(through: id)
            gone.batches += dropped.batches
            gone.bytes += dropped.bytes
            guard held[0].batches == 0 else { break }
            held.removeFirst()
        }
        let (counts, now) = (gone, clock.now())
        queue.withState { $0.unstage(batches: counts.batches, bytes: counts.bytes, now: now) }
    }

    private var isDue: Bool {
        let now = clock.now()
        if closing { return true }
        if let failure { return now >= failure.retryAt }
        guard let lastCommit, now < lastCommit + configuration.commitInterval else { return true }
        return held.reduce(0) { $0 + $1.bytes } * 4 > configuration.maximumStagedBytes
            || held.reduce(0) { $0 + $1.batches } * 4 > configuration.maximumStagedBatches
    }

    private mutating func work() {
        guard isDue else { return }
        do {
            let database = try opened()
            let current = restored(database)
            if !held.isEmpty || doneThrough != nil {
                // The clock may be slow against the disk: the interval begins when the commit ends.
                defer { lastCommit = clock.now() }
                repeat { try write(current) } while !held.isEmpty
            }
            recovered()
        } catch {
            failed(error as? BoundaryError ?? BoundaryError(.storage(0), "\(error)"))
        }
    }

    private mutating func write(_ database: QueueDatabase) throws {
        let chunk = held.first
        let removed = try database.write(doneThrough: doneThrough, chunk: chunk)
        doneThrough = nil
        stored.batches -= removed.batches
        stored.bytes -= removed.bytes
        stored.logs -= removed.logs
        unacknowledged = max(0, unacknowledged - removed.batches)
        if let chunk {
            held.removeFirst()
            storedThrough = max(storedThrough, chunk.lastID)
            stored.batches += chunk.batches
            stored.bytes += chunk.bytes
            stored.logs += chunk.logs
            if readThrough >= chunk.firstID {
                // The reader got them from memory; the next acknowledgement deletes those that are done.
                unacknowledged += Int(min(readThrough, chunk.lastID) - chunk.firstID + 1)
            }
        }
        if stored.batches > 10_000 { mayShrink = true }
        let (batches, bytes, now) = (stored.batches, stored.bytes, clock.now())
        queue.withState { state in
            state.stored = (batches, bytes)
            if let chunk { state.unstage(batches: chunk.batches, bytes: chunk.bytes, now: now) }
        }
    }

    private mutating func serve() {
        let waiting = queue.withState { state in
            state.readerIsNew = false
            return state.reader
        }
        guard let reader = waiting else { return }
        var found: [QueuedBatch] = []
        do {
            found = try database?.read(after: reader.after, batches: reader.batches, bytes: reader.bytes) ?? []
        } catch {
            failed(error as? BoundaryError ?? BoundaryError(.storage(0), "\(error)"))
        }
        let onDisk = found.count
        if found.isEmpty, mayServeMemory(after: reader.after) {
            for chunk in held where chunk.lastID > reader.after {
                found += chunk.batches(after: reader.after, atMost: min(reader.batches - found.count, 64))
                // Stops where batches of this chunk were left out: the acknowledgement of a later chunk would delete them.
                guard found.last?.id == chunk.lastID, found.count < reader.batches else { break }
            }
        }
        guard let last = found.last else { return }
        let current = queue.withState { state -> DurableQueue.Reader? in
            guard state.reader?.id == reader.id else { return nil }
            return state.reader.take()
        }
        // nil when it was cancelled meanwhile or replaced by another, which is served next.
        guard let current else { return }
        readThrough = max(readThrough, last.id)
        unacknowledged += onDisk
        current.continuation.resume(returning: found)
    }

    /// While the disk fails, batches are forwarded from memory. Older ones may be in a file that could not be opened
    /// yet; for a while they are waited for.
    private func mayServeMemory(after id: Int64) -> Bool {
        guard failure != nil else { return false }
        if let unopenedSince {
            return clock.now() >= unopenedSince + configuration.openGrace || access(configuration.path, F_OK) != 0
        }
        // Never past batches that are only in the file.
        return stored.batches == 0 || id >= storedThrough
    }

    private mutating func publish() {
        var oldest = held.first?.received
        if stored.batches > 0, let first = try? database?.oldest() { oldest = first }
        let trouble = (failure?.error ?? displaced)?.message
        let dropped = queue.withState { state in
            state.status.oldest = oldest
            state.status.trouble = trouble
            let waiters = state.drainWaiters.filter { state.isDone($0.mark) }.map(\.drained)
            state.drainWaiters = state.drainWaiters.filter { !state.isDone($0.mark) }
            return (count: state.status.dropped, waiters: waiters)
        }
        for waiter in dropped.waiters { waiter.fulfill() }
        let now = clock.now()
        // Full when the largest batch would not fit.
        let isFull =
            stored.batches + held.reduce(0) { $0 + $1.batches } >= configuration.maximumBatches
            || stored.bytes + held.reduce(0) { $0 + $1.bytes } + BoundaryLimits.frameBytes > configuration.maximumBytes
        if dropped.count > loggedDrops.count, loggedDrops.at.map({ now >= $0 + .seconds(10) }) ?? true {
            logger.error(
                "boundary logs were dropped",
                metadata: [
                    "batches": "\(dropped.count - loggedDrops.count)", "batches_in_all": "\(dropped.count)",
                    "reason": "\(trouble ?? (isFull ? "the queue is full" : "more came than the disk takes"))",
                ])
            loggedDrops = (dropped.count, now)
        }
        if stored.batches == 0, held.isEmpty, mayShrink, let database {
            mayShrink = false
            // Gives the space back of a file that grew in an outage; a failure does no harm.
            try? database.shrink()
            try? database.truncateLog()
        }
    }

    private mutating func rest() {
        let now = clock.now()
        let pending = !held.isEmpty || doneThrough != nil
        let (retryAt, nextCommit) = (failure?.retryAt, lastCommit.map { $0 + configuration.commitInterval } ?? now)
        let watches = stored.batches > 0
        let logged = loggedDrops.count
        let limit: Duration?? = queue.withState { state in
            // A reader that came while this thread worked has not signalled it.
            if state.closing || state.readerIsNew { return nil }
            if let retryAt {
                // Until the retry, new batches matter only to a waiting reader.
                state.thread = state.reader != nil ? .idle : .failing
                return .some(max(.zero, retryAt - now))
            }
            if pending || !state.chunks.isEmpty || state.doneThrough != nil {
                guard now < nextCommit else { return nil }
                state.thread = .lingering
                return .some(nextCommit - now)
            }
            state.thread = .idle
            return .some(watches || state.status.dropped > logged ? .seconds(5) : nil)
        }
        guard case .some(let limit) = limit else { return }
        queue.wait(limit)
    }

    private mutating func finish() {
        let lost = held.reduce((0, 0)) { ($0.0 + $1.batches, $0.1 + $1.logs) }
        if lost.0 > 0 {
            metrics.dropped(.bufferFull, batches: lost.0, logs: lost.1)
            logger.error(
                "boundary logs were lost at shutdown",
                metadata: ["batches": "\(lost.0)", "reason": "\(failure?.error.message ?? "")"])
        }
        database = nil
        let left: DurableQueue.State.Waiting? = queue.withState { state in
            state.thread = .working
            // The queue may have been closed without this thread meanwhile.
            guard !state.closed else { return nil }
            state.lost = lost.0
            return state.end()
        }
        left?.resume()
    }
}
