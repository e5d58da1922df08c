import AgentCore
import FoundationEssentials
import Glibc
import Logging
import Synchronization

/// Starts processes, remembers them for a while after their end, and ends them at shutdown.
public final class ProcessManager: Sendable {
    let configuration: Configuration
    private let pool: BlockingPool
    let executor: any TaskExecutor
    private let launcher: Launcher
    private let reactor: Reactor
    private let spools: SpoolStore?
    private let oom: OOMWatch?
    private let logger: Logger
    private let metrics: ProcMetrics
    private let sessions = SessionProcesses()
    let ports: PortWatch
    let files: FileWatch
    private let table = Mutex(ProcessTable())
    private let starts = Atomic<UInt64>(0)
    private let directory: StartDirectory
    private let janitor = Mutex<Task<Void, Never>?>(nil)
    private let afterReap = Mutex(Callback())
    /// No start is accepted any more.
    let shutdownBegan = Promise<Void>()

    // A closure that is itself the value of a Mutex gains a layer of thunks at each access; inside
    // a struct it does not.
    private struct Callback {
        var call: @Sendable () -> Void = {}
    }

    /// - Parameters:
    ///   - pool: where spawns and /proc scans block.
    ///   - executor: runs the manager's own tasks.
    ///   - spools: nil keeps no complete output.
    public init(
        configuration: Configuration, launcher: Launcher, reactor: Reactor, pool: BlockingPool,
        executor: any TaskExecutor, spools: SpoolStore?, metrics: MetricsRegistry, logger: Logger
    ) {
        self.configuration = configuration
        directory = StartDirectory(configuration.directory, home: configuration.home, logger: logger)
        self.launcher = launcher
        self.reactor = reactor
        ports = PortWatch(pool: pool, executor: executor, clock: configuration.clock)
        files = FileWatch(reactor)
        self.pool = pool
        self.executor = executor
        self.spools = spools
        self.logger = logger
        self.metrics = ProcMetrics(metrics, spools: spools)
        oom = OOMWatch(path: configuration.memoryEvents)
        oom?.watch(reactor)
        self.metrics.observe(
            running: { [weak self] in self?.running ?? 0 }, lingering: { [weak self] in self?.lingering ?? 0 },
            followers: { [weak self] in self?.followers ?? 0 })
    }

    /// Called on the reactor's thread after each reaped child, so that orphans behind it are found.
    public func setAfterReap(_ handler: @escaping @Sendable () -> Void) { afterReap.withLock { $0.call = handler } }

    /// Processes that run, and all that are known.
    public var counts: (running: Int, known: Int) {
        table.withLock { table in (table.processes.values.count { $0.exit == nil }, table.processes.count) }
    }

    /// Processes that run.
    public var running: Int { counts.running }

    /// Ended processes whose output something still holds.
    public var lingering: Int {
        table.withLock { Array($0.processes.values) + $0.outliving }.count { $0.isLingering }
    }

    private var followers: Int { table.withLock { Array($0.processes.values) }.reduce(0) { $0 + $1.followers } }

    // MARK: Starting

    public struct Started: Sendable {
        public var id: UUID
        /// Another start with the same token made it.
        public var attached: Bool
    }

    /// Starts a process, or finds the one that the same token started before.
    public func start(_ request: StartRequest, chat: ChatIdentity?) async throws -> Started {
        guard let token = request.clientToken else {
            return Started(id: try await launch(request, chat), attached: false)
        }
        let key = ProcessTable.TokenKey(chat: chat?.id, token: token)
        let fingerprint = StartRequest.Fingerprint(request)
        while true {
            switch table.withLock({ $0.claim(key, for: fingerprint) }) {
            case .claimed:
                do {
                    let id = try await launch(request, chat)
                    settle(key, id)
                    return Started(id: id, attached: false)
                } catch {
                    settle(key, nil)
                    throw error
                }
            case .waiting(let settled): await settled.valueIgnoringCancellation
            case .attached(let id): return Started(id: id, attached: true)
            case .conflict: throw ProcError(.tokenConflict)
            }
        }
    }

    private func settle(_ key: ProcessTable.TokenKey, _ id: UUID?) {
        table.withLock { $0.settle(key, id) }?.fulfill()
    }

    private func launch(_ request: StartRequest, _ chat: ChatIdentity?) async throws -> UUID {
        try table.withLock { (table) throws(ProcError) in try table.reserve() }
        let id = UUID.random()
        let process: ManagedProcess
        do {
            process = try await spawn(id, request, chat)
        } catch {
            table.withLock { $0.unreserve() }
            throw error
        }
        if let chat, let workdir = request.workdir { configuration.paths.add(paths: [workdir], for: chat) }
        // Known before it is watched: its exit may be reported at once.
        let late = table.withLock { table in
            table.insert(process)
            return table.shuttingDown
        }
        if late { process.stopWaiting() }
        do {
            try process.activate()
        } catch {
            table.withLock { $0.withdraw(id) }
            try? await pool.runToEnd { process.abandon() }
            dispose(process)
            let failure = LaunchError(stage: .resources, errno: ENOSPC, description: "\(error)")
            throw ProcError(.startFailed(failure), detail: failure.description, cause: error)
        }
        if late { end(process, SIGKILL, because: .agentShutdown) }
        started(process, request)
        return id
    }

    private func spawn(_ id: UUID, _ request: StartRequest, _ chat: ChatIdentity?) async throws -> ManagedProcess {
        if let workdir = request.workdir, !workdir.hasPrefix("/") {
            let error = LaunchError(
                stage: .workdir, errno: EINVAL, description: "workdir \(workdir): must be an absolute path")
            throw ProcError(.startFailed(error), detail: error.description)
        }
        let startedWallSeconds = configuration.clock.wallSeconds()
        let order = starts.wrappingAdd(1, ordering: .relaxed).newValue
        var terminal: TerminalSize?
        if case .terminal(let size) = request.input { terminal = size }
        return try await pool.run { [self, terminal] in
            let workdir = request.workdir ?? directory.choose()
            let command = request.displayCommand
            // Here, since it takes its time if there is much of it.
            let environment = configuration.environment.build(request: request.environment, chat: chat)
            let description = ProcessDescription(
                id: id, command: command.text, commandIsCut: command.isCut, workdir: workdir,
                background: request.background, chat: chat,
                startedWallSeconds: startedWallSeconds, order: order)
            do throws(LaunchError) {
                let piped = try launcher.launch(
                    Command(arguments: request.arguments, environment: environment, workdir: workdir),
                    separatesErrors: false,
                    input: request.input, logger: logger)
                return ManagedProcess(
                    description: description, piped: piped, terminal: terminal,
                    spool: spools?.makeSpool(id: id.lowercased), context: context)
            } catch {
                throw ProcError(
                    error.errno == E2BIG ? .startTooLarge : .startFailed(error), detail: error.description)
            }
        }
    }

    private var context: ProcessContext {
        ProcessContext(
            reactor: reactor, launcher: launcher, spools: spools, oom: oom, clock: configuration.clock,
            captured: metrics.capturedBytes,
            onExit: { [weak self] process, exit in self?.exited(process, exit) })
    }

    private func started(_ process: ManagedProcess, _ request: StartRequest) {
        metrics.started.increment()
        let description = process.description
        logger.debug(
            "process started",
            metadata: ["process_id": "\(description.id.lowercased)", "pid": "\(process.pid)"].merging(
                chat: description.chat))
        if let timeout = request.timeout { enforce(timeout, on: process) }
    }

    private func enforce(_ timeout: Duration, on process: ManagedProcess) {
        let clock = configuration.clock
        let task = Task(executorPreference: executor) { [weak self, weak process] in
            // Cancelled when the process ends by itself.
            guard (try? await clock.sleep(timeout)) != nil, let self, let process else { return }
            process.willEnd(by: SIGTERM, because: .timeout)
            await self.signalAll(SIGTERM, [process.session])
            // From here on no more: what outlives its leader is ended too.
            await self.killLater(process)
        }
        process.setTimeoutTask(task)
    }

    private func killLater(_ process: ManagedProcess) async {
        let clock = configuration.clock
        await Task(executorPreference: executor) {
            try? await clock.sleep(ProcLimits.timeoutGrace)
            process.willEnd(by: SIGKILL, because: .timeout)
            await self.signalAll(SIGKILL, [process.session])
        }.value
    }

    // MARK: Looking

    /// The process, if it exists and is not another chat's. A process without a chat is found by every chat that knows its id;
    /// a request without a chat finds them all.
    func find(_ id: String, chat: ChatIdentity?) -> ManagedProcess? {
        guard let uuid = UUID(uuidString: id), let process = table.withLock({ $0.processes[uuid] }) else { return nil }
        guard let chat, let owner = process.description.chat else { return process }
        return owner.id == chat.id ? process : nil
    }

    /// The chat's own processes, without a chat all: running ones first, then the newest start first.
    func list(chat: ChatIdentity?, limit: Int, running: Bool?) -> [ManagedProcess] {
        let all = table.withLock { Array($0.processes.values) }
            .filter { chat == nil || $0.description.chat?.id == chat?.id }
        let sorted = all.map { (process: $0, running: $0.exit == nil) }
            .filter { running == nil || $0.running == running }
            .sorted { a, b in
                if a.running != b.running { return a.running }
                return a.process.description.order > b.process.description.order
            }
        return sorted.prefix(limit).map(\.process)
    }

    /// The process, while it is remembered.
    func process(_ id: UUID) -> ManagedProcess? { table.withLock { $0.processes[id] } }

    func process(forToken token: String, chat: ChatIdentity?) -> UUID? {
        table.withLock { $0.process(forToken: ProcessTable.TokenKey(chat: chat?.id, token: token)) }
    }

    /// Waits for the exit, at most for the time, and no longer than until the promise is fulfilled.
    func wait(for process: ManagedProcess, atMost timeout: Duration, orUntil over: Promise<Void> = Promise()) async {
        await process.wait(atMost: timeout, clock: configuration.clock, orUntil: over)
    }

    // MARK: Signals

    /// Sends a signal to every process of the session.
    func signal(_ process: ManagedProcess, _ number: CInt) async throws {
        guard process.exit == nil else { throw ProcError(.notRunning) }
        let mayEnd = number != SIGCONT && number != SIGSTOP
        var isDelivered = false
        if mayEnd { process.willEnd(by: number, because: .killedByRequest) }
        defer { if mayEnd, !isDelivered { process.didNotEnd(by: number, because: .killedByRequest) } }
        switch try await deliver(number, to: process) {
        case .delivered: isDelivered = true
        case .empty: throw ProcError(.notRunning)
        case .refused(let error): throw ProcError(.notPermitted, detail: errnoText(error))
        }
    }

    private func deliver(_ number: CInt, to process: ManagedProcess) async throws -> SessionProcesses.Outcome {
        try await pool.run { [sessions] in
            guard process.exit == nil else { return .empty }
            return sessions.signal(number, sessions: [process.session])
        }
    }

    private func end(_ process: ManagedProcess, _ signal: CInt, because cause: Reason) {
        process.willEnd(by: signal, because: cause)
        Task(executorPreference: executor) { _ = try? await self.deliver(signal, to: process) }
    }

    // MARK: Exits

    /// On the reactor's thread.
    private func exited(_ process: ManagedProcess, _ exit: ProcessExit) {
        afterReap.withLock { $0.call }()
        metrics.exited.with(exit.reason.rawValue).increment()
        let deadline = configuration.clock.now() + ProcLimits.retention
        let forgotten = table.withLock { $0.exited(process.description.id, forgetAt: deadline) }
        for old in forgotten { dispose(old) }
        startJanitor()
        let description = process.description
        if let chat = description.chat { configuration.paths.notify(chat) }
        logger.debug(
            "process exited",
            metadata: [
                "process_id": "\(description.id.lowercased)", "exit_code": "\(exit.code)",
                "reason": "\(exit.reason.rawValue)",
            ].merging(chat: description.chat))
    }

    private func startJanitor() {
        janitor.withLock { janitor in
            guard janitor == nil else { return }
            let clock = configuration.clock
            janitor = Task(executorPreference: executor) { [weak self] in
                while let wait = self?.untilNextForgotten() {
                    guard (try? await clock.sleep(wait)) != nil else { return }
                    self?.forgetDue()
                }
            }
        }
    }

    /// nil ends the janitor: nothing is left to forget.
    private func untilNextForgotten() -> Duration? {
        janitor.withLock { janitor in
            guard let deadline = table.withLock({ $0.nextDeadline }) else {
                janitor = nil
                return nil
            }
            return max(deadline - configuration.clock.now(), .zero)
        }
    }

    private func forgetDue() {
        let forgotten = table.withLock { $0.forgetDue(now: configuration.clock.now()) }
        for process in forgotten { dispose(process) }
    }

    private func dispose(_ process: ManagedProcess) {
        if let spool = process.spool { spools?.remove(spool) }
    }

    // MARK: Shutdown

    /// Takes no new starts and answers the requests that wait.
    public func beginShutdown() {
        let all = table.withLock { table in
            table.shuttingDown = true
            return Array(table.processes.values)
        }
        shutdownBegan.fulfill()
        for process in all { process.stopWaiting() }
    }

    /// SIGTERM to all processes of our sessions, two seconds, SIGKILL to what is left; returns when the leaders
    /// are reaped. Sessions whose leaders have ended, scripts' too, are ended with the rest; what has left its
    /// session is not.
    public func shutdown() async {
        beginShutdown()
        let running = table.withLock { Array($0.processes.values) }.filter { $0.exit == nil }
        // Kept from the start: a session whose leader goes at SIGTERM may still have members.
        let sessions = running.map(\.session) + launcher.endedSessions.all
        for (signal, grace) in [(SIGTERM, ProcLimits.shutdownGrace), (SIGKILL, ProcLimits.killGrace)]
        where !sessions.isEmpty {
            let deadline = configuration.clock.now() + grace
            for process in running { process.willEnd(by: signal, because: .agentShutdown) }
            await signalAll(signal, sessions)
            await waitUntilEnded(running, until: deadline)
            if await waitUntilEmpty(sessions, until: deadline) { break }
        }
        janitor.withLock { $0 }?.cancel()
        for process in table.withLock({ Array($0.processes.values) }) { dispose(process) }
        await spools?.settle()
    }

    private func signalAll(_ signal: CInt, _ targets: [OwnSession]) async {
        _ = try? await pool.run { [sessions] in sessions.signal(signal, sessions: targets) }
    }

    private func waitUntilEnded(_ processes: [ManagedProcess], until deadline: Duration) async {
        let clock = configuration.clock
        for process in processes where process.exit == nil {
            await process.wait(
                atMost: max(deadline - clock.now(), .zero), clock: clock, evenAtShutdown: true)
        }
    }

    /// Nothing announces the end of a process that is not our child, so it is looked for.
    private func waitUntilEmpty(_ targets: [OwnSession], until deadline: Duration) async -> Bool {
        let clock = configuration.clock
        while true {
            let isEmpty = try? await pool.run { [sessions] in sessions.members(of: targets).isEmpty }
            if isEmpty == true { return true }
            guard clock.now() < deadline else { return false }
            try? await clock.sleep(.milliseconds(20))
        }
    }
}

extension [String: Logger.MetadataValue] {
    fileprivate func merging(chat: ChatIdentity?) -> Self {
        merging(chat?.logMetadata ?? [:]) { _, new in new }
    }
}
