import AgentCore
import CPlatform
import Glibc
import Logging

/// The watcher's thread: it waits for events, the worker and the clock, and does what ``WatchCore`` decides.
final class GitEngine {
    private struct Worker {
        var process: StartedWorker
        var frames = FrameSplitter()
        var outgoing: [UInt8] = []
        let number: Int
        /// It has the inotify descriptor, to add watches with.
        var hasInotify = false
        /// Its answers end here; it is gone as soon as it is reaped.
        var isClosed = false
    }

    private let owner: GitWatcher
    private var core: WatchCore
    private var watches: FileWatches
    private var worker: Worker?
    /// Workers that were killed and have not been reaped: one that is stuck in the kernel ends when that lets it.
    private var dying: Set<Int> = []
    /// When the thread ends although there are such workers.
    private var endBy: Duration?
    private let origin = ContinuousClock.now
    private var stopping = false
    /// What the counters know of.
    private var published = (scans: 0, crashes: 0)

    init(_ owner: GitWatcher) {
        self.owner = owner
        core = WatchCore(
            idleTime: owner.configuration.idleTime, times: owner.configuration.answerTimes,
            firstMessageTime: owner.configuration.firstMessageTime, pollInterval: owner.configuration.pollInterval)
        watches = FileWatches(budget: owner.configuration.watchBudget)
    }

    private var now: Duration { origin.duration(to: .now) }

    func run() {
        while true {
            let events = owner.inbox.withLock { inbox in
                defer { inbox.events = [] }
                return inbox.events
            }
            for event in events { handle(event) }
            core.tick(now: now)
            perform()
            publish()
            if stopping || core.isFinished(now: now) {
                if finish() { return }
            } else {
                endBy = nil
            }
            wait()
        }
    }

    private func handle(_ event: GitWatcher.Event) {
        switch event {
        case .attach(let session):
            // Updates are posted from before this look on, so that none is lost.
            let paths = session.chat.map { chat in owner.inbox.withLock { $0.table.paths(of: chat) } } ?? []
            core.attach(session, paths: paths, now: now)
        case .detach(let session): core.detach(session, now: now)
        case .touched(let paths, let chats): core.touched(paths, chats: chats, now: now)
        case .refresh(let chats): core.refresh(chats: chats, now: now)
        case .workerExit(let number, let exit):
            if dying.remove(number) != nil { core.dyingWorkers = dying.count }
            guard let dead = worker, dead.number == number else { return }
            // What it still said counts.
            if !dead.isClosed { receive() }
            close(dead.process.socket)
            worker = nil
            var crashed = false
            if case .signalled(let signal) = exit { crashed = signal != SIGKILL && signal != SIGTERM }
            owner.logger.warning("the git worker ended", metadata: ["exit": "\(exit)"])
            core.workerEnded(crashed: crashed, orderly: false, now: now)
        case .stop: stopping = true
        }
    }

    private func perform() {
        while case let actions = core.takeActions(), !actions.isEmpty {
            for action in actions {
                switch action {
                case .send(let request): send(request)
                case .stopWorker: dismiss()
                case .watch(let root, let targets, let adding):
                    let plan = watches.plan(root, targets, adding: adding, reserved: core.watchesUnderWay)
                    if plan.problem != nil || plan.wanted.isEmpty {
                        core.watched(root, FileWatches.Added(problem: plan.problem), now: now)
                    } else {
                        core.addWatches(root, plan.wanted, now: now)
                    }
                case .added(let root, let wanted, let descriptors):
                    guard core.repositories[root] != nil else {
                        watches.discard(descriptors)
                        break
                    }
                    core.watched(root, watches.added(root, wanted, descriptors), now: now)
                case .unwatch(let root): watches.unwatch(root)
                case .offer(let session, let entries): session.offer(entries)
                case .fail(let session, let message): session.fail(message)
                case .log(let text, let root):
                    owner.logger.warning("git watch: \(text)", metadata: ["repo_root": "\(root)"])
                }
            }
        }
    }

    private func send(_ request: WorkerRequest) {
        // What a worker owed when it was ended would start the next one, which is ended in turn, without end.
        if stopping { return }
        if worker == nil, !startWorker() { return }
        worker?.outgoing += WorkerFrames.encode(request)
        flush()
    }

    /// Kills the worker and leaves it to be reaped. Its end is not waited for.
    private func dismiss() {
        guard let old = worker else { return }
        worker = nil
        old.process.kill()
        close(old.process.socket)
        dying.insert(old.number)
        core.dyingWorkers = dying.count
    }

    private func startWorker() -> Bool {
        let owner = owner
        let number = owner.nextWorker()
        do {
            let process = try owner.launcher.startWorker(owner.configuration.worker) { exit in
                owner.workerExited(number, exit)
            }
            worker = Worker(process: process, number: number)
            core.workerStarted()
            return true
        } catch {
            owner.logger.error("the git worker cannot be started", metadata: ["error": "\(error)"])
            core.workerEnded(crashed: false, orderly: false, now: now)
            return false
        }
    }

    private func flush() {
        guard let current = worker, !current.outgoing.isEmpty, !current.isClosed else { return }
        let (socket, inotify) = (current.process.socket, watches.descriptor)
        let passes = inotify >= 0 && !current.hasInotify
        let count = current.outgoing.withUnsafeBytes { bytes in
            passes
                ? DescriptorPassing.send(socket, bytes, descriptor: inotify)
                : Glibc.send(socket, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL))
        }
        guard count > 0 else { return }
        if passes { worker?.hasInotify = true }
        worker?.outgoing.removeFirst(count)
    }

    private func wait() {
        var polls = [pollfd(fd: owner.wake, events: Int16(POLLIN), revents: 0)]
        polls.append(pollfd(fd: watches.descriptor, events: Int16(POLLIN), revents: 0))
        if let worker, !worker.isClosed {
            let wanted = worker.outgoing.isEmpty ? POLLIN : POLLIN | POLLOUT
            polls.append(pollfd(fd: worker.process.socket, events: Int16(wanted), revents: 0))
        }
        var timeout: CInt = -1
        if let deadline = [core.deadline(now: now), endBy].compactMap({ $0 }).min() {
            let (seconds, attoseconds) = max(.zero, deadline - now).components
            timeout = CInt(clamping: seconds * 1000 + attoseconds / 1_000_000_000_000_000 + 1)
        }
        guard poll(&polls, nfds_t(polls.count), timeout) > 0 else { return }
        if polls[0].revents != 0 { wa_eventfd_drain(owner.wake) }
        if polls[1].revents != 0, watches.descriptor >= 0 { readEvents() }
        if polls.count > 2, polls[2].revents != 0 {
            flush()
            receive()
        }
    }

    private func readEvents() {
        for (root, change) in watches.read(expecting: core.watchesUnderWay > 0) {
            if !change.paths.isEmpty {
                core.changed(
                    root, Array(change.paths), newDirectories: Array(change.directories), listAll: change.listAll,
                    now: now)
            }
            if change.everything { core.changedEverything(root, listAll: change.listAll, now: now) }
        }
    }

    private func receive() {
        guard let socket = worker?.process.socket else { return }
        let area = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 16)
        defer { area.deallocate() }
        while worker?.isClosed == false {
            let count = wa_read(socket, area.baseAddress, area.count)
            if count == Int(-EAGAIN) { return }
            guard count > 0, let frames = worker?.frames.add(UnsafeRawBufferPointer(rebasing: area[..<count])) else {
                // Its end is reported when it is reaped; a babbling one is ended.
                worker?.isClosed = true
                worker?.process.kill()
                return
            }
            for frame in frames {
                guard let reply = WorkerFrames.reply(frame) else {
                    worker?.isClosed = true
                    worker?.process.kill()
                    return
                }
                core.received(reply, now: now)
            }
        }
    }

    private func publish() {
        owner.scans.increment(by: core.scanCount - published.scans)
        owner.crashes.increment(by: core.crashCount - published.crashes)
        published = (core.scanCount, core.crashCount)
        let pid = worker?.process.pid ?? 0
        let fresh = GitWatcher.Report(
            polled: core.polled, hanging: core.hanging(now: now), paused: core.worker.isPaused(now: now),
            repositories: core.repositories.count,
            watches: watches.count, scans: core.scanCount, crashes: core.crashCount, workerPID: pid)
        owner.report.withLock { $0 = fresh }
    }

    /// Ends the thread, unless something came meanwhile.
    private func finish() -> Bool {
        dismiss()
        if !dying.isEmpty {
            let by = endBy ?? now + GitWatchLimits.endTime
            endBy = by
            if now < by { return false }
        }
        let isOver = owner.inbox.withLock { inbox in
            guard inbox.events.isEmpty || stopping else { return false }
            inbox.running = false
            inbox.events = []
            return true
        }
        guard isOver else { return false }
        watches.close()
        if stopping { owner.threadEnded.fulfill() }
        return true
    }
}
