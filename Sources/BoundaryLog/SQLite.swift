internal import CSQLite

/// A connection of SQLite's C API. For one thread.
final class SQLite {
    let path: String
    private let handle: OpaquePointer

    init(path: String) throws {
        self.path = path
        var handle: OpaquePointer?
        // NOMUTEX: one thread uses it. NOFOLLOW: a link that another user put there is not followed.
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW
        let rc = sqlite3_open_v2(path, &handle, flags, nil)
        guard rc == SQLITE_OK, let handle else {
            let extended = handle.map { sqlite3_extended_errcode($0) } ?? rc
            sqlite3_close_v2(handle)
            throw BoundaryError.sqlite(extended, path, "cannot be opened")
        }
        sqlite3_extended_result_codes(handle, 1)
        self.handle = handle
    }

    deinit { sqlite3_close_v2(handle) }

    /// The file could be opened for reading only.
    var isReadOnly: Bool { sqlite3_db_readonly(handle, "main") == 1 }

    /// Rows that the last statement changed.
    var changes: Int { Int(sqlite3_changes64(handle)) }

    func execute(_ sql: String) throws {
        try check(sqlite3_exec(handle, sql, nil, nil, nil), sql)
    }

    /// Runs the body in a transaction.
    func transaction(_ body: () throws -> Void) throws {
        try execute("BEGIN IMMEDIATE")
        do {
            try body()
            try execute("COMMIT")
        } catch {
            // Fails when SQLite has rolled back by itself.
            try? execute("ROLLBACK")
            throw error
        }
    }

    func prepare(_ sql: String) throws -> Statement {
        var statement: OpaquePointer?
        try check(sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil), sql)
        guard let statement else { throw BoundaryError.sqlite(SQLITE_MISUSE, path, sql) }
        return Statement(statement, self)
    }

    /// The first column of the first row, as a number; 0 without one.
    func number(_ sql: String) throws -> Int64 {
        let statement = try prepare(sql)
        defer { statement.reset() }
        return try statement.step() ? statement.integer(0) : 0
    }

    /// The first column of the first row, as text.
    func text(_ sql: String) throws -> String {
        let statement = try prepare(sql)
        defer { statement.reset() }
        return try statement.step() ? statement.text(0) : ""
    }

    fileprivate func check(_ rc: Int32, _ what: String) throws {
        guard rc == SQLITE_OK else { throw BoundaryError.sqlite(rc, path, what) }
    }
}

/// A prepared statement. It keeps its connection open.
final class Statement {
    private let handle: OpaquePointer
    private let database: SQLite

    fileprivate init(_ handle: OpaquePointer, _ database: SQLite) {
        self.handle = handle
        self.database = database
    }

    deinit { sqlite3_finalize(handle) }

    func bind(_ index: Int32, _ value: Int64) throws {
        try database.check(sqlite3_bind_int64(handle, index, value), "bind")
    }

    /// The bytes must stay valid until ``reset()``.
    func bind(_ index: Int32, _ bytes: UnsafeRawBufferPointer) throws {
        // SQLite would bind NULL for a null pointer.
        let rc =
            bytes.isEmpty
            ? sqlite3_bind_zeroblob(handle, index, 0)
            : sqlite3_bind_blob(handle, index, bytes.baseAddress, Int32(clamping: bytes.count), nil)
        try database.check(rc, "bind")
    }

    /// - Returns: whether there is a row.
    func step() throws -> Bool {
        switch sqlite3_step(handle) {
        case SQLITE_ROW: return true
        case SQLITE_DONE: return false
        case let rc: throw BoundaryError.sqlite(rc, database.path, String(cString: sqlite3_sql(handle)))
        }
    }

    /// Steps to the end and resets.
    func run() throws {
        defer { reset() }
        while try step() {}
    }

    /// Makes it ready for the next use, also after an error.
    func reset() {
        sqlite3_reset(handle)
        sqlite3_clear_bindings(handle)
    }

    func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(handle, column) }

    func text(_ column: Int32) -> String { sqlite3_column_text(handle, column).map { String(cString: $0) } ?? "" }

    func bytes(_ column: Int32) -> [UInt8] {
        let count = Int(sqlite3_column_bytes(handle, column))
        guard count > 0, let start = sqlite3_column_blob(handle, column) else { return [] }
        return Array(UnsafeRawBufferPointer(start: start, count: count))
    }
}
