import AgentCore
import Synchronization

/// What was last sent of each repository.
struct SentDigests {
    private var digests: [String: Int] = [:]

    mutating func body(_ request: WorkerRequest, _ snapshot: RepositorySnapshot, byCLI: Bool) -> WorkerReply.Body {
        var hasher = Hasher()
        hasher.combine(snapshot.branch)
        hasher.combine(snapshot.origin)
        hasher.combine(snapshot.layout)
        snapshot.diff.withUnsafeBytes { hasher.combine(bytes: $0) }
        let digest = hasher.finalize()
        if request.hasSnapshot, digests[request.root] == digest { return .unchanged(byCLI: byCLI) }
        digests[request.root] = digest
        return .snapshot(snapshot, byCLI: byCLI)
    }

    mutating func forget(_ root: String) { digests[root] = nil }
}

/// Answers requests on threads of pools. What hangs holds its own thread and repository; once others have waited
/// for a while there is another thread for them.
final class Scanner: Sendable {
    // libgit2's objects are of one thread at a time. A repository is: its requests are answered one after the other.
    private struct Open: @unchecked Sendable { let repository: PlainRepository }
    // Its functions may be called from any thread.
    private struct Library: @unchecked Sendable { let libgit: Libgit }

    private struct State {
        /// Requests behind the one that is under way, by repository.
        var waiting: [String: [WorkerRequest]] = [:]
        var library: Library?
        var isLoaded = false
        var open: [String: Open] = [:]
        /// Most recent last.
        var order: [String] = []
        /// Those that libgit2 cannot read.
        var byCLI: Set<String> = []
        var sent = SentDigests()
        /// The daemon's, which reads the events.
        var inotify: CInt?

        mutating func close(_ root: String) {
            open[root] = nil
            order.removeAll { $0 == root }
        }

        mutating func keep(_ fresh: Open, _ root: String) {
            byCLI.remove(root)
            if order.count >= GitWatchLimits.openRepositories, let oldest = order.first { close(oldest) }
            open[root] = fresh
            order.append(root)
        }
    }

    private let state = Mutex(State())
    private let scans = BlockingPool(
        "git-scan", threads: GitWatchLimits.scanThreads, reserve: GitWatchLimits.spareThreads,
        patience: GitWatchLimits.scanPatience)
    private let searches = BlockingPool(
        "git-resolve", threads: GitWatchLimits.resolveThreads, reserve: GitWatchLimits.spareThreads)
    private let command = GitCommand(environment: EnvironmentBuilder.current())
    private let out: WorkerOutput

    init(_ out: WorkerOutput) { self.out = out }

    /// Watches are added with this from now on; one for as long as the process runs.
    func useInotify(_ descriptor: CInt) { state.withLock { $0.inotify = descriptor } }

    /// Returns at once.
    func add(_ request: WorkerRequest) {
        if request.kind == .resolve {
            return searches.submit { [self] _ in
                out.send(request.id, .started(inLibgit: false))
                out.send(request.id, .resolved(Discovery.root(of: request.root)))
            }
        }
        let isFirst = state.withLock { state in
            defer { state.waiting[request.root, default: []].append(request) }
            return state.waiting[request.root] == nil
        }
        if isFirst { scans.submit { [self] _ in work(request.root) } }
    }

    /// Answers what there is for a repository, until there is nothing.
    private func work(_ root: String) {
        while true {
            let next = state.withLock { state -> WorkerRequest? in
                guard state.waiting[root]?.isEmpty == false else {
                    state.waiting[root] = nil
                    return nil
                }
                return state.waiting[root]?.removeFirst()
            }
            guard let next else { return }
            answer(next)
        }
    }

    private func answer(_ request: WorkerRequest) {
        let root = request.root
        if request.kind == .forget {
            return state.withLock { state in
                state.close(root)
                state.byCLI.remove(root)
                state.sent.forget(root)
            }
        }
        out.send(request.id, .started(inLibgit: false))
        do {
            switch request.kind {
            case .directories: out.send(request.id, try directories(request))
            case .watch: out.send(request.id, try watch(request))
            default: out.send(request.id, try scan(request))
            }
        } catch let error as ScanError {
            state.withLock { $0.close(root) }
            out.send(request.id, .failed(error))
        } catch {
            state.withLock { $0.close(root) }
            out.send(request.id, .failed(ScanError(.failed, "\(error)")))
        }
    }

    private func scan(_ request: WorkerRequest) throws -> WorkerReply.Body {
        let root = request.root
        let tree = try Discovery.scannable(root)
        var why = ScanError(.needsCLI, "libgit2 cannot read it")
        if !request.avoidsLibgit, request.full || !state.withLock({ $0.byCLI.contains(root) }) {
            do {
                let snapshot = try plain(request, tree)
                return state.withLock { $0.sent.body(request, snapshot, byCLI: false) }
            } catch let error as ScanError where error.code == .needsCLI { why = error }
        }
        state.withLock { state in
            state.close(root)
            state.byCLI.insert(root)
        }
        guard command.path != nil else {
            throw ScanError(.refused, "\(root) needs the git program, which is not installed (\(why.description))")
        }
        out.send(request.id, .started(inLibgit: false))
        let snapshot = try CLIRepository(command: command, tree: tree).snapshot()
        return state.withLock { $0.sent.body(request, snapshot, byCLI: true) }
    }

    /// By libgit2.
    private func plain(_ request: WorkerRequest, _ tree: WorkTree) throws -> RepositorySnapshot {
        // git knows what safe.directory says.
        guard Discovery.isOwn(tree) else { throw ScanError(.needsCLI, "it belongs to another user") }
        let (library, open) = state.withLock { state in
            if !state.isLoaded {
                state.isLoaded = true
                state.library = Libgit.load().library.map { Library(libgit: $0) }
            }
            return (state.library, state.open[request.root])
        }
        guard let library else { throw ScanError(.needsCLI, "there is no libgit2") }
        out.send(request.id, .started(inLibgit: true))
        if let repository = open?.repository, !request.full, repository.tree == tree,
            try repository.update(request.paths)
        {
            return try repository.snapshot()
        }
        state.withLock { $0.close(request.root) }
        let fresh = Open(repository: try PlainRepository(library.libgit, tree, command: command))
        state.withLock { $0.keep(fresh, request.root) }
        return try fresh.repository.snapshot()
    }

    private func directories(_ request: WorkerRequest) throws -> WorkerReply.Body {
        let limit = GitWatchLimits.watchesPerRepository
        let targets: [WatchTarget]
        if let repository = state.withLock({ $0.open[request.root] })?.repository {
            out.send(request.id, .started(inLibgit: true))
            targets = try repository.targets(below: request.paths, limit: limit)
        } else {
            let tree = try Discovery.scannable(request.root)
            targets = try CLIRepository(command: command, tree: tree).targets(below: request.paths, limit: limit)
        }
        return .directories(targets, complete: targets.count <= limit)
    }

    private func watch(_ request: WorkerRequest) throws -> WorkerReply.Body {
        guard let inotify = state.withLock({ $0.inotify }) else { throw ScanError(.failed, "no inotify") }
        return .watched(FileWatches.add(request.paths, request.root, inotify: inotify))
    }
}
