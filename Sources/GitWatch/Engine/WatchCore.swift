import FoundationEssentials

/// The whole of the watcher's decisions, without I/O: what happened goes in with its time, what to do comes out.
struct WatchCore {
    enum Action {
        /// To the worker, which is started when there is none.
        case send(WorkerRequest)
        case stopWorker
        /// Watch these directories of the repository, and no others unless `adding`.
        case watch(root: String, directories: [GitPath], git: [String], adding: Bool)
        case unwatch(root: String)
        case offer(WatchSession, EncodedEntry?)
        case fail(WatchSession, String)
        case log(String, root: String)
    }

    enum WatchState: Equatable {
        case none, asked, active
        case polling(String)
    }

    struct Repository {
        var monitor: RepositoryMonitor
        var entry: EncodedEntry?
        var watch = WatchState.none
        /// Directories appeared since the last listing; empty with `listAll`.
        var newDirectories: Set<GitPath> = []
        var listAll = true
        var isListing = false
        var crashes = 0
        var saidErrors: Set<String> = []
        var scans = 0
        var byCLI = false
    }

    private enum Resolution: Equatable {
        case asked
        case root(String)
        case none
    }

    private var sessions: [ObjectIdentifier: WatchSession] = [:]
    private var chatPaths: [UUID: Set<String>] = [:]
    private var resolutions: [String: Resolution] = [:]
    /// Paths of which news came while their answer, perhaps of the time before, was on its way.
    private var askAgain: Set<String> = []
    private(set) var repositories: [String: Repository] = [:]
    private(set) var worker = WorkerSupervisor()
    private var actions: [Action] = []
    private var deferred: [WorkerRequest] = []
    private var idleSince: Duration = .zero
    /// When the worker last had something to do.
    private var lastUse: Duration = .zero
    private(set) var scanCount = 0
    private(set) var crashCount = 0
    private let idleTime: Duration

    init(idleTime: Duration = GitWatchLimits.idleTime) { self.idleTime = idleTime }

    /// What there is to do since the last call.
    mutating func takeActions() -> [Action] {
        defer { actions = [] }
        return actions
    }

    // MARK: Sessions and paths

    mutating func attach(_ session: WatchSession, paths: Set<String>, now: Duration) {
        sessions[ObjectIdentifier(session)] = session
        guard let chat = session.chat else { return }
        chatPaths[chat, default: []].formUnion(paths)
        for path in paths.sorted() { resolve(path, now: now) }
        for root in roots(of: chat) {
            guard let repository = repositories[root] else { continue }
            if let entry = repository.entry { actions.append(.offer(session, entry)) }
            for text in repository.saidErrors.sorted() { actions.append(.fail(session, "\(root): \(text)")) }
            // What file events don't show may be half a minute old.
            if case .polling = repository.watch, repository.entry != nil {
                repositories[root]?.monitor.trigger(.now, now: now)
            }
        }
    }

    mutating func detach(_ session: WatchSession, now: Duration) {
        guard sessions.removeValue(forKey: ObjectIdentifier(session)) != nil else { return }
        if sessions.isEmpty { idleSince = now }
        guard let chat = session.chat, !sessions.values.contains(where: { $0.chat == chat }) else { return }
        chatPaths[chat] = nil
        let known = Set(chatPaths.values.joined())
        resolutions = resolutions.filter { known.contains($0.key) }
        askAgain.formIntersection(known)
        dropUnwatched(now: now)
    }

    /// Tool calls touched paths.
    mutating func touched(_ paths: [String], chats: [UUID], now: Duration) {
        for chat in chats where chatPaths[chat] != nil || sessions.values.contains(where: { $0.chat == chat }) {
            chatPaths[chat, default: []].formUnion(paths)
            for path in paths {
                renew(path, now: now)
            }
            if let count = chatPaths[chat]?.count, count > 2 * GitWatchLimits.pathsPerChat {
                // The store has forgotten the rest by now.
                chatPaths[chat] = Set(paths)
            }
        }
    }

    /// A tool call ended, or a client asks: scan what the chats watch.
    mutating func refresh(chats: [UUID], now: Duration) {
        for chat in chats {
            for path in (chatPaths[chat] ?? []).sorted() { renew(path, now: now) }
            for root in roots(of: chat) { repositories[root]?.monitor.trigger(.now, now: now) }
        }
    }

    /// What was no repository may be one by now.
    private mutating func renew(_ path: String, now: Duration) {
        switch resolutions[path] {
        case .asked?: askAgain.insert(path)
        case Resolution.none?: resolutions[path] = nil
        case .root?, nil: break
        }
        resolve(path, now: now)
    }

    private mutating func resolve(_ path: String, now: Duration) {
        if case .root(let root) = resolutions[path] { return ensure(root, now: now) }
        guard resolutions[path] == nil else { return }
        resolutions[path] = .asked
        request(WorkerRequest(id: 0, kind: .resolve, root: path), now: now)
    }

    private func roots(of chat: UUID) -> Set<String> {
        Set(
            (chatPaths[chat] ?? []).compactMap {
                if case .root(let root) = resolutions[$0] { root } else { nil }
            })
    }

    private func watchers(of root: String) -> [WatchSession] {
        sessions.values.filter { session in session.chat.map { roots(of: $0).contains(root) } ?? false }
    }

    private mutating func ensure(_ root: String, now: Duration) {
        guard repositories[root] == nil else { return }
        guard repositories.count < GitWatchLimits.repositories else {
            for session in watchers(of: root) {
                actions.append(
                    .fail(session, "\(root) is not watched: \(GitWatchLimits.repositories) repositories are"))
            }
            return
        }
        repositories[root] = Repository(monitor: RepositoryMonitor(now: now))
    }

    private mutating func dropUnwatched(now: Duration) {
        let wanted = Set(chatPaths.keys.flatMap { roots(of: $0) })
        for root in repositories.keys where !wanted.contains(root) { drop(root, now: now) }
    }

    private mutating func drop(_ root: String, now: Duration) {
        let freed = repositories.removeValue(forKey: root)?.watch == .active
        actions.append(.unwatch(root: root))
        if freed {
            // Those that had to be polled may find room now.
            for (other, repository) in repositories {
                guard case .polling = repository.watch else { continue }
                repositories[other]?.watch = .none
                repositories[other]?.listAll = true
                repositories[other]?.monitor.trigger(.now, now: now)
            }
        }
        if worker.isUp { request(WorkerRequest(id: 0, kind: .forget, root: root), now: now) }
    }

    // MARK: File events

    /// - Parameter listAll: a watched directory moved, so that all are listed anew.
    mutating func changed(
        _ root: String, _ paths: [GitPath], newDirectories: [GitPath], listAll: Bool = false, now: Duration
    ) {
        guard repositories[root] != nil else { return }
        if listAll { repositories[root]?.listAll = true }
        repositories[root]?.newDirectories.formUnion(newDirectories)
        if paths.contains(where: { $0.name.elementsEqual(".gitignore".utf8) }) { repositories[root]?.listAll = true }
        repositories[root]?.monitor.trigger(.changed(paths), now: now)
    }

    /// HEAD, index or settings changed, events were lost, or a watched root moved.
    mutating func changedEverything(_ root: String, listAll: Bool, now: Duration) {
        if listAll { repositories[root]?.listAll = true }
        repositories[root]?.monitor.trigger(.everything, now: now)
    }

    /// What became of the watches.
    /// - Parameters:
    ///   - added: some are new, so that what happened before them was not seen.
    ///   - problem: why the repository can only be polled.
    mutating func watched(_ root: String, added: [GitPath], problem: String?, now: Duration) {
        guard repositories[root] != nil else { return }
        if let problem {
            if repositories[root]?.watch != .polling(problem) {
                actions.append(.log("polled every 30 s: \(problem)", root: root))
            }
            repositories[root]?.watch = .polling(problem)
            actions.append(.unwatch(root: root))
            return
        }
        let first = repositories[root]?.watch != .active
        repositories[root]?.watch = .active
        if first {
            repositories[root]?.monitor.trigger(.everything, now: now)
        } else if !added.isEmpty {
            repositories[root]?.newDirectories.formUnion(added)
            repositories[root]?.monitor.trigger(.changed(added), now: now)
        }
    }

    // MARK: The worker

    private mutating func request(_ request: WorkerRequest, now: Duration) {
        guard let admitted = worker.admit(request, now: now) else {
            if request.kind != .forget { deferred.append(request) }
            return
        }
        lastUse = now
        actions.append(.send(admitted))
    }

    mutating func workerStarted() { worker.started() }

    /// - Parameter crashed: by a signal of its own making.
    mutating func workerEnded(crashed: Bool, orderly: Bool, now: Duration) {
        let loss = worker.ended(crashed: crashed, orderly: orderly, now: now)
        if !orderly { crashCount += 1 }
        if let blamed = loss.blamed { repositories[blamed]?.crashes += 1 }
        for lost in loss.owed {
            switch lost.kind {
            case .scan: repositories[lost.root]?.monitor.lost(at: loss.restart)
            case .directories:
                repositories[lost.root]?.isListing = false
                repositories[lost.root]?.listAll = true
            case .resolve: if resolutions[lost.root] == .asked { deferred.append(lost) }
            case .forget: break
            }
        }
    }

    mutating func received(_ reply: WorkerReply, now: Duration) {
        guard let request = worker.answered(reply) else { return }
        switch (request.kind, reply.body) {
        case (.resolve, .resolved(let root)):
            guard resolutions[request.root] == .asked else { return }
            resolutions[request.root] = root.map { .root($0) } ?? Resolution.none
            let isStale = askAgain.remove(request.root) != nil
            guard let root else {
                if isStale { renew(request.root, now: now) }
                return
            }
            let isNew = repositories[root] == nil
            ensure(root, now: now)
            if !isNew, let entry = repositories[root]?.entry {
                for session in watchers(of: root) { actions.append(.offer(session, entry)) }
            }
        case (.scan, let body): scanned(request.root, body, now: now)
        case (.directories, .directories(let directories, let git, let complete)):
            repositories[request.root]?.isListing = false
            guard repositories[request.root] != nil else { return }
            if complete {
                actions.append(
                    .watch(root: request.root, directories: directories, git: git, adding: !request.paths.isEmpty))
            } else {
                watched(
                    request.root, added: [],
                    problem: "more than \(GitWatchLimits.watchesPerRepository) directories", now: now)
            }
        case (.directories, _): repositories[request.root]?.isListing = false
        default: break
        }
    }

    private mutating func scanned(_ root: String, _ body: WorkerReply.Body, now: Duration) {
        guard repositories[root] != nil else { return }
        scanCount += 1
        repositories[root]?.scans += 1
        var entry: EncodedEntry?
        switch body {
        case .snapshot(let snapshot, let byCLI):
            let fresh = EncodedEntry(root: root, snapshot)
            entry = fresh
            repositories[root]?.entry = fresh
            repositories[root]?.byCLI = byCLI
            repositories[root]?.saidErrors = []
        case .unchanged: entry = repositories[root]?.entry
        case .failed(let error):
            switch error.code {
            case .gone:
                guard repositories[root]?.monitor.isTriggered == true else { return removed(root, now: now) }
                // Something happened since this scan began, such as another repository put in its place, which
                // nobody would look for once it is forgotten: the scan that is due tells.
                repositories[root]?.monitor.finished()
                return
            case .transient: repositories[root]?.monitor.failedInPassing(now: now)
            case .needsCLI, .refused, .failed:
                if repositories[root]?.saidErrors.insert(error.description).inserted == true {
                    actions.append(.log(error.description, root: root))
                    for session in watchers(of: root) {
                        actions.append(.fail(session, "\(root): \(error.description)"))
                    }
                }
            }
        case .started, .resolved, .directories: break
        }
        repositories[root]?.monitor.finished()
        for session in watchers(of: root) { actions.append(.offer(session, entry)) }
        list(root, now: now)
    }

    /// Asks for the directories to watch, if that is due.
    private mutating func list(_ root: String, now: Duration) {
        guard var repository = repositories[root], !repository.isListing else { return }
        if case .polling = repository.watch { return }
        guard repository.listAll || !repository.newDirectories.isEmpty else { return }
        let paths = repository.listAll ? [] : repository.newDirectories.sorted { $0.lexicographicallyPrecedes($1) }
        repository.listAll = false
        repository.newDirectories = []
        repository.isListing = true
        if repository.watch == .none { repository.watch = .asked }
        repositories[root] = repository
        request(WorkerRequest(id: 0, kind: .directories, root: root, paths: paths), now: now)
    }

    private mutating func removed(_ root: String, now: Duration) {
        for session in watchers(of: root) { actions.append(.offer(session, EncodedEntry(removed: root))) }
        for (path, resolution) in resolutions where resolution == .root(root) { resolutions[path] = Resolution.none }
        drop(root, now: now)
    }

    // MARK: Time

    /// Does what is due.
    mutating func tick(now: Duration) {
        if !deferred.isEmpty, worker.isUp || worker.notBefore <= now {
            let waiting = deferred
            deferred = []
            for one in waiting { request(one, now: now) }
        }
        for root in repositories.keys.sorted() {
            guard worker.isUp || worker.notBefore <= now, let scan = repositories[root]?.monitor.start(now: now),
                let repository = repositories[root]
            else { continue }
            request(
                WorkerRequest(
                    id: 0, kind: .scan, root: root, full: scan.full,
                    avoidsLibgit: repository.crashes >= GitWatchLimits.crashesPerRepository,
                    hasSnapshot: repository.entry != nil, paths: scan.paths), now: now)
        }
        if worker.isUp, worker.isOverdue(now: now) || isIdle(now: now) || isWorkerIdle(now: now) {
            actions.append(.stopWorker)
        }
    }

    private func isWorkerIdle(now: Duration) -> Bool {
        repositories.isEmpty && worker.owed.isEmpty && now >= lastUse + idleTime
    }

    private func isIdle(now: Duration) -> Bool {
        sessions.isEmpty && now >= idleSince + idleTime
    }

    /// Nothing left to do: the thread may end.
    func isFinished(now: Duration) -> Bool { isIdle(now: now) && !worker.isUp }

    /// When ``tick(now:)`` is due; nil: not before something happens.
    func deadline(now: Duration) -> Duration? {
        var all = repositories.values.compactMap(\.monitor.deadline)
        if !worker.isUp { all = all.map { max($0, worker.notBefore) } }
        if let owed = worker.deadline { all.append(owed) }
        if !deferred.isEmpty { all.append(worker.notBefore) }
        if sessions.isEmpty { all.append(idleSince + idleTime) }
        if worker.isUp, repositories.isEmpty, worker.owed.isEmpty { all.append(lastUse + idleTime) }
        return all.min()
    }

    /// Repositories that are polled, and why.
    var polled: [(root: String, why: String)] {
        repositories.compactMap { root, repository in
            if case .polling(let why) = repository.watch { (root, why) } else { nil }
        }.sorted { $0.root < $1.root }
    }
}
