import AgentCore
import Glibc
import Logging
import Synchronization

/// Keeps the one desktop: starts it at its first use, adopts one that an earlier life of the agent left,
/// notices its death and stops it in order (spec: virtual desktop, the session).
///
/// Before the first use it is a few empty fields. ``SessionMachine`` decides; this acts.
public final class DesktopSession: DesktopProvider {
    public struct Configuration: Sendable {
        /// The agent's state directory; ours is `desktop` in it.
        public var stateDirectory: String
        public var environment: EnvironmentBuilder
        /// Where `portabledesktop` is looked for when it is not on PATH.
        public var scriptBinDirectory: String?
        /// Where the desktop starts; `/` when it is not there.
        public var workdir: @Sendable () -> String
        /// `WIDTHxHEIGHT`.
        public var geometry = "1920x1080"
        public var limits = SessionLimits()
        /// Where proc is mounted, for the look whether other machines can reach the VNC server.
        public var procfs = "/proc"

        public init(
            stateDirectory: String, environment: EnvironmentBuilder, scriptBinDirectory: String? = nil,
            workdir: @escaping @Sendable () -> String = { "/" }
        ) {
            self.stateDirectory = stateDirectory
            self.environment = environment
            self.scriptBinDirectory = scriptBinDirectory
            self.workdir = workdir
        }
    }

    /// What a driver is made for.
    public struct Connection: Sendable {
        public var endpoint: RFBEndpoint
        /// The X display, such as `:3`.
        public var display: String
        /// Nobody has used the desktop before.
        public var isFresh: Bool
        /// What programs of the desktop run with.
        public var environment: [String: String]
    }

    /// Connects to a VNC server.
    public typealias DriverFactory = @Sendable (Connection) async throws -> any DesktopDriver

    private struct State {
        var machine = SessionMachine()
        var live: LiveDesktop?
        /// Dead ones whose remains the next start removes.
        var wrecks: [LiveDesktop] = []
        var next = 0
        var waiters: [Int: CheckedContinuation<LiveDesktop, any Error>] = [:]
        var start: Task<Void, Never>?
        var lastFailure: String?
        /// The last start whose failure was told to those who waited for it.
        var told = 0
        var onShutdown: [Int: @Sendable () -> Void] = [:]
        var wasUsed = false
    }

    let launcher: SessionLauncher
    private let clock: AgentClock
    private let executor: any TaskExecutor
    private let logger: Logger
    let metrics: DesktopMetrics
    /// The bridged viewers.
    let hub = ViewerHub()
    private let state = Mutex(State())
    private var limits: SessionLimits { launcher.configuration.limits }
    private var cleaner: SessionCleaner { launcher.cleaner }

    /// - Parameters:
    ///   - runner: starts the program.
    ///   - pool: where /proc and files are read.
    ///   - executor: runs the session's own tasks.
    ///   - connect: makes the driver of a desktop.
    public init(
        configuration: Configuration, runner: any CommandRunner, pool: BlockingPool, executor: any TaskExecutor,
        clock: AgentClock, metrics: MetricsRegistry, logger: Logger, connect: @escaping DriverFactory
    ) {
        launcher = SessionLauncher(
            configuration: configuration, runner: runner, pool: pool,
            limiter: TimeLimiter(clock: clock, executor: executor), logger: logger, connect: connect)
        self.clock = clock
        self.executor = executor
        self.logger = logger
        self.metrics = DesktopMetrics(metrics)
        self.metrics.observe(
            running: { [weak self] in self?.current != nil },
            pending: { [weak self] in self?.state.withLock { $0.live }?.pending ?? 0 })
    }

    /// The program with what comes before the flags of its subcommand, for whoever calls it for the running
    /// desktop; nil when it is not there. Blocks: looks for it.
    public func command(_ subcommand: String) -> [String]? { launcher.command(subcommand) }

    // MARK: The desktop

    public var current: RunningDesktop? {
        guard let live = state.withLock({ $0.live }), live.problem == nil else { return nil }
        return live.running
    }

    public func desktop() async throws -> RunningDesktop { try await acquire().running }

    /// Performs an action on the desktop, which is started when there is none.
    /// - Throws: ``DesktopError``; `CancellationError` when the calling task is cancelled.
    public func perform(_ action: DesktopAction) async throws -> ActionResult {
        let live = try await acquire()
        await hub.settled()
        do {
            return try await live.busy(clock) { try await live.running.driver.perform(action) }
        } catch let error as DesktopError where error.code == .connectionLost {
            lose(live, error.message)
            guard action.kind.changesNothing else { throw error }
        }
        // Looking twice does no harm; whether a click arrived nobody knows.
        let fresh = try await acquire()
        return try await fresh.busy(clock) { try await fresh.running.driver.perform(action) }
    }

    /// The desktop as it is when it answers, else a new one.
    private func acquire() async throws -> LiveDesktop {
        while true {
            try Task.checkCancellation()
            let (use, live) = state.withLock { state in
                state.wasUsed = true
                let use = state.machine.use()
                if case .begin(let generation) = use { state.start = startTask(generation) }
                return (use, state.live)
            }
            switch use {
            case .refuse: throw Self.shuttingDown
            case .begin, .wait:
                if let live = try await waitForStart() { return live }
            case .use:
                guard let live else { continue }
                if let problem = live.problem {
                    lose(live, problem)
                } else if await live.answers(clock, executor, limits) {
                    return live
                } else {
                    lose(live, "it answers no more")
                }
            }
        }
    }

    /// Waits for the start under way; cancelled it leaves the start alone.
    /// - Returns: nil when there is none any more, so that the caller looks again.
    private func waitForStart() async throws -> LiveDesktop? {
        let id = state.withLock { state in
            state.next += 1
            return state.next
        }
        return try await withTaskCancellationHandler {
            do {
                return try await withCheckedThrowingContinuation {
                    (continuation: CheckedContinuation<LiveDesktop, any Error>) in
                    let outcome: Result<LiveDesktop, any Error>? = state.withLock { state in
                        if Task.isCancelled { return .failure(CancellationError()) }
                        if state.machine.isStopping { return .failure(Self.shuttingDown) }
                        guard case .starting = state.machine.phase else { return .failure(OutOfDate()) }
                        state.waiters[id] = continuation
                        return nil
                    }
                    if let outcome { continuation.resume(with: outcome) }
                }
            } catch is OutOfDate {
                return nil
            }
        } onCancel: {
            let waiter = state.withLock { $0.waiters.removeValue(forKey: id) }
            waiter?.resume(throwing: CancellationError())
        }
    }

    private struct OutOfDate: Error {}

    /// Not structured: whoever asked first may go away, and the others still want it.
    private func startTask(_ generation: Int) -> Task<Void, Never> {
        Task(executorPreference: executor) { [self] in
            let began = clock.now()
            let late = answerInTime(generation)
            defer { late.cancel() }
            let wrecks = state.withLock { state in
                defer { state.wrecks = [] }
                return state.wrecks
            }
            for wreck in wrecks { await cleaner.clean(wreck) }
            do {
                let live = try await launcher.start(generation, by: began + limits.start) { [self] error in
                    tell(generation, error, after: clock.now() - began)
                }
                metrics.started(live.wasAdopted ? .adopted : .started, after: clock.now() - began)
                await finish(generation, live)
            } catch {
                tell(generation, error, after: clock.now() - began)
                await finish(generation, nil)
            }
        }
    }

    /// Whatever a start hangs in, those who wait for it have their answer.
    private func answerInTime(_ generation: Int) -> Task<Void, Never> {
        let budget = limits.start + limits.startSlack
        return Task(executorPreference: executor) { [self] in
            guard (try? await clock.sleep(budget)) != nil else { return }
            let why = "it was not up within \(budget.components.seconds) s, and no part of it said why"
            tell(generation, DesktopError.start(why), after: budget)
        }
    }

    /// Tells those who wait why the start fails, once; what it left is removed meanwhile. Who comes after that waits
    /// for the next start.
    private func tell(_ generation: Int, _ error: any Error, after time: Duration) {
        let waiters = state.withLock { state -> [CheckedContinuation<LiveDesktop, any Error>]? in
            guard case .starting(generation) = state.machine.phase, state.told < generation else { return nil }
            state.told = generation
            state.lastFailure = Self.text(error)
            defer { state.waiters = [:] }
            return Array(state.waiters.values)
        }
        guard let waiters else { return }
        if (error as? DesktopError)?.code != .shuttingDown {
            metrics.started(.failed, after: time)
            log(failure: error)
        }
        for waiter in waiters { waiter.resume(throwing: error) }
    }

    /// - Parameter live: nil for a start that failed.
    private func finish(_ generation: Int, _ live: LiveDesktop?) async {
        let (waiters, isWanted) = state.withLock { state -> ([CheckedContinuation<LiveDesktop, any Error>], Bool) in
            defer { state.waiters = [:] }
            let waiters = Array(state.waiters.values)
            guard let live else {
                state.machine.failed(generation)
                return (waiters, false)
            }
            guard state.machine.started(generation) else { return (waiters, false) }
            state.live = live
            state.lastFailure = nil
            return (waiters, true)
        }
        if let live, !isWanted { await cleaner.stop(live) }
        let result: Result<LiveDesktop, any Error> =
            switch (live, isWanted) {
            case (let live?, true): .success(live)
            case (_?, false): .failure(Self.shuttingDown)
            // They came when those before them had been told.
            case (nil, _): .failure(OutOfDate())
            }
        for waiter in waiters { waiter.resume(with: result) }
    }

    /// The desktop cannot be used any more; the next use cleans up and starts another.
    private func lose(_ live: LiveDesktop, _ why: String) {
        let isNews = state.withLock { state in
            guard state.machine.lost(live.generation) else { return false }
            state.live = nil
            state.wrecks.append(live)
            return true
        }
        guard isNews else { return }
        metrics.lost.increment()
        logger.warning(
            "the desktop is lost and a new one is started",
            metadata: ["why": "\(why)", "display": "\(live.running.display)", "xvnc_pid": "\(live.xvnc.pid)"])
    }

    private func log(failure error: any Error) {
        let detail = (error as? DesktopError)?.detail ?? "\(error)"
        logger.warning("the desktop did not start", metadata: ["error": "\(detail)"])
    }

    private static func text(_ error: any Error) -> String {
        guard let error = error as? DesktopError else { return "\(error)" }
        let detail = error.detail.map { ": \($0.prefix { !$0.isNewline })" } ?? ""
        return "\(error.message)\(detail)"
    }

    static let shuttingDown = DesktopError(.shuttingDown, "The agent is shutting down.")

    /// What /healthz has to know; nil when all is well or nobody has used the desktop.
    public var health: HealthRegistry.Report? {
        let (failure, live) = state.withLock { ($0.lastFailure, $0.live) }
        if let live, live.problem == nil {
            if let openbox = live.openbox, !openbox.isAlive {
                return .init("desktop: its window manager (openbox) has ended", degrades: false)
            }
            return live.whyNotRFB.map {
                .init("desktop: driven through portabledesktop's own subcommands, slowly: \($0)", degrades: false)
            }
        }
        return failure.map { .init("desktop: the last start failed: \($0)") }
    }

    // MARK: Shutdown

    /// Whether shutdown has begun.
    var isStopping: Bool { state.withLock { $0.machine.isStopping } }

    /// Calls the handler once when shutdown begins, at once when it has begun.
    /// - Returns: a token for ``removeOnShutdown(_:)``.
    func onShutdown(_ handler: @escaping @Sendable () -> Void) -> Int {
        let token: Int? = state.withLock { state in
            guard !state.machine.isStopping else { return nil }
            state.next += 1
            state.onShutdown[state.next] = handler
            return state.next
        }
        guard let token else {
            handler()
            return 0
        }
        return token
    }

    func removeOnShutdown(_ token: Int) { state.withLock { _ = $0.onShutdown.removeValue(forKey: token) } }

    /// Answers everybody who waits and takes no new uses.
    public func beginShutdown() { _ = refuseAll() }

    private func refuseAll() -> LiveDesktop? {
        let (waiters, handlers, start, live) = state.withLock { state in
            _ = state.machine.shutdown()
            defer { (state.waiters, state.onShutdown) = ([:], [:]) }
            return (Array(state.waiters.values), Array(state.onShutdown.values), state.start, state.live)
        }
        start?.cancel()
        for waiter in waiters { waiter.resume(throwing: Self.shuttingDown) }
        for handler in handlers { handler() }
        return live
    }

    /// Stops the desktop, if there is one, and removes all that it left.
    /// - Parameter recordings: finishes the recordings; called while the desktop still runs.
    public func shutdown(recordings: @Sendable () async -> Void = {}) async {
        let live = refuseAll()
        await recordings()
        await state.withLock { $0.start }?.value
        let (wrecks, wasUsed) = state.withLock { state in
            defer { (state.wrecks, state.live) = ([], nil) }
            return (state.wrecks, state.wasUsed)
        }
        for wreck in wrecks { await cleaner.clean(wreck) }
        if let live { await cleaner.stop(live) }
        // One of an earlier life that nobody used in this one has to go, too.
        if wasUsed || cleaner.mayHaveRemains { await cleaner.cleanEarlierLife() }
    }
}

extension DesktopAction.Kind {
    /// Whether it can be done twice without anything being different.
    var changesNothing: Bool {
        switch self {
        case .screenshot, .cursorPosition, .mouseMove: true
        default: false
        }
    }
}
