/// What becomes of the worker's answers, of its silence and of its end.
extension WatchCore {
    /// What became of the watches. What is new was not seen before, and neither was what happened in it.
    mutating func watched(_ root: String, _ added: FileWatches.Added, now: Duration) {
        guard repositories[root] != nil else { return }
        repositories[root]?.isListing = false
        if let problem = added.problem {
            if repositories[root]?.watch != .polling(problem) {
                actions.append(.log("polled every 30 s: \(problem)", root: root))
            }
            repositories[root]?.watch = .polling(problem)
            actions.append(.unwatch(root: root))
            return
        }
        repositories[root]?.failedListings = 0
        let first = repositories[root]?.watch != .active
        repositories[root]?.watch = .active
        if added.isLost { repositories[root]?.listAll = true }
        repositories[root]?.newDirectories.formUnion(first ? [] : added.directories)
        if first || added.hasGit || added.isLost {
            repositories[root]?.monitor.trigger(.everything, now: now)
        } else if !added.directories.isEmpty {
            repositories[root]?.monitor.trigger(.changed(added.directories), now: now)
        }
    }

    /// The directories could not be listed or watched. What there is stays watched; the next scan asks again.
    private mutating func listingFailed(_ root: String, now: Duration) {
        guard let repository = repositories[root] else { return }
        repositories[root]?.isListing = false
        repositories[root]?.listAll = true
        repositories[root]?.failedListings += 1
        // What keeps failing is left to the poll.
        guard repository.failedListings < GitWatchLimits.listingRetries else { return }
        repositories[root]?.monitor.trigger(.everything, now: now)
    }

    mutating func workerStarted() { worker.started() }

    /// - Parameter crashed: by a signal of its own making.
    mutating func workerEnded(crashed: Bool, orderly: Bool, now: Duration) {
        let loss = worker.ended(crashed: crashed, orderly: orderly, now: now)
        if !orderly { crashCount += 1 }
        for root in loss.blamed { repositories[root]?.crashes += 1 }
        reclaim(loss, now: now)
    }

    /// What a worker owed at its end is asked of the next one.
    private mutating func reclaim(_ loss: WorkerSupervisor.Loss, now: Duration) {
        for lost in loss.owed {
            switch lost.kind {
            case .scan: repositories[lost.root]?.monitor.lost(at: loss.restart)
            case .directories, .watch: listingFailed(lost.root, now: now)
            case .resolve: if resolutions[lost.root] == .asked { deferred.append(lost) }
            case .forget: break
            }
        }
    }

    /// Ends the worker, from which nothing is wanted any more.
    mutating func stopWorker(now: Duration) {
        actions.append(.stopWorker)
        reclaim(worker.ended(crashed: false, orderly: true, now: now), now: now)
    }

    /// What is overdue is asked again much later; a worker that is stuck with it is replaced for the others' sake.
    mutating func giveUpOverdue(now: Duration) {
        let late = worker.isUp ? worker.overdue(now: now) : []
        guard !late.isEmpty else { return }
        worker.giveUp(late)
        for request in late { hung(request, now: now) }
        // A thread each is all that more of them cost.
        if dyingWorkers < GitWatchLimits.dyingWorkers { stopWorker(now: now) }
    }

    private mutating func hung(_ request: WorkerRequest, now: Duration) {
        if request.kind == .resolve {
            let path = request.root
            guard resolutions[path] == .asked else { return }
            let hang = Hang(after: hungPaths[path], times, now: now)
            resolutions[path] = .hung
            askAgain.remove(path)
            hungPaths[path] = hang
            actions.append(.log(searchProblem(path), root: path))
            guard hang.count == 1 else { return }
            for session in connections.values.map(\.session) {
                guard let chat = session.chat, chatPaths[chat]?.contains(path) == true else { continue }
                actions.append(.fail(session, searchProblem(path)))
            }
        } else {
            hung(
                request.root, "no answer within \(times.scan.components.seconds) s; its file system may hang", now: now)
        }
    }

    func searchProblem(_ path: String) -> String {
        "\(path): its repository was not found within \(times.resolve.components.seconds) s; its file system may hang"
    }

    /// - Parameter text: the error that the clients get, the first time.
    private mutating func hung(_ root: String, _ text: String, now: Duration) {
        guard let repository = repositories[root] else { return }
        let hang = Hang(after: repository.hang, times, now: now)
        repositories[root]?.hang = hang
        repositories[root]?.isListing = false
        repositories[root]?.listAll = true
        repositories[root]?.monitor.hung(until: hang.retryAt)
        say(root, text)
    }

    /// Sends the clients that watch a repository what is wrong with it, once.
    private mutating func say(_ root: String, _ text: String) {
        guard repositories[root]?.saidErrors.insert(text).inserted == true else { return }
        actions.append(.log(text, root: root))
        for session in watchers(of: root) { actions.append(.fail(session, "\(root): \(text)")) }
    }

    mutating func received(_ reply: WorkerReply, now: Duration) {
        guard let request = worker.answered(reply, now: now) else { return }
        take(request, reply, now: now)
        sendFirstMessages(now: now)
    }

    private mutating func take(_ request: WorkerRequest, _ reply: WorkerReply, now: Duration) {
        switch (request.kind, reply.body) {
        case (.resolve, .resolved(let root)):
            guard resolutions[request.root] == .asked else { return }
            resolutions[request.root] = root.map { .root($0) } ?? Resolution.none
            hungPaths[request.root] = nil
            let isStale = askAgain.remove(request.root) != nil
            guard let root else {
                if isStale { renew(request.root, now: now) }
                return
            }
            let isNew = repositories[root] == nil
            ensure(root, now: now)
            if !isNew, let entry = repositories[root]?.entry {
                offer(root, entry)
            }
        case (.scan, let body): scanned(request.root, body, now: now)
        case (.directories, .directories(let targets, let complete)):
            guard repositories[request.root] != nil else { return }
            if complete {
                actions.append(.watch(root: request.root, targets, adding: !request.paths.isEmpty))
            } else {
                let problem = "more than \(GitWatchLimits.watchesPerRepository) directories"
                watched(request.root, FileWatches.Added(problem: problem), now: now)
            }
        case (.watch, .watched(let descriptors)):
            actions.append(.added(root: request.root, wanted: request.paths, descriptors: descriptors))
        case (.directories, _), (.watch, _): listingFailed(request.root, now: now)
        default: break
        }
    }

    private mutating func scanned(_ root: String, _ body: WorkerReply.Body, now: Duration) {
        guard repositories[root] != nil else { return }
        scanCount += 1
        repositories[root]?.scans += 1
        let before = repositories[root]?.hang
        repositories[root]?.hang = nil
        var entry: EncodedEntry?
        switch body {
        case .snapshot(let snapshot, let byCLI):
            let fresh = EncodedEntry(root: root, snapshot)
            entry = fresh
            repositories[root]?.entry = fresh
            repositories[root]?.byCLI = byCLI
            if repositories[root]?.layout != snapshot.layout { repositories[root]?.listAll = true }
            repositories[root]?.layout = snapshot.layout
            repositories[root]?.saidErrors = []
        case .unchanged:
            entry = repositories[root]?.entry
            repositories[root]?.saidErrors = []
        case .failed(let error):
            switch error.code {
            case .gone:
                guard repositories[root]?.monitor.isTriggered == true else { return removed(root, now: now) }
                // Something happened since this scan began, such as another repository put in its place, which
                // no scan would look for once it is forgotten: the scan that is due finds out.
                repositories[root]?.monitor.finished()
                return
            case .transient: repositories[root]?.monitor.failedInPassing(now: now)
            case .hung:
                repositories[root]?.hang = before
                return hung(root, error.description, now: now)
            case .needsCLI, .refused, .failed: say(root, error.description)
            }
        case .started, .resolved, .directories, .watched: break
        }
        repositories[root]?.monitor.finished()
        offer(root, entry)
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
        offer(root, EncodedEntry(removed: root))
        for (path, resolution) in resolutions where resolution == .root(root) { resolutions[path] = Resolution.none }
        drop(root, now: now)
    }
}
