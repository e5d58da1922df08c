import FoundationEssentials

/// The whole of the watcher's decisions, without I/O: what happened goes in with its time, what to do comes out.
struct WatchCore {
    enum Action {
        /// To the worker, which is started when there is none.
        case send(WorkerRequest)
        case stopWorker
        /// Watch these for the repository, and nothing else unless `adding`.
        case watch(root: String, [WatchTarget], adding: Bool)
        case unwatch(root: String)
        /// The worker added watches.
        case added(root: String, wanted: [GitPath], descriptors: [Int32])
        /// What the session is to be shown, all in one message where that fits; none after a scan that gave none.
        case offer(WatchSession, [EncodedEntry])
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
        /// Listings in a row that failed.
        var failedListings = 0
        /// ``RepositorySnapshot/layout`` of the last scan.
        var layout: UInt32?
        var crashes = 0
        var saidErrors: Set<String> = []
        var scans = 0
        var byCLI = false
        /// Its file system did not answer when it was last asked.
        var hang: Hang?
    }

    enum Resolution: Equatable {
        case asked
        case root(String)
        case none
        /// Its file system did not answer.
        case hung
    }

    /// A connection.
    struct Connection {
        var session: WatchSession
        /// Until then its first message waits for everything that the chat is known to watch; nil after it.
        var firstBy: Duration?
        /// Something was scanned meanwhile.
        var hasScanned = false
    }

    // The other half of this type, what becomes of the worker's answers, is in WatchCore+Answers.swift.
    var connections: [ObjectIdentifier: Connection] = [:]
    var chatPaths: [UUID: Set<String>] = [:]
    var resolutions: [String: Resolution] = [:]
    /// Paths of which news came while their answer, perhaps of the time before, was on its way.
    var askAgain: Set<String> = []
    /// Paths whose file system did not answer when it was last asked.
    var hungPaths: [String: Hang] = [:]
    var repositories: [String: Repository] = [:]
    var worker: WorkerSupervisor
    /// Workers that were killed and have not ended.
    var dyingWorkers = 0
    var actions: [Action] = []
    var deferred: [WorkerRequest] = []
    private var idleSince: Duration = .zero
    /// When the worker last had something to do.
    private var lastUse: Duration = .zero
    var scanCount = 0
    var crashCount = 0
    let times: AnswerTimes
    private let firstMessageTime: Duration
    private let pollInterval: Duration
    private let idleTime: Duration

    init(
        idleTime: Duration = GitWatchLimits.idleTime, times: AnswerTimes = AnswerTimes(),
        firstMessageTime: Duration = GitWatchLimits.firstMessageTime,
        pollInterval: Duration = RepositoryMonitor.pollInterval
    ) {
        self.idleTime = idleTime
        self.times = times
        self.firstMessageTime = firstMessageTime
        self.pollInterval = pollInterval
        worker = WorkerSupervisor(times: times)
    }

    /// What there is to do since the last call.
    mutating func takeActions() -> [Action] {
        defer { actions = [] }
        return actions
    }

    // MARK: Sessions and paths

    mutating func attach(_ session: WatchSession, paths: Set<String>, now: Duration) {
        let id = ObjectIdentifier(session)
        connections[id] = Connection(session: session)
        guard let chat = session.chat else { return }
        connections[id]?.firstBy = now + firstMessageTime
        chatPaths[chat, default: []].formUnion(paths)
        for path in paths.sorted() {
            resolve(path, now: now)
            if hungPaths[path] != nil { actions.append(.fail(session, searchProblem(path))) }
        }
        for root in roots(of: chat) {
            guard let repository = repositories[root] else { continue }
            for text in repository.saidErrors.sorted() { actions.append(.fail(session, "\(root): \(text)")) }
            // What file events don't show may be half a minute old.
            if case .polling = repository.watch, repository.entry != nil {
                repositories[root]?.monitor.trigger(.now, now: now)
            }
        }
        sendFirstMessages(now: now)
    }

    mutating func detach(_ session: WatchSession, now: Duration) {
        guard connections.removeValue(forKey: ObjectIdentifier(session)) != nil else { return }
        if connections.isEmpty { idleSince = now }
        guard let chat = session.chat, !connections.values.contains(where: { $0.session.chat == chat }) else { return }
        chatPaths[chat] = nil
        let known = Set(chatPaths.values.joined())
        resolutions = resolutions.filter { known.contains($0.key) }
        hungPaths = hungPaths.filter { known.contains($0.key) }
        askAgain.formIntersection(known)
        dropUnwatched(now: now)
    }

    /// Sends what connections wait for since they came, once it is complete or has taken too long, so that what
    /// was known before comes in one message.
    mutating func sendFirstMessages(now: Duration) {
        for (id, connection) in connections {
            guard let by = connection.firstBy, let chat = connection.session.chat else { continue }
            let roots = roots(of: chat).sorted()
            let isSearching = (chatPaths[chat] ?? []).contains { resolutions[$0] == .asked && hungPaths[$0] == nil }
            let isScanning = roots.contains { root in
                repositories[root].map { $0.scans == 0 && $0.entry == nil && $0.hang == nil } ?? false
            }
            guard now >= by || !isSearching && !isScanning else { continue }
            connections[id]?.firstBy = nil
            let entries = roots.compactMap { repositories[$0]?.entry }
            if !entries.isEmpty || connection.hasScanned { actions.append(.offer(connection.session, entries)) }
        }
    }

    /// Shows a repository's state, nil after a scan that gave none, to those that watch it.
    mutating func offer(_ root: String, _ entry: EncodedEntry?) {
        for (id, connection) in connections where watches(connection.session, root) {
            if connection.firstBy != nil {
                connections[id]?.hasScanned = true
            } else {
                actions.append(.offer(connection.session, entry.map { [$0] } ?? []))
            }
        }
    }

    private func watches(_ session: WatchSession, _ root: String) -> Bool {
        session.chat.map { roots(of: $0).contains(root) } ?? false
    }

    /// Tool calls touched paths.
    mutating func touched(_ paths: [String], chats: [UUID], now: Duration) {
        for chat in chats
        where chatPaths[chat] != nil || connections.values.contains(where: { $0.session.chat == chat }) {
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
    mutating func renew(_ path: String, now: Duration) {
        switch resolutions[path] {
        case .asked?: askAgain.insert(path)
        case Resolution.none?: resolutions[path] = nil
        case .root?, .hung?, nil: break
        }
        resolve(path, now: now)
    }

    private mutating func resolve(_ path: String, now: Duration) {
        if case .root(let root) = resolutions[path] { return ensure(root, now: now) }
        guard resolutions[path] == nil else { return }
        resolutions[path] = .asked
        request(WorkerRequest(id: 0, kind: .resolve, root: path), now: now)
    }

    func roots(of chat: UUID) -> Set<String> {
        Set(
            (chatPaths[chat] ?? []).compactMap {
                if case .root(let root) = resolutions[$0] { root } else { nil }
            })
    }

    func watchers(of root: String) -> [WatchSession] {
        connections.values.map(\.session).filter { watches($0, root) }
    }

    mutating func ensure(_ root: String, now: Duration) {
        guard repositories[root] == nil else { return }
        guard repositories.count < GitWatchLimits.repositories else {
            for session in watchers(of: root) {
                actions.append(
                    .fail(session, "\(root) is not watched: \(GitWatchLimits.repositories) repositories are"))
            }
            return
        }
        repositories[root] = Repository(monitor: RepositoryMonitor(now: now, pollInterval: pollInterval))
    }

    private mutating func dropUnwatched(now: Duration) {
        let wanted = Set(chatPaths.keys.flatMap { roots(of: $0) })
        for root in repositories.keys where !wanted.contains(root) { drop(root, now: now) }
    }

    mutating func drop(_ root: String, now: Duration) {
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

    // MARK: The worker

    mutating func request(_ request: WorkerRequest, now: Duration) {
        guard let admitted = worker.admit(request, now: now) else {
            if request.kind != .forget { deferred.append(request) }
            return
        }
        lastUse = now
        actions.append(.send(admitted))
    }

    // MARK: Time

    /// Does what is due.
    mutating func tick(now: Duration) {
        giveUpOverdue(now: now)
        if worker.isUp || worker.notBefore <= now {
            let waiting = deferred
            deferred = []
            for one in waiting { request(one, now: now) }
            for root in repositories.keys.sorted() where repositories[root]?.hang == nil { scan(root, now: now) }
            // Last in order, what may hang again.
            if mayHang { retryHung(now: now) }
        }
        sendFirstMessages(now: now)
        if worker.isUp, isIdle(now: now) || isWorkerIdle(now: now) { stopWorker(now: now) }
    }

    private mutating func scan(_ root: String, now: Duration) {
        guard let scan = repositories[root]?.monitor.start(now: now), let repository = repositories[root] else {
            return
        }
        request(
            WorkerRequest(
                id: 0, kind: .scan, root: root, full: scan.full,
                avoidsLibgit: repository.crashes >= GitWatchLimits.crashesPerRepository,
                hasSnapshot: repository.entry != nil, paths: scan.paths), now: now)
    }

    private mutating func retryHung(now: Duration) {
        for (path, hang) in hungPaths.sorted(by: { $0.key < $1.key })
        where resolutions[path] == .hung && hang.retryAt <= now {
            resolutions[path] = nil
            resolve(path, now: now)
        }
        for root in repositories.keys.sorted() where repositories[root]?.hang != nil { scan(root, now: now) }
    }

    /// Whether another worker may come to hang.
    private var mayHang: Bool { dyingWorkers < GitWatchLimits.dyingWorkers }

    private func isWorkerIdle(now: Duration) -> Bool {
        repositories.isEmpty && worker.owed.isEmpty && now >= lastUse + idleTime
    }

    private func isIdle(now: Duration) -> Bool {
        connections.isEmpty && now >= idleSince + idleTime
    }

    /// Nothing left to do: the thread may end.
    func isFinished(now: Duration) -> Bool { isIdle(now: now) && !worker.isUp }

    /// When ``tick(now:)`` is due; nil: not before something happens.
    func deadline(now: Duration) -> Duration? {
        var all = repositories.values.filter { mayHang || $0.hang == nil }.compactMap(\.monitor.deadline)
        if mayHang { all += hungPaths.filter { resolutions[$0.key] == .hung }.map(\.value.retryAt) }
        if !worker.isUp { all = all.map { max($0, worker.notBefore) } }
        all += connections.values.compactMap(\.firstBy)
        if let owed = worker.deadline(now: now) { all.append(owed) }
        if !deferred.isEmpty { all.append(worker.notBefore) }
        if connections.isEmpty { all.append(idleSince + idleTime) }
        if worker.isUp, repositories.isEmpty, worker.owed.isEmpty { all.append(lastUse + idleTime) }
        return all.min()
    }

    /// Has the worker add watches.
    mutating func addWatches(_ root: String, _ wanted: [WatchTarget], now: Duration) {
        request(WorkerRequest(id: 0, kind: .watch, root: root, paths: wanted.map(\.encoded)), now: now)
    }

    /// Watches that the worker is adding.
    var watchesUnderWay: Int {
        worker.owed.values.filter { $0.request.kind == .watch }.reduce(0) { $0 + $1.request.paths.count }
    }

    // MARK: What others may look at

    /// Repositories and paths whose file systems do not answer.
    func hanging(now: Duration) -> [String] {
        worker.slow(now: now).union(hungPaths.keys).union(repositories.filter { $0.value.hang != nil }.keys).sorted()
    }

    /// Repositories that are polled, and why.
    var polled: [(root: String, why: String)] {
        repositories.compactMap { root, repository in
            if case .polling(let why) = repository.watch { (root, why) } else { nil }
        }.sorted { $0.root < $1.root }
    }
}
