import AgentCore
import Glibc

/// Sets an unusable queue file aside, where an operator can inspect it, and copies the batches that can still be read
/// into a new file.
enum QueueFiles {
    /// The result of setting a file aside.
    struct SetAside: Sendable {
        var path: String
        /// Batches copied from it into the new file.
        var recovered = 0
    }

    /// Moves the file and its log aside and opens a new one with the batches that could be read.
    /// - Parameter reason: `corrupt` or `newer`, a part of the new name.
    static func replace(_ path: String, reason: String, wall: Int64, pages: Int) throws -> (QueueDatabase, SetAside) {
        let aside = try setAside(path, reason: reason)
        let fresh = try QueueDatabase(path: path, pages: pages)
        var result = SetAside(path: aside)
        if reason == "corrupt" { result.recovered = recover(aside, into: fresh, wall: wall) }
        return (fresh, result)
    }

    /// Renames to `queue.db.corrupt-1` and so on, the log too, so that SQLite's own tools find it.
    private static func setAside(_ path: String, reason: String) throws -> String {
        let parent = parentDirectory(of: path)
        let prefix = String(path.dropFirst(parent == "/" ? 1 : parent.utf8.count + 1)) + ".\(reason)-"
        let kept = directoryEntries(parent).compactMap { name in
            name.hasPrefix(prefix) ? Int(name.dropFirst(prefix.count)) : nil
        }.sorted()
        for number in kept.dropLast(BoundaryLimits.setAside - 1) {
            for suffix in ["", "-wal"] { unlink("\(parent)/\(prefix)\(number)\(suffix)") }
        }
        let aside = "\(parent)/\(prefix)\((kept.last ?? 0) + 1)"
        guard rename(path, aside) == 0 else { throw QueueDatabase.storage(errno, path) }
        rename(path + "-wal", aside + "-wal")
        for suffix in ["-journal", "-shm"] { unlink(path + suffix) }
        return aside
    }

    /// Copies rows from the front until one cannot be read, and then from the back. Rows whose payload is no valid
    /// request are skipped.
    /// - Returns: how many were copied.
    private static func recover(_ path: String, into fresh: QueueDatabase, wall: Int64) -> Int {
        guard let database = try? SQLite(path: path) else { return 0 }
        // Leaves its log as it is.
        try? database.execute("PRAGMA locking_mode = EXCLUSIVE")
        try? database.execute("PRAGMA query_only = ON")
        var chunk = Chunk(received: wall)
        var ids: [Int64] = []
        func take(_ order: String, _ limit: Int64) -> [(Int64, QueuedBatch)] {
            var rows: [(Int64, QueuedBatch)] = []
            var bytes = 0
            guard let rest = try? database.prepare("SELECT id, logs, payload FROM batches ORDER BY id \(order)") else {
                return rows
            }
            defer { rest.reset() }
            // An error ends this direction.
            while (try? rest.step()) == true {
                let batch = QueuedBatch(
                    id: rest.integer(0), logs: Int(clamping: rest.integer(1)), payload: rest.bytes(2))
                if order == "DESC", batch.id <= limit { break }
                guard rows.count < BoundaryLimits.queueBatches, bytes + batch.payload.count <= BoundaryLimits.queueBytes
                else { break }
                bytes += batch.payload.count
                let valid = batch.payload.withUnsafeBytes { try? BatchScanner.scan(.request, $0) }
                if batch.id > 0, batch.id < BoundaryLimits.largestID, case .batch(_, let summary) = valid,
                    summary.logs == batch.logs
                {
                    rows.append((batch.id, batch))
                }
            }
            return rows
        }
        let front = take("ASC", 0)
        let back = take("DESC", front.last?.0 ?? 0)
        var recovered = 0
        for (id, batch) in front + back.reversed() where id > ids.last ?? 0 {
            // The ids of a chunk are consecutive.
            if let last = ids.last, id != last + 1 || chunk.bytes >= BoundaryLimits.chunkBytes {
                recovered += store(chunk, in: fresh)
                chunk = Chunk(received: wall)
            }
            if chunk.batches == 0 { chunk.firstID = id }
            batch.payload.withUnsafeBytes { chunk.append($0, [0..<$0.count], logs: batch.logs) }
            ids.append(id)
        }
        return recovered + store(chunk, in: fresh)
    }

    private static func store(_ chunk: Chunk, in database: QueueDatabase) -> Int {
        guard chunk.batches > 0, (try? database.write(doneThrough: nil, chunk: chunk)) != nil else { return 0 }
        return chunk.batches
    }
}
