/// What bounds the git watcher, and what happens at each bound (docs/contracts/git-watch.md#limits).
public enum GitWatchLimits {
    /// A larger file is not diffed: headers and one line.
    static let fileBytes = 2 << 20
    /// Diffs of files that are longer than the first, the longest first, become headers and one line where all of a
    /// repository's are longer than the second; where that is not enough, they are one line together.
    static let fileDiffBytes = 256 << 10
    static let totalDiffBytes = 3 << 20
    /// Untracked files beyond this are counted, not diffed.
    static let untrackedFiles = 10_000
    /// Bytes of one encoded message; repositories that don't fit go into the next.
    static let messageBytes = 3_670_016
    /// Bytes of a repository's diff in such a message; the same happens as beyond ``totalDiffBytes``.
    static let encodedDiffBytes = messageBytes - 64 << 10
    /// Paths kept of a chat, and chats kept; the least recently touched goes first.
    package static let pathsPerChat = 1_000
    package static let chats = 1_000
    /// Bytes of a path that is remembered; the kernel takes no longer one.
    static let pathBytes = 4_096
    /// Directories watched in one repository; one that needs more is polled.
    static let watchesPerRepository = 8_192
    /// How often in a row a repository is scanned anew because its directories could not be listed or watched; then
    /// the poll tries again.
    static let listingRetries = 5
    /// Changed paths kept until the next scan; with more, everything is scanned.
    static let changedPaths = 1_000
    /// Bytes of one frame between daemon and worker; a longer one ends the worker.
    static let frameBytes = 16 << 20
    /// Bytes of a git CLI answer other than a diff; a longer one fails the scan.
    static let listingBytes = 64 << 20
    /// Untracked files with attributes that only git understands, each of which costs a process;
    /// the others are taken as they are.
    static let filesByCLI = 200
    /// Submodules that are looked into; with more, only their commits are compared.
    static let submodules = 200
    /// Submodules in one index; more fail the scan.
    static let listedLinks = 10_000
    /// Repositories watched at once; paths in further ones are not followed, and the client gets an error.
    static let repositories = 200
    /// Connections at once; the next gets 429.
    static let connections = 100
    /// Error messages that wait for a slow client; later ones are dropped.
    static let waitingErrors = 20
    /// Memory of the worker and of each git below it: private writable bytes, and address space.
    static let workerDataBytes: UInt64 = 1 << 30
    static let workerAddressSpace: UInt64 = 16 << 30
    /// Bytes of packs that libgit2 keeps mapped.
    static let mappedPackBytes = 512 << 20
    /// How long thread and worker outlive the last connection.
    public static let idleTime = Duration.seconds(60)
    /// A scan, or the search for a path's repository, that takes longer is ended together with the worker, and
    /// tried again after a wait that doubles from the first to the longest.
    static let scanTime = Duration.seconds(120)
    static let resolveTime = Duration.seconds(30)
    static let firstRetry = Duration.seconds(30)
    static let longestRetry = Duration.seconds(600)
    /// What takes longer is named in /healthz.
    static let noticeTime = Duration.seconds(30)
    /// Workers that were killed and have not ended, being stuck in the kernel; with more, none is replaced.
    static let dyingWorkers = 8
    /// How long the end of the watcher waits for workers that were killed.
    static let endTime = Duration.seconds(3)
    /// How long the first message of a connection waits for all that the chat is known to watch.
    static let firstMessageTime = Duration.seconds(5)
    /// A git process that takes longer is ended.
    static let gitSeconds = 60
    /// Threads of the worker that scan, and how many more there are while those hang; the same for those that
    /// look for the repositories of paths.
    static let scanThreads = 2
    static let resolveThreads = 1
    static let spareThreads = 6
    /// Milliseconds that a scan waits for a thread before there is one more: many at once are no reason for it.
    static let scanPatience = 1_000
    /// Repositories that the worker keeps open; the least recently scanned is closed first.
    static let openRepositories = 32
    /// Ends of the worker within a minute after which it is started again only a minute later.
    static let crashes = 20
    /// Crashes that one repository may cause in libgit2 before the git CLI gets it.
    static let crashesPerRepository = 1
}
