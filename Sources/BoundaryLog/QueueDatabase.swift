import AgentCore
import CPlatform
import Glibc

/// A batch as the queue holds it.
public struct QueuedBatch: Sendable, Equatable {
    /// Its place in the order of arrival; rises, with gaps.
    public var id: Int64
    /// Log lines in it.
    public var logs: Int
    /// The encoded `ReportBoundaryLogsRequest`.
    public var payload: [UInt8]
}

/// The queue's file: one table, in order of arrival. For one thread; every call may block.
///
/// WAL with `synchronous = FULL`: a commit that returned survives a power cut. The lock is exclusive
/// for as long as the file is open, so no second daemon can read from the same queue, and SQLite needs no
/// shared-memory file that could be removed.
final class QueueDatabase {
    /// What the file holds.
    struct Totals: Equatable {
        var batches = 0
        var bytes = 0
        var logs = 0
        var firstID: Int64 = 0
        var lastID: Int64 = 0
    }

    /// One step for each version of the schema, the first for an empty file.
    static let migrations = [
        """
        CREATE TABLE batches (
            id INTEGER PRIMARY KEY, received INTEGER NOT NULL, logs INTEGER NOT NULL, payload BLOB NOT NULL
        )
        """
    ]

    let path: String
    private let database: SQLite
    private let identity: (device: dev_t, inode: ino_t)
    private let insert: Statement
    private let select: Statement
    private let remove: Statement
    private let measure: Statement
    private let first: Statement

    /// Opens the file, makes it when missing (0600), checks it and brings its schema up to date.
    /// - Throws: `BoundaryError`; `damaged` and `newerSchema` mean that the file itself is unusable.
    init(path: String, pages: Int = BoundaryLimits.filePages, migrations: [String] = QueueDatabase.migrations) throws {
        self.path = path
        try Self.create(path)
        let database = try SQLite(path: path)
        self.database = database
        guard !database.isReadOnly else {
            throw BoundaryError(.readOnly, "boundary log queue \(path) cannot be written; check its file system")
        }
        // Before anything is read: the lock is taken with the first page.
        try database.execute("PRAGMA locking_mode = EXCLUSIVE")
        try database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        let mode = try database.text("PRAGMA journal_mode = WAL")
        guard mode == "wal" else {
            throw BoundaryError(.storage(0), "boundary log queue \(path): journal mode is \(mode), WAL was asked for")
        }
        try database.execute("PRAGMA synchronous = FULL")
        // A checkpoint of 8 MiB at a time; the log's file is cut back to twice that.
        try database.execute("PRAGMA wal_autocheckpoint = 2048")
        try database.execute("PRAGMA journal_size_limit = 16777216")
        try database.execute("PRAGMA max_page_count = \(pages)")
        try database.execute("PRAGMA cache_size = -2048")
        let verdict = try database.text("PRAGMA quick_check(1)")
        guard verdict == "ok" else {
            throw BoundaryError(.damaged, "boundary log queue \(path) is damaged: \(verdict)")
        }
        try Self.migrate(database, migrations)
        insert = try database.prepare("INSERT INTO batches (id, received, logs, payload) VALUES (?, ?, ?, ?)")
        select = try database.prepare("SELECT id, logs, payload FROM batches WHERE id > ? ORDER BY id LIMIT ?")
        remove = try database.prepare("DELETE FROM batches WHERE id <= ?")
        measure = try database.prepare(
            "SELECT count(*), total(length(payload)), total(logs) FROM batches WHERE id <= ?")
        first = try database.prepare("SELECT received FROM batches ORDER BY id LIMIT 1")
        var info = stat()
        guard lstat(path, &info) == 0 else { throw BoundaryError(.storage(0), "boundary log queue \(path) is gone") }
        identity = (info.st_dev, info.st_ino)
    }

    /// Makes an empty file (0600) before SQLite does, which would use the umask; SQLite gives its log the mode of this
    /// file. Refuses foreign files at any of the paths: SQLite would block for ever in a named pipe, and write to
    /// another user's file.
    private static func create(_ path: String) throws {
        for file in ["", "-wal", "-shm", "-journal"].map({ path + $0 }) where !OwnFile.isFree(file) {
            do {
                // Fails with an error that says what is there.
                close(try OwnFile.open(file, O_RDONLY))
            } catch {
                throw BoundaryError(.storage(0), "boundary log queue: \(error)")
            }
        }
        let descriptor = wa_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        if descriptor >= 0 {
            close(descriptor)
        } else if -descriptor != EEXIST {
            throw storage(-descriptor, path)
        }
    }

    static func storage(_ number: Int32, _ path: String) -> BoundaryError {
        let code: BoundaryError.Code =
            switch number {
            case ENOSPC, EDQUOT: .diskFull
            case EROFS, EACCES, EPERM: .readOnly
            default: .storage(0)
            }
        return BoundaryError(code, "boundary log queue \(path): \(errnoText(number))")
    }

    private static func migrate(_ database: SQLite, _ steps: [String]) throws {
        let version = Int(try database.number("PRAGMA user_version"))
        guard version <= steps.count, version >= 0 else {
            throw BoundaryError(
                .newerSchema,
                "boundary log queue \(database.path) has schema \(version); this version knows \(steps.count)")
        }
        for (index, step) in steps.enumerated().dropFirst(version) {
            try database.transaction {
                try database.execute(step)
                try database.execute("PRAGMA user_version = \(index + 1)")
            }
        }
    }

    /// Whether the file is still at its path. SQLite goes on with a file that was removed, whose content is lost when
    /// the process ends.
    var isInPlace: Bool {
        var info = stat()
        return lstat(path, &info) == 0 && (info.st_dev, info.st_ino) == identity
    }

    func totals() throws -> Totals {
        var totals = try measured(through: .max)
        totals.firstID = try database.number("SELECT min(id) FROM batches")
        totals.lastID = try database.number("SELECT max(id) FROM batches")
        return totals
    }

    /// Seconds since 1970 of the oldest batch; nil when there is none.
    func oldest() throws -> Int64? {
        defer { first.reset() }
        return try first.step() ? first.integer(0) : nil
    }

    /// Removes batches that are done and adds new ones, all or nothing.
    /// - Returns: what was removed.
    func write(doneThrough: Int64?, chunk: Chunk?) throws -> Totals {
        var removed = Totals()
        try database.transaction {
            if let doneThrough {
                removed = try measured(through: doneThrough)
                try remove.bind(1, doneThrough)
                try remove.run()
            }
            guard let chunk else { return }
            try chunk.forEach { id, entry, payload in
                defer { insert.reset() }
                try insert.bind(1, id)
                try insert.bind(2, chunk.received)
                try insert.bind(3, Int64(entry.logs))
                try insert.bind(4, payload)
                while try insert.step() {}
            }
        }
        return removed
    }

    /// The next batches in order, at least one when there is one.
    func read(after id: Int64, batches: Int, bytes: Int) throws -> [QueuedBatch] {
        defer { select.reset() }
        try select.bind(1, id)
        try select.bind(2, Int64(batches))
        var (found, size): ([QueuedBatch], Int) = ([], 0)
        while size < bytes, try select.step() {
            let batch = QueuedBatch(
                id: select.integer(0), logs: Int(clamping: select.integer(1)), payload: select.bytes(2))
            size += batch.payload.count
            found.append(batch)
        }
        return found
    }

    /// Copies everything to a new file at the path, from which the open file was removed.
    func copyToPath() throws {
        var info = stat()
        guard lstat(path, &info) != 0, errno == ENOENT else {
            throw BoundaryError(.storage(0), "boundary log queue \(path): another file is in its place")
        }
        // A log that is left would be taken for the new file's.
        for suffix in ["-wal", "-journal", "-shm"] { unlink(path + suffix) }
        try Self.create(path)
        do {
            try database.execute("VACUUM INTO '\(path.replacing("'", with: "''"))'")
        } catch {
            unlink(path)
            throw error
        }
    }

    /// Gives the pages of deleted batches back to the file system.
    func shrink() throws { try database.execute("PRAGMA incremental_vacuum") }

    var filePages: Int { get throws { Int(try database.number("PRAGMA page_count")) } }

    /// Moves the log into the file and truncates it, which frees space on a full disk.
    func truncateLog() throws { _ = try database.number("PRAGMA wal_checkpoint(TRUNCATE)") }

    func count(after id: Int64) throws -> Int {
        Int(try database.number("SELECT count(*) FROM batches WHERE id > \(id)"))
    }

    /// Gives all batches new ids after this one, in the same order.
    /// - Returns: the last of them.
    func moveBehind(_ id: Int64) throws -> Int64 {
        try database.transaction {
            // In two steps, so that no new id collides with an old one.
            try database.execute("UPDATE batches SET id = -id")
            try database.execute(
                """
                UPDATE batches SET id = \(id) + place FROM
                (SELECT id AS old, row_number() OVER (ORDER BY id DESC) AS place FROM batches) WHERE id = old
                """)
        }
        return try database.number("SELECT max(id) FROM batches")
    }

    private func measured(through id: Int64) throws -> Totals {
        defer { measure.reset() }
        try measure.bind(1, id)
        guard try measure.step() else { return Totals() }
        return Totals(
            batches: Int(clamping: measure.integer(0)), bytes: Int(clamping: measure.integer(1)),
            logs: Int(clamping: measure.integer(2)))
    }
}
