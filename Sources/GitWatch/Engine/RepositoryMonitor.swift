/// When one repository is scanned (docs/contracts/git-watch.md#when-it-scans): at once when asked, 100 ms after a file
/// event, every 30 s, at most once a second; the last trigger is never lost. Knows no clock: the time is handed in.
struct RepositoryMonitor: Equatable {
    enum Trigger: Equatable {
        /// A person or a tool call wants to know now.
        case now
        /// The files changed.
        case changed([GitPath])
        /// HEAD, index or rules changed, or it is unknown what.
        case everything
    }

    /// What to look at.
    struct Scan: Equatable {
        var full: Bool
        var paths: [GitPath]
    }

    static let debounce = Duration.milliseconds(100)
    static let spacing = Duration.seconds(1)
    static let pollInterval = Duration.seconds(30)
    static let retryDelay = Duration.milliseconds(200)

    private var full = false
    private var paths: Set<GitPath> = []
    private var due: Duration?
    private var lastStart: Duration?
    private let pollInterval: Duration
    private var nextPoll: Duration
    private var current: Scan?
    private var retry: (at: Duration, scan: Scan)?
    private var hasRetried = false
    /// Nothing before this, whatever happens.
    private var notBefore: Duration = .zero

    static func == (a: Self, b: Self) -> Bool { a.due == b.due && a.current == b.current && a.nextPoll == b.nextPoll }

    /// A repository that appeared now.
    init(now: Duration, pollInterval: Duration = Self.pollInterval) {
        self.pollInterval = pollInterval
        nextPoll = now + pollInterval
        trigger(.now, now: now)
    }

    var isScanning: Bool { current != nil }

    /// Whether something happened since the last scan began.
    var isTriggered: Bool { due != nil }

    mutating func trigger(_ trigger: Trigger, now: Duration) {
        var earliest = now
        switch trigger {
        // Asked for by a client that may know of changes that file events don't show.
        case .now: full = true
        case .changed(let changed):
            earliest = now + Self.debounce
            if !full { paths.formUnion(changed) }
            if paths.count > GitWatchLimits.changedPaths { full = true }
        case .everything:
            earliest = now + Self.debounce
            full = true
        }
        if full { paths = [] }
        if let lastStart { earliest = max(earliest, lastStart + Self.spacing) }
        due = min(due ?? earliest, earliest)
    }

    /// The scan to start now, if any.
    mutating func start(now: Duration) -> Scan? {
        guard current == nil, notBefore <= now else { return nil }
        if let retry, retry.at <= now {
            self.retry = nil
            current = retry.scan
            return retry.scan
        }
        guard retry == nil else { return nil }
        if nextPoll <= now { trigger(.now, now: now) }
        guard let due, due <= now else { return nil }
        let scan = Scan(full: full, paths: paths.sorted { $0.lexicographicallyPrecedes($1) })
        (full, paths, self.due) = (false, [], nil)
        lastStart = now
        nextPoll = now + pollInterval
        hasRetried = false
        current = scan
        return scan
    }

    /// The scan gave an answer, whatever it was.
    mutating func finished() { current = nil }

    /// The scan met something that passes. It is tried once more, as the same scan, then left to the next.
    mutating func failedInPassing(now: Duration) {
        guard let scan = current else { return }
        current = nil
        guard !hasRetried else { return }
        hasRetried = true
        retry = (now + Self.retryDelay, scan)
    }

    /// The worker died over it: again when there is one.
    mutating func lost(at: Duration) {
        guard current != nil else { return }
        current = nil
        retry = (at, Scan(full: true, paths: []))
    }

    /// The scan did not come back: everything is looked at then, and nothing before.
    mutating func hung(until time: Duration) {
        current = nil
        retry = (time, Scan(full: true, paths: []))
        notBefore = time
    }

    /// When ``start(now:)`` is worth another call; nil while a scan runs.
    var deadline: Duration? {
        guard current == nil else { return nil }
        return max(retry?.at ?? min(due ?? nextPoll, nextPoll), notBefore)
    }
}
