internal import CSQLite

/// SQLite on this machine.
package enum SQLiteLibrary {
    /// Why it cannot be used; nil when it can. Leaves it unloaded: the queue loads it when there is something to keep.
    package static var problem: String? {
        var why = [CChar](repeating: 0, count: 256)
        return sq_is_usable(&why, why.count) ? nil : text(why)
    }

    /// - Throws: ``BoundaryError`` when it is not installed.
    fileprivate static func load() throws(BoundaryError) -> sq_api {
        var why = [CChar](repeating: 0, count: 256)
        guard let loaded = sq_load(&why, why.count) else {
            throw BoundaryError(.noLibrary, "\(text(why)); install libsqlite3-0")
        }
        return loaded.pointee
    }

    private static func text(_ why: [CChar]) -> String {
        let reason = String(decoding: why.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return "SQLite cannot be loaded: \(reason)"
    }
}

/// A connection of SQLite's C API. For one thread.
final class SQLite {
    let path: String
    fileprivate let api: sq_api
    private let handle: OpaquePointer

    init(path: String) throws {
        let api = try SQLiteLibrary.load()
        self.api = api
        self.path = path
        var handle: OpaquePointer?
        // NOMUTEX: one thread uses it. NOFOLLOW: a link that another user put there is not followed.
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW
        let rc = api.sqlite3_open_v2(path, &handle, flags, nil)
        guard rc == SQLITE_OK, let handle else {
            let extended = handle.map { api.sqlite3_extended_errcode($0) } ?? rc
            _ = api.sqlite3_close_v2(handle)
            throw BoundaryError.sqlite(extended, path, "cannot be opened")
        }
        _ = api.sqlite3_extended_result_codes(handle, 1)
        self.handle = handle
    }

    deinit { _ = api.sqlite3_close_v2(handle) }

    /// The file could be opened for reading only.
    var isReadOnly: Bool { api.sqlite3_db_readonly(handle, "main") == 1 }

    /// Rows that the last statement changed.
    var changes: Int { Int(api.sqlite3_changes64(handle)) }

    func execute(_ sql: String) throws {
        try check(api.sqlite3_exec(handle, sql, nil, nil, nil), sql)
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
        try check(api.sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil), sql)
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

    deinit { _ = database.api.sqlite3_finalize(handle) }

    func bind(_ index: Int32, _ value: Int64) throws {
        try database.check(database.api.sqlite3_bind_int64(handle, index, value), "bind")
    }

    /// The bytes must stay valid until ``reset()``.
    func bind(_ index: Int32, _ bytes: UnsafeRawBufferPointer) throws {
        // SQLite would bind NULL for a null pointer.
        let rc =
            bytes.isEmpty
            ? database.api.sqlite3_bind_zeroblob(handle, index, 0)
            : database.api.sqlite3_bind_blob(handle, index, bytes.baseAddress, Int32(clamping: bytes.count), nil)
        try database.check(rc, "bind")
    }

    /// - Returns: whether there is a row.
    func step() throws -> Bool {
        switch database.api.sqlite3_step(handle) {
        case SQLITE_ROW: return true
        case SQLITE_DONE: return false
        case let rc:
            let sql = database.api.sqlite3_sql(handle).map { String(cString: $0) } ?? ""
            throw BoundaryError.sqlite(rc, database.path, sql)
        }
    }

    /// Steps to the end and resets.
    func run() throws {
        defer { reset() }
        while try step() {}
    }

    /// Makes it ready for the next use, also after an error.
    func reset() {
        _ = database.api.sqlite3_reset(handle)
        _ = database.api.sqlite3_clear_bindings(handle)
    }

    func integer(_ column: Int32) -> Int64 { database.api.sqlite3_column_int64(handle, column) }

    func text(_ column: Int32) -> String {
        database.api.sqlite3_column_text(handle, column).map { String(cString: $0) } ?? ""
    }

    func bytes(_ column: Int32) -> [UInt8] {
        let count = Int(database.api.sqlite3_column_bytes(handle, column))
        guard count > 0, let start = database.api.sqlite3_column_blob(handle, column) else { return [] }
        return Array(UnsafeRawBufferPointer(start: start, count: count))
    }
}
