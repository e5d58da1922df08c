/// Why a scan gave no snapshot. Equal when the codes are.
struct ScanError: Error, Sendable, Equatable, CustomStringConvertible {
    enum Code: UInt8, Sendable {
        /// The work tree or its git directory is no more.
        case gone = 1
        /// libgit2 cannot read the repository right; the git CLI may.
        case needsCLI
        /// Worth another try at once: a lock, a half-written index, a HEAD that is being repaired.
        case transient
        /// The repository belongs to another user, or needs a git that is not there: said once.
        case refused
        /// Anything else.
        case failed
        /// git did not come back.
        case hung
    }

    var code: Code
    var description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }

    static func == (a: ScanError, b: ScanError) -> Bool { a.code == b.code }
}
