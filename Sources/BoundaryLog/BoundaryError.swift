internal import CSQLite

/// What went wrong in the boundary log proxy. Two errors are equal when their codes are.
public struct BoundaryError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of failure; callers branch on it.
    public enum Code: Sendable, Equatable {
        /// The queue's file is not what SQLite wrote.
        case damaged
        /// The queue's file was written by a later version of this program.
        case newerSchema
        /// No space is left for the queue.
        case diskFull
        /// The queue's file or its file system cannot be written.
        case readOnly
        /// Another process has the queue's file open.
        case inUse
        /// Any other failure of the disk, with SQLite's extended result code.
        case storage(Int32)
        /// The queue is closed, or its thread could not be started.
        case closed
        /// SQLite is not installed.
        case noLibrary
        /// A second `run` while one is under way.
        case running
    }

    public var code: Code
    /// One sentence for a person: what, which path, what to try.
    public var message: String

    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// - Parameter result: an extended result code of SQLite.
    static func sqlite(_ result: Int32, _ path: String, _ what: String) -> BoundaryError {
        let text = sq_text(result).map { String(cString: $0) } ?? "error \(result)"
        let code: Code
        switch result & 0xFF {
        case SQLITE_CORRUPT, SQLITE_NOTADB: code = .damaged
        case SQLITE_FULL: code = .diskFull
        case SQLITE_READONLY: code = .readOnly
        case SQLITE_BUSY, SQLITE_LOCKED: code = .inUse
        default: code = .storage(result)
        }
        return BoundaryError(code, "boundary log queue \(path): \(what): \(text)")
    }

    public static func == (a: BoundaryError, b: BoundaryError) -> Bool { a.code == b.code }

    public var description: String { message }
}
