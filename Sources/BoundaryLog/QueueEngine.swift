import AgentCore
import Glibc
import Logging

/// What the queue's thread does: it alone has the database.
struct QueueEngine {
    private var configuration: DurableQueue.Configuration
    private let clock: AgentClock
    private let metrics: BoundaryMetrics
    private let logger: Logger
    private let queue: DurableQueue

    private var database: QueueDatabase?
    /// Taken from the queue and not on disk.
    private var held: [Chunk] = []
    private var doneThrough: Int64?
    private var nextID: Int64
    /// The newest batch that a reader has.
    private var readThrough: Int64 = 0
    /// Batches on disk that a reader has and has not acknowledged.
    private var inHand = 0
    private var lastCommit: Duration?
    private var failure: (attempts: Int, retryAt: Duration, error: BoundaryError)?
    /// Since when no file could be opened; nil once one was.
    private var unopenedSince: Duration?
    /// The newest batch that is in the file, or may be.
    private var storedThrough: Int64 = 0
    private var displaced: BoundaryError?
    private var stored = (batches: 0, bytes: 0, logs: 0)
    private var closing = false
    private var mayShrink = false
    private var toldDrops = (count: 0, at: Duration?.none)

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
    private mutating func forget(through id: Int64) {
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
        inHand = max(0, inHand - removed.batches)
        if let chunk {
            held.removeFirst()
            storedThrough = max(storedThrough, chunk.lastID)
            stored.batches += chunk.batches
            stored.bytes += chunk.bytes
            stored.logs += chunk.logs
            if readThrough >= chunk.firstID {
                // They were handed out of memory; those that are done go with the next acknowledgement.
                inHand += Int(min(readThrough, chunk.lastID) - chunk.firstID + 1)
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
                // Never past batches of this chunk that were left: what is skipped is deleted with what
                // comes behind it.
                guard found.last?.id == chunk.lastID, found.count < reader.batches else { break }
            }
        }
        guard let last = found.last else { return }
        let current = queue.withState { state -> DurableQueue.Reader? in
            guard state.reader?.id == reader.id else { return nil }
            return state.reader.take()
        }
        // None when it was cancelled meanwhile, or another one came, which is served next; what was found is
        // found again.
        guard let current else { return }
        readThrough = max(readThrough, last.id)
        inHand += onDisk
        current.continuation.resume(returning: found)
    }

    /// Memory is forwarded while the disk fails. Older batches that may be in a file that nobody
    /// could open yet go first, for a while.
    private func mayServeMemory(after id: Int64) -> Bool {
        guard failure != nil else { return false }
        if let unopenedSince {
            return clock.now() >= unopenedSince + configuration.openGrace || access(configuration.path, F_OK) != 0
        }
        // Never past what only the file has.
        return stored.batches == 0 || id >= storedThrough
    }

    private mutating func publish() {
        var oldest = held.first?.received
        if stored.batches > 0, let first = try? database?.oldest() { oldest = first }
        let trouble = (failure?.error ?? displaced)?.message
        let dropped = queue.withState { state in
            state.status.oldest = oldest
            state.status.trouble = trouble
            var waiters: [CheckedContinuation<Void, Never>] = []
            for (id, waiter) in state.drainWaiters where state.isDone(waiter.mark) {
                state.drainWaiters[id] = nil
                waiters.append(waiter.continuation)
            }
            return (count: state.status.dropped, waiters: waiters)
        }
        for waiter in dropped.waiters { waiter.resume() }
        let now = clock.now()
        // As full as makes no difference: the largest batch would not fit.
        let isFull =
            stored.batches + held.reduce(0) { $0 + $1.batches } >= configuration.maximumBatches
            || stored.bytes + held.reduce(0) { $0 + $1.bytes } + BoundaryLimits.frameBytes > configuration.maximumBytes
        if dropped.count > toldDrops.count, toldDrops.at.map({ now >= $0 + .seconds(10) }) ?? true {
            logger.error(
                "boundary logs were dropped",
                metadata: [
                    "batches": "\(dropped.count - toldDrops.count)", "batches_in_all": "\(dropped.count)",
                    "reason": "\(trouble ?? (isFull ? "the queue is full" : "more came than the disk takes"))",
                ])
            toldDrops = (dropped.count, now)
        }
        if stored.batches == 0, held.isEmpty, mayShrink, let database {
            mayShrink = false
            // A file grown in an outage gives its space back; failing to is no trouble.
            try? database.shrink()
            try? database.truncateLog()
        }
    }

    private mutating func rest() {
        let now = clock.now()
        let pending = !held.isEmpty || doneThrough != nil
        let (retryAt, nextCommit) = (failure?.retryAt, lastCommit.map { $0 + configuration.commitInterval } ?? now)
        let watches = stored.batches > 0
        let untold = toldDrops.count
        let limit: Duration?? = queue.withState { state in
            // A reader that came while we worked has signalled nobody.
            if state.closing || state.readerIsNew { return nil }
            if let retryAt {
                // New batches matter to a waiting reader only.
                state.thread = state.reader != nil ? .idle : .failing
                return .some(max(.zero, retryAt - now))
            }
            if pending || !state.chunks.isEmpty || state.doneThrough != nil {
                guard now < nextCommit else { return nil }
                state.thread = .lingering
                return .some(nextCommit - now)
            }
            state.thread = .idle
            return .some(watches || state.status.dropped > untold ? .seconds(5) : nil)
        }
        guard case .some(let limit) = limit else { return }
        queue.wait(limit)
    }

    private mutating func finish() {
        let lost = held.reduce((0, 0)) { ($0.0 + $1.batches, $0.1 + $1.logs) }
        if lost.0 > 0 {
            metrics.dropped(.bufferFull, batches: lost.0, logs: lost.1)
            logger.error(
                "boundary logs are lost with the end of the agent",
                metadata: ["batches": "\(lost.0)", "reason": "\(failure?.error.message ?? "")"])
        }
        database = nil
        let left: DurableQueue.State.Waiting? = queue.withState { state in
            state.thread = .working
            // It may have been given up meanwhile.
            guard !state.closed else { return nil }
            state.lost = lost.0
            return state.end()
        }
        left?.resume()
    }

    // MARK: - Opening, and what goes wrong

    private mutating func opened() throws -> QueueDatabase {
        if let database { return database }
        let parent = parentDirectory(of: configuration.path)
        do {
            try createDirectories(parent, mode: 0o700)
            try requirePrivateDirectory(parent)
            // SQLite is told to follow no link, and means every part of the path.
            if let real = realpath(parent, nil) {
                defer { free(real) }
                configuration.path = "\(String(cString: real))/\(configuration.path.dropFirst(parent.utf8.count + 1))"
            }
        } catch let error as CoreError {
            guard case .system(let number) = error.code else { throw BoundaryError(.storage(0), error.message) }
            throw QueueDatabase.storage(number, configuration.path)
        }
        let fresh = try QueueDatabase(path: configuration.path, pages: configuration.maximumPages)
        try adopt(fresh)
        if stored.batches > 0 {
            logger.info("boundary logs of an earlier time wait", metadata: ["batches": "\(stored.batches)"])
        }
        return fresh
    }

    private mutating func adopt(_ fresh: QueueDatabase) throws {
        let totals = try fresh.totals()
        // Readers begin after 0.
        guard totals.batches == 0 || (totals.firstID > 0 && totals.lastID < BoundaryLimits.largestID) else {
            throw BoundaryError(.damaged, "boundary log queue \(configuration.path): a batch has an impossible number")
        }
        if unopenedSince == nil {
            // A commit that failed may have reached the disk all the same.
            forget(through: totals.lastID)
        } else if readThrough > 0, totals.batches > 0 {
            // Newer batches went out of memory before these could be read; they are next now, and
            // acknowledging the others must not delete them.
            nextID = try fresh.moveBehind(nextID - 1) + 1
        } else if totals.lastID >= held.first?.firstID ?? nextID {
            renumber(from: totals.lastID + 1)
        }
        unopenedSince = nil
        storedThrough = try fresh.totals().lastID
        database = fresh
        stored = (totals.batches, totals.bytes, totals.logs)
        let stored = stored
        queue.withState { $0.stored = (stored.batches, stored.bytes) }
    }

    private mutating func renumber(from first: Int64) {
        nextID = first
        for index in held.indices {
            held[index].firstID = nextID
            nextID += Int64(held[index].batches)
        }
    }

    /// Makes the file anew when it was removed, with all that was in it. Where that fails the open
    /// one, which has no name any more, goes on.
    private mutating func restored(_ database: QueueDatabase) -> QueueDatabase {
        guard !database.isInPlace else {
            displaced = nil
            return database
        }
        do {
            try createDirectories(parentDirectory(of: configuration.path), mode: 0o700)
            try database.copyToPath()
            let fresh = try QueueDatabase(path: configuration.path, pages: configuration.maximumPages)
            self.database = fresh
            displaced = nil
            logger.warning(
                "the boundary log queue was removed and is made anew, nothing is lost",
                metadata: ["path": "\(configuration.path)", "batches": "\(stored.batches)"])
            return fresh
        } catch {
            if displaced == nil {
                logger.error(
                    "the boundary log queue was removed and cannot be made anew",
                    metadata: ["path": "\(configuration.path)", "reason": "\(error)"])
            }
            displaced = BoundaryError(
                .storage(0), "boundary log queue \(configuration.path) was removed and cannot be made anew: \(error)")
            return database
        }
    }

    private mutating func recovered() {
        guard let failure else { return }
        self.failure = nil
        logger.notice("the boundary log queue is written again", metadata: ["attempts": "\(failure.attempts)"])
    }

    private mutating func failed(_ error: BoundaryError) {
        var error = error
        switch error.code {
        case .damaged, .newerSchema:
            do {
                try replace(error)
                return
            } catch let next as BoundaryError {
                error = next
            } catch let next {
                error = BoundaryError(.storage(0), "\(next)")
            }
        case .diskFull:
            makeRoom()
        case .storage where database?.isInPlace == true: database = nil
        default: break
        }
        let attempts = (failure?.attempts ?? 0) + 1
        if failure?.error != error {
            logger.error(
                "the boundary log queue cannot be written; batches wait in memory",
                metadata: ["reason": "\(error)", "retry": "with back-off"])
        }
        let wait = min(configuration.retry.longest, configuration.retry.first * (1 << min(attempts - 1, 16)))
        failure = (attempts, clock.now() + wait, error)
    }

    /// On a full disk: deletes what is done, which may still fit. Where it does not, because the disk is
    /// full of this very file and its log, the file goes as soon as all of it is done.
    private mutating func makeRoom() {
        guard let database, let done = doneThrough else { return }
        if let removed = try? database.write(doneThrough: done, chunk: nil) {
            doneThrough = nil
            stored = (stored.batches - removed.batches, stored.bytes - removed.bytes, stored.logs - removed.logs)
            inHand = max(0, inHand - removed.batches)
            try? database.truncateLog()
        } else if (try? database.count(after: done)) == 0 {
            (stored, inHand) = ((0, 0, 0), 0)
            self.database = nil
            // The log first: the file alone is an earlier state, all of it done.
            unlink(configuration.path + "-wal")
            unlink(configuration.path)
        }
        let stored = stored
        queue.withState { $0.stored = (stored.batches, stored.bytes) }
    }

    /// Sets a file aside that is of no use, and begins a new one with what can still be read.
    private mutating func replace(_ error: BoundaryError) throws {
        // Where the file was opened, what it held is known.
        let known = database != nil ? stored : nil
        database = nil
        let (fresh, aside) = try QueueFiles.replace(
            configuration.path, reason: error.code == .newerSchema ? "newer" : "corrupt", wall: clock.wallSeconds(),
            pages: configuration.maximumPages)
        let beyond = try fresh.count(after: readThrough)
        var lost: (batches: Int, logs: Int) = (0, 0)
        try adopt(fresh)
        if let known {
            lost = (max(0, known.batches - inHand - beyond), max(0, known.logs - stored.logs))
            metrics.dropped(.queueDamaged, batches: lost.batches, logs: lost.batches > 0 ? lost.logs : 0)
        }
        inHand = min(inHand, stored.batches - beyond)
        queue.withState { $0.status.setAside = aside.path }
        logger.error(
            "the boundary log queue was set aside and a new one begun",
            metadata: [
                "reason": "\(error)", "kept_as": "\(aside.path)", "saved": "\(aside.saved)",
                "lost": "\(known == nil ? "not known" : String(lost.batches))",
            ])
    }
}
