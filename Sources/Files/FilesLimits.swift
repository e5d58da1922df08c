/// Every bound of the file service, in one place.
public enum FilesLimits {
    /// Pieces of disk work done at once; more wait in order.
    public static let atOnce = 16
    /// Further threads for calls that hang.
    public static let hanging = 48
    /// Bytes of files and transfers that requests hold in memory at once; more wait in order.
    public static let bytesInFlight = 64 << 20
    /// Bytes of a file that is edited.
    public static let editBytes = 64 << 20
    /// Lines that the answer names for one edit at most.
    public static let editMatchLines = 1_000
    /// Bytes of a file that is searched for lines with another number of a character when an edit doesn't match.
    public static let editHintBytes = 4 << 20
    /// Lines of a search that are compared with those of the file for that.
    public static let editHintLines = 32
    /// Bytes of the JSON body of edit-files.
    public static let editBodyBytes = 16 << 20
    /// Bytes of one step of a transfer.
    public static let chunkBytes = 256 << 10
    /// Bytes of a file that says it is empty and is not, as those of /proc.
    public static let unsizedBytes = 16 << 20
    /// Bytes of an answer of read-file-lines, whatever the client allows.
    public static let lineAnswerBytes = 8 << 20
    /// Entries of a directory that is listed.
    public static let listEntries = 1_000_000
    /// Symbolic links followed to resolve a path (Linux follows as many).
    public static let links = 40
    /// Milliseconds that a call may take before its file system counts as one that does not answer.
    public static let hangingMilliseconds = 10_000
    /// Milliseconds after which a call no longer counts among ``atOnce``.
    public static let slowMilliseconds = 3_000
    /// Bytes of a `.gitignore` file; a larger one is not read.
    static let ignoreFileBytes = 256 << 10
    /// Rules that hold in one directory; further ones are left out, those of the innermost files first.
    static let ignoreRules = 20_000
    /// Characters of the patterns (not of plain names and endings) among ``ignoreRules``; further ones are left out.
    static let ignorePlaces = 32_768
}
