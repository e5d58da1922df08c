import CPlatform
import Glibc

/// What went wrong in the shared kernel. Two errors are equal when their codes are.
public struct CoreError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of failure; callers branch on it.
    public enum Code: Sendable, Equatable {
        /// A system call failed with this errno.
        case system(Int32)
        /// Another process serves the socket path.
        case socketInUse
        /// Something that is not a socket, or not ours, is in the way.
        case pathOccupied
        /// A path or value is outside its documented range.
        case invalid
        /// The kernel refuses a thread, and there is none to wait for.
        case noThread
    }

    public var code: Code
    /// One sentence for a person: what, which path or value, what to try.
    public var message: String
    /// The failure below this one, where there was one.
    public var cause: (any Error)?

    public init(_ code: Code, _ message: String, cause: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
    }

    /// - Parameters:
    ///   - errno: positive errno, or the negative return value of a `wa_…` call.
    ///   - what: what was being done, naming its path.
    public static func system(_ errno: Int32, _ what: String) -> CoreError {
        let number = errno < 0 ? -errno : errno
        return CoreError(.system(number), "\(what): \(errnoText(number))")
    }

    public static func == (a: CoreError, b: CoreError) -> Bool { a.code == b.code }

    public var description: String {
        cause.map { "\(message): \($0)" } ?? message
    }
}

/// The C library's text for an errno ("No such file or directory").
public func errnoText(_ number: Int32) -> String {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 128) { area in
        guard let base = area.baseAddress else { return "errno \(number)" }
        wa_strerror(number, base, area.count)
        return String(cString: base)
    }
}
