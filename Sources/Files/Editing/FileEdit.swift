/// One edit of a file, as a value.
struct FileEdit: Sendable, Equatable {
    enum Kind: Sendable, Equatable {
        /// Replaces a text that is found in the file.
        /// - Parameter all: everywhere; otherwise it has to be there exactly once.
        case replace(search: String, replace: String, all: Bool)
        /// Inserts lines.
        /// - Parameter afterLine: 0 for the top, at most the number of the file's lines.
        case insert(afterLine: Int, text: String)
    }

    var kind: Kind

    init(_ kind: Kind) { self.kind = kind }
}

/// How an edit matched.
struct EditMatch: Sendable, Equatable, Encodable {
    enum Pass: String, Sendable, Encodable {
        /// Byte for byte; an insertion, too.
        case exact
        /// Whole lines, blanks at their ends left out of account.
        case trailing
        /// Whole lines, white space at both ends left out of account.
        case indent
    }

    var pass: Pass
    /// The 1-based lines where the matches begin, in the text that the edit was made on; the first
    /// ``FilesLimits/editMatchLines``. For an insertion its first new line.
    var lines: [Int]
}

/// The file after all edits.
struct EditOutcome: Sendable, Equatable {
    var bytes: [UInt8]
    /// One for each edit.
    var matches: [EditMatch]
}

/// Why an edit can't be made; part of the contract.
struct EditFailure: Error, Sendable, Equatable {
    var text: String
    /// It is too large rather than wrong.
    var isTooLarge = false
}
