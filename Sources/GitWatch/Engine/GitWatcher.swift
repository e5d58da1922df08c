import AgentCore
import CPlatform
import FoundationEssentials
import Glibc
import Logging
import ServiceLifecycle
import Synchronization

/// The git watcher: remembers which paths the chats touched, and while a client is connected runs one thread
/// for file events and the worker. With no client connected for a minute nothing is left of it but the paths.
public final class GitWatcher: PathStore, Service {
    public struct Configuration: Sendable {
        /// Starts the worker: the executable and its hidden command.
        public var worker: Command
        /// inotify watches in all, shared with others who watch files.
        public var watchBudget: WatchBudget
        /// How long thread and worker outlive the last connection, and the worker the last repository.
        public var idleTime: Duration
        var answerTimes = AnswerTimes()
        var firstMessageTime = GitWatchLimits.firstMessageTime
        var pollInterval = RepositoryMonitor.pollInterval
        /// Seconds since 1970.
        public var wallSeconds: @Sendable () -> Int64

        public init(
            executable: String, environment: [String: String], watchBudget: WatchBudget = WatchBudget(limit: nil),
            idleTime: Duration = GitWatchLimits.idleTime,
            wallSeconds: @escaping @Sendable () -> Int64 = { Int64(Glibc.time(nil)) }
        ) {
            // No one reads the report of a crash, and until it is made nothing is scanned.
            let own = environment.merging(["SWIFT_BACKTRACE": "enable=no"]) { _, new in new }
            worker = Command(arguments: [executable, GitWorker.command], environment: own, workdir: "/")
            self.watchBudget = watchBudget
            self.idleTime = idleTime
            self.wallSeconds = wallSeconds
        }
    }

    enum Event: Sendable {
        case attach(WatchSession)
        case detach(WatchSession)
        case touched([String], [UUID])
        case refresh([UUID])
        case workerExit(Int, CommandExit)
        case stop
    }

    struct Inbox {
        var events: [Event] = []
        var running = false
        var stopped = false
        var table = PathTable()
        /// Sessions by chat, so that tool calls of chats without a client cost nothing.
        var watched: [UUID: Int] = [:]
        var sessions = 0
        /// Workers started so far.
        var workers = 0
    }

    /// What others may look at.
    struct Report {
        var polled: [(root: String, why: String)] = []
        /// Repositories and paths whose file systems do not answer.
        var hanging: [String] = []
        var paused = false
        var repositories = 0
        var watches = 0
        var scans = 0
        var crashes = 0
        var workerPID: Int32 = 0
    }

    let configuration: Configuration
    let launcher: any WorkerLauncher
    let logger: Logger
    let wake: CInt
    let inbox = Mutex(Inbox())
    /// The thread has ended after ``shutdown()``.
    let threadEnded = Promise<Void>()
    let report = Mutex(Report())
    let scans: CounterFamily
    let crashes: CounterFamily

    public init(
        configuration: Configuration, launcher: any WorkerLauncher, metrics: MetricsRegistry, health: HealthRegistry,
        logger: Logger
    ) {
        self.configuration = configuration
        self.launcher = launcher
        self.logger = logger
        wake = wa_eventfd()
        scans = metrics.counter("agent_git_scans_total", help: "Scans of repositories.")
        crashes = metrics.counter(
            "agent_git_worker_crashes_total", help: "Unexpected ends of the git worker.")
        health.register("git watch") { [weak self] in self?.problem() }
        func gauge(_ name: String, _ help: String, _ value: @escaping @Sendable (Report) -> Int) {
            metrics.gauge(name, help: help) { [weak self] in self.map { Double(value($0.report.withLock { $0 })) } }
        }
        gauge("agent_git_repositories", "Repositories watched.") { $0.repositories }
        gauge("agent_git_repositories_polled", "Repositories without file events, scanned every 30 s.") {
            $0.polled.count
        }
        gauge("agent_git_hanging", "Repositories and paths whose file systems do not answer.") { $0.hanging.count }
        gauge("agent_git_watches", "inotify watches in use.") { $0.watches }
        gauge("agent_git_worker_pid", "The git worker; 0 while there is none.") { Int($0.workerPID) }
        metrics.gauge("agent_git_connections", help: "WebSockets of the git watcher.") { [weak self] in
            self.map { Double($0.inbox.withLock { $0.sessions }) }
        }
        metrics.gauge("agent_git_chats", help: "Chats whose paths are remembered.") { [weak self] in
            self.map { Double($0.inbox.withLock { $0.table.chatCount }) }
        }
    }

    deinit { close(wake) }

    private func problem() -> HealthRegistry.Report? {
        let report = report.withLock { $0 }
        if report.paused { return .init("git watch: the worker keeps failing and is started again in a minute") }
        func and(_ more: Int) -> String { more > 1 ? " and \(more - 1) more" : "" }
        var texts: [String] = []
        if let first = report.hanging.first {
            texts.append("\(first)\(and(report.hanging.count)) did not answer in time; its file system may hang")
        }
        if let first = report.polled.first {
            texts.append("\(first.root)\(and(report.polled.count)) is polled every 30 s: \(first.why)")
        }
        return texts.isEmpty ? nil : .init("git watch: " + texts.joined(separator: "; "))
    }

    // MARK: The path store

    public func add(paths: [String], for chat: ChatIdentity) {
        let lineage = chat.lineage
        post { inbox in
            inbox.table.add(paths, to: lineage)
            let watched = lineage.filter { inbox.watched[$0] != nil }
            return watched.isEmpty ? nil : .touched(paths, watched)
        }
    }

    public func notify(_ chat: ChatIdentity) {
        let lineage = chat.lineage
        post { inbox in
            let watched = lineage.filter { inbox.watched[$0] != nil }
            return watched.isEmpty ? nil : .refresh(watched)
        }
    }

    // MARK: Connections

    /// Begins to serve a connection, which is detached later.
    /// - Returns: why it is not served; nil when it is.
    func attach(_ session: WatchSession) -> String? {
        var refusal: String?
        let posted = post { inbox in
            guard inbox.sessions < GitWatchLimits.connections, !inbox.stopped else {
                refusal = "too many connections"
                return nil
            }
            inbox.sessions += 1
            if let chat = session.chat { inbox.watched[chat, default: 0] += 1 }
            return .attach(session)
        }
        guard !posted else { return refusal }
        detach(session)
        return "the kernel refuses a thread"
    }

    func detach(_ session: WatchSession) {
        post { inbox in
            inbox.sessions -= 1
            if let chat = session.chat, let count = inbox.watched[chat] {
                inbox.watched[chat] = count > 1 ? count - 1 : nil
            }
            return .detach(session)
        }
    }

    func refresh(_ session: WatchSession) {
        guard let chat = session.chat else { return }
        post { _ in .refresh([chat]) }
    }

    func workerExited(_ number: Int, _ exit: CommandExit) { post { _ in .workerExit(number, exit) } }

    /// A number that no worker before has, whichever thread started it.
    func nextWorker() -> Int {
        inbox.withLock { inbox in
            inbox.workers += 1
            return inbox.workers
        }
    }

    /// Changes the inbox and passes the event, if any, to the engine, whose thread is started when there is none.
    /// - Returns: false when the thread cannot be started.
    @discardableResult private func post(_ body: (inout Inbox) -> Event?) -> Bool {
        let start: Bool? = inbox.withLock { inbox in
            guard let event = body(&inbox) else { return nil }
            if case .attach = event {
            } else if !inbox.running {
                return nil
            }
            inbox.events.append(event)
            defer { inbox.running = true }
            return !inbox.running
        }
        guard let start else { return true }
        guard start else {
            wa_eventfd_signal(wake)
            return true
        }
        if startThread("git-watch", { GitEngine(self).run() }) { return true }
        let events = inbox.withLock { inbox in
            inbox.running = false
            defer { inbox.events = [] }
            return inbox.events
        }
        // Others that came meanwhile would wait until one more asks for the thread.
        for case .attach(let session) in events { session.end() }
        logger.error("the git watcher cannot start a thread")
        return false
    }

    // MARK: Service

    public func run() async throws {
        try? await gracefulShutdown()
        await shutdown()
    }

    /// Ends thread and worker; returns when both are gone.
    func shutdown() async {
        let isRunning = inbox.withLock { inbox in
            inbox.stopped = true
            if inbox.running { inbox.events.append(.stop) }
            return inbox.running
        }
        guard isRunning else { return }
        wa_eventfd_signal(wake)
        await threadEnded.valueIgnoringCancellation
    }
}
