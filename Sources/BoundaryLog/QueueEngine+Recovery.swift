import AgentCore
import Glibc
import Logging

/// Opening the file, and what the thread does when the file fails, is removed or is damaged.
extension QueueEngine {
    mutating func opened() throws -> QueueDatabase {
        if let database { return database }
        let parent = parentDirectory(of: configuration.path)
        do {
            try createDirectories(parent, mode: 0o700)
            try requirePrivateDirectory(parent)
            // SQLite's NOFOLLOW applies to every part of the path, so links in it are resolved here.
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
            logger.info("recovered queued batches of boundary logs", metadata: ["batches": "\(stored.batches)"])
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
            // A commit that failed may have reached the disk nevertheless.
            forget(through: totals.lastID)
        } else if readThrough > 0, totals.batches > 0 {
            // Newer batches were forwarded from memory before these could be read. These come next, under new ids, so
            // that acknowledging the newer ones does not delete them.
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

    /// Recreates the file with its content when it was removed. Where that fails, the open file, which has no name any
    /// more, stays in use.
    mutating func restored(_ database: QueueDatabase) -> QueueDatabase {
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
                "the boundary log queue was removed; recreated it, nothing is lost",
                metadata: ["path": "\(configuration.path)", "batches": "\(stored.batches)"])
            return fresh
        } catch {
            if displaced == nil {
                logger.error(
                    "the boundary log queue was removed and cannot be recreated",
                    metadata: ["path": "\(configuration.path)", "reason": "\(error)"])
            }
            displaced = BoundaryError(
                .storage(0), "boundary log queue \(configuration.path) was removed and cannot be recreated: \(error)")
            return database
        }
    }

    mutating func recovered() {
        guard let failure else { return }
        self.failure = nil
        logger.notice("the boundary log queue is written again", metadata: ["attempts": "\(failure.attempts)"])
    }

    mutating func failed(_ error: BoundaryError) {
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

    /// On a full disk: deletes batches that are done, if there is room for that. Otherwise the file is removed as soon
    /// as all its batches are done, since it and its log may be what fills the disk.
    private mutating func makeRoom() {
        guard let database, let done = doneThrough else { return }
        if let removed = try? database.write(doneThrough: done, chunk: nil) {
            doneThrough = nil
            stored = (stored.batches - removed.batches, stored.bytes - removed.bytes, stored.logs - removed.logs)
            unacknowledged = max(0, unacknowledged - removed.batches)
            try? database.truncateLog()
        } else if (try? database.count(after: done)) == 0 {
            (stored, unacknowledged) = ((0, 0, 0), 0)
            self.database = nil
            // The log first: the file without it is an earlier state, whose batches are all done.
            unlink(configuration.path + "-wal")
            unlink(configuration.path)
        }
        let stored = stored
        queue.withState { $0.stored = (stored.batches, stored.bytes) }
    }

    /// Sets an unusable file aside, and begins a new one with the batches that can still be read.
    private mutating func replace(_ error: BoundaryError) throws {
        // What the file held is known if it was opened.
        let known = database != nil ? stored : nil
        database = nil
        let (fresh, aside) = try QueueFiles.replace(
            configuration.path, reason: error.code == .newerSchema ? "newer" : "corrupt", wall: clock.wallSeconds(),
            pages: configuration.maximumPages)
        let beyond = try fresh.count(after: readThrough)
        var lost: (batches: Int, logs: Int) = (0, 0)
        try adopt(fresh)
        if let known {
            lost = (max(0, known.batches - unacknowledged - beyond), max(0, known.logs - stored.logs))
            metrics.dropped(.queueDamaged, batches: lost.batches, logs: lost.batches > 0 ? lost.logs : 0)
        }
        unacknowledged = min(unacknowledged, stored.batches - beyond)
        queue.withState { $0.status.setAside = aside.path }
        logger.error(
            "the boundary log queue was set aside and a new one begun",
            metadata: [
                "reason": "\(error)", "kept_as": "\(aside.path)", "recovered": "\(aside.recovered)",
                "lost": "\(known == nil ? "not known" : String(lost.batches))",
            ])
    }
}
