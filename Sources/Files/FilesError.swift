import AgentCore
import AgentHTTP
import Glibc

/// Why a file request failed. Equal when the codes are.
public struct FilesError: Error, Sendable, Equatable {
    public enum Code: Sendable, Equatable {
        /// There is no such file or directory.
        case notFound
        /// The file system's permissions refuse it.
        case denied
        /// The request makes no sense.
        case invalid
        /// A directory, where a file is due.
        case directory
        /// A FIFO, socket or device, where a file is due.
        case notRegular
        /// Something is in the way.
        case conflict
        /// The file is not, or no longer, the one that the client named by its entity tag.
        case changed
        /// More bytes than are worked on at once.
        case tooLarge
        /// The file system does not answer.
        case unavailable
        /// The machine failed: a full disk, a read-only mount, an input/output error.
        case failed
    }

    public var code: Code
    /// One sentence, part of the contract: `open /p: no such file or directory`.
    public var message: String
    /// The file's present entity tag, with ``Code/changed``.
    public var etag: String?

    public init(_ code: Code, _ message: String, etag: String? = nil) {
        self.code = code
        self.message = message
        self.etag = etag
    }

    public static func == (a: FilesError, b: FilesError) -> Bool { a.code == b.code }

    /// A failed system call: `OP PATH: REASON` (docs/contracts/files.md#errors).
    /// - Parameters:
    ///   - number: positive errno, or the negative return value of a `wa_…` call.
    ///   - operation: `open`, `rename` and so on.
    ///   - path: as the client wrote it.
    public static func system(_ number: CInt, _ operation: String, _ path: String) -> FilesError {
        let number = number < 0 ? -number : number
        // No name has a NUL in it: see `withName`.
        let code = number == EINVAL && path.utf8.contains(0) ? Code.invalid : code(of: number)
        return FilesError(code, "\(operation) \(path): \(reason(number))")
    }

    /// The C library's text in lower case.
    public static func reason(_ number: CInt) -> String { errnoText(number < 0 ? -number : number).lowercased() }

    private static func code(of number: CInt) -> Code {
        switch number {
        case ENOENT: .notFound
        case EACCES, EPERM: .denied
        case ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG: .invalid
        case EEXIST, ENOTEMPTY: .conflict
        default: .failed
        }
    }
}

extension FilesError.Code {
    /// Of several failures the highest status is answered (docs/contracts/files.md#edit-files).
    var status: Int {
        switch self {
        case .invalid, .directory, .notRegular: 400
        case .denied: 403
        case .notFound: 404
        case .conflict: 409
        case .changed: 412
        case .tooLarge: 413
        case .failed: 500
        case .unavailable: 503
        }
    }
}
