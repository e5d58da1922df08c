/// Every bound of the file service, in one place.
public enum FilesLimits {
    /// Pieces of disk work done at once; more wait in order.
    public static let atOnce = 16
    /// Calls that hang; further ones are refused.
    public static let hanging = 48
    /// Calls that hang on one mount; further ones for it are refused.
    public static let hangingOnOne = 16
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
    /// Bytes of a new file after which their way to the disk begins.
    public static let writebackBytes = 8 << 20
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
    /// Bytes of an archive before it is compressed, headers included, and entries in it; both ways.
    public static let archiveBytes = 1 << 30
    public static let archiveEntries = 100_000
    /// Bytes of the names of an archive's directories, which are kept until their times can be set.
    public static let archiveDirectoryNameBytes = 16 << 20
    /// Written paths that a chat's path store is told of; one in each directory.
    public static let archiveReportedPaths = 1_000
    /// Bytes of an extended header of a tar archive; it holds one name.
    public static let tarMetadataBytes = 1 << 20
    /// What bundle-files collects at most: files, the last bytes of each, and bytes of the archive without the manifest.
    public static let bundleFiles = 10_000
    public static let bundleBytesPerFile = 10 << 20
    public static let bundleBytes = 100 << 20
    /// Bytes of the JSON body of bundle-files.
    public static let bundleBodyBytes = 64 << 10
    /// How long a bundle may take; what is left then is only named.
    public static let bundleTime = Duration.seconds(300)
    /// Clients that watch files at once; the next gets 429.
    public static let watchers = 64
    /// How long changes are gathered before the client is told.
    public static let watchInterval = Duration.milliseconds(100)
    /// Changed paths that a client is told of at once; with more it is told to look anew. And those in one message.
    public static let watchEvents = 20_000
    public static let watchEventsPerMessage = 1_000
    /// Milliseconds after which a call no longer counts among ``atOnce``.
    public static let slowMilliseconds = 3_000
    /// Bytes of a `.gitignore` file; a larger one is not read.
    static let ignoreFileBytes = 256 << 10
    /// Rules that hold in one directory; further ones are left out, those of the innermost files first.
    static let ignoreRules = 20_000
    /// Characters of the patterns (not of plain names and endings) among ``ignoreRules``; further ones are left out.
    static let ignorePlaces = 32_768
    /// Searches under way at once; more wait in order.
    public static let searchesAtOnce = 4
    /// Threads that work at one search at once.
    static let searchThreads = 2
    /// Milliseconds of a search; what was found until then is the answer.
    public static let searchMilliseconds = 10_000
    /// Milliseconds after which a search lets other disk work through.
    static let searchPieceMilliseconds = 25
    /// Directories below the root of a search, one in the other; what lies deeper is left out.
    public static let searchDepth = 256
    /// Bytes of directory entries that are read at once.
    static let entryBytes = 8 << 10
    /// Paths that glob answers with if nothing is said, and at most.
    static let globDefault = 1_000
    static let globMaximum = 10_000
    /// Matches that grep answers with if nothing is said, and at most.
    static let grepDefault = 200
    static let grepMaximum = 10_000
    /// Lines before and after a match, at most.
    static let grepContext = 20
    /// Bytes of a file that grep looks into; larger ones are left out.
    public static let grepFileBytes = 2 << 20
    /// Bytes of a line that grep shows.
    static let grepLineBytes = 1_024
    /// Bytes of the lines in an answer of grep, but for the last match's.
    static let grepAnswerBytes = 4 << 20
    /// Bytes of memory that a grep counts for: the answer, while it is sorted and while it is sent, and the files, those
    /// whose search is interrupted among them.
    static let grepBytes = 2 * grepAnswerBytes + 2 * searchThreads * grepFileBytes
    /// Bytes at the beginning of a file in which a NUL makes it binary.
    static let binaryBytes = 8 << 10
}
