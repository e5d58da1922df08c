import AgentCore
import Glibc
import Logging
import Synchronization

/// Manages the one desktop: starts it at its first use, adopts one that an earlier run of the agent left, notices
/// its death and stops it gracefully (docs/contracts/desktop.md#session).
///
/// Before the first use it holds nothing. ``SessionMachine`` decides; this type acts.
package final class DesktopSession: DesktopProvider {
    package struct Configuration: Sendable {
        /// The agent's state directory; the desktop's is `desktop` in it.
        package var stateDirectory: String
        package var environment: EnvironmentBuilder
        /// Searched for `portabledesktop` after PATH.
        package var scriptBinDirectory: String?
        /// The working directory of the desktop; `/` when it does not exist.
        package var workdir: @Sendable () -> String
        /// `WIDTHxHEIGHT`.
        package var geometry = "1920x1080"
        var limits = SessionLimits()
        /// Where proc is mounted, for the check whether other machines can reach the VNC server.
        package var procfs = "/proc"

        package init(
            stateDirectory: String, environment: EnvironmentBuilder, scriptBinDirectory: String? = nil,
            workdir: @escaping @Sendable () -> String = { "/" }
        ) {
            self.stateDirectory = stateDirectory
            self.environment = environment
            self.scriptBinDirectory = scriptBinDirectory
            self.workdir = workdir
        }
    }

    /// What a driver connects to.
    package struct Connection: Sendable {
        package var endpoint: RFBEndpoint
        /// The X display, such as `:3`.
        package var display: String
        /// Whether no client has used the desktop before.
        package var isFresh: Bool
        /// Programs for what its VNC server cannot do.
        package var helpers: DesktopHelpers
        package var clock: AgentClock
    }

    /// Connects to a VNC server.
    package typealias DriverFactory = @Sendable (Connection) async throws -> any DesktopDriver

    private typealias StartOutcome = Promise<Result<LiveDesktop, any Error>>

    private struct State {
        var machine = SessionMachine()
        var live: LiveDesktop?
        /// What they left is removed by the next start.
        var deadDesktops: [LiveDesktop] = []
        var next = 0
        /// The outcome for the waiters that came since the last one was fulfilled.
        var outcome = StartOutcome()

        mutating func takeOutcome() -> StartOutcome {
            defer { outcome = StartOutcome() }
            return outcome
        }

        var start: Task<Void, Never>?
        var lastFailure: String?
        /// The generation of the last start whose failure was reported to its waiters.
        var reportedFailure = 0
        var onShutdown: [Int: @Sendable () -> Void] = [:]
        var wasUsed = false
        /// The desktop was replaced, and no answer has said so yet.
        var wasReplaced = false
    }

    let launcher: SessionLauncher
    let clock: AgentClock
    let executor: any TaskExecutor
    private let logger: Logger
    let metrics: DesktopMetrics
    /// The bridged viewers.
    let hub = ViewerHub()
    let stillnessWaits = TurnQueue(atOnce: DesktopLimits.stillnessWaits, limit: 0) {
        DesktopError(.tooMany, "Too many actions wait for a still screen.")
    }
    private let state = Mutex(State())
    private var limits: SessionLimits { launcher.configuration.limits }
    private var cleaner: SessionCleaner { launcher.cleaner }

    /// - Parameters:
    ///   - runner: starts the program.
    ///   - pool: where /proc and files are read.
    ///   - executor: runs the session's own tasks.
    ///   - connect: makes the driver of a desktop.
    package init(
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

    /// The program with a subcommand and its state file, to which the caller adds flags; nil when it is not
    /// installed. Blocks: searches PATH.
    package func command(_ subcommand: String) -> [String]? { launcher.command(subcommand) }

    // MARK: The desktop

    package var current: RunningDesktop? {
        guard let live = state.withLock({ $0.live }), live.problem == nil else { return nil }
        return live.running
    }

    package func desktop() async throws -> RunningDesktop { try await acquire().running }

    /// Whether the desktop was replaced since the last call.
    func takeReplacement() -> Bool {
        state.withLock { state in
            guard state.wasReplaced, state.live != nil else { return false }
            state.wasReplaced = false
            return true
        }
    }

    /// The running desktop if it answers, else a new one.
    func acquire() async throws -> LiveDesktop {
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
                    markLost(live, problem)
                } else if await live.answers(clock, executor, limits) {
                    await launcher.keepWindowManager(of: live)
                    return live
                } else {
                    markLost(live, "it does not answer")
                }
            }
        }
    }

    /// Waits for the start under way, which goes on when the waiting task is cancelled.
    /// - Returns: nil when no start is under way any more, so that the caller has to look again.
    private func waitForStart() async throws -> LiveDesktop? {
        let outcome = try state.withLock { state -> StartOutcome? in
            if state.machine.isStopping { throw Self.shuttingDown }
            guard case .starting = state.machine.phase else { return nil }
            return state.outcome
        }
        do {
            return try await outcome?.valueUnlessCancelled().get()
        } catch is StartIsOver {
            return nil
        }
    }

    private struct StartIsOver: Error {}

    /// Unstructured: the start goes on for the other waiters when the caller that began it goes away.
    private func startTask(_ generation: Int) -> Task<Void, Never> {
        Task(executorPreference: executor) { [self] in
            let began = clock.now()
            let watchdog = startWatchdog(generation)
            defer { watchdog.cancel() }
            let dead = state.withLock { state in
                defer { state.deadDesktops = [] }
                return state.deadDesktops
            }
            for desktop in dead { await cleaner.clean(desktop) }
            do {
                let live = try await launcher.start(generation, by: began + limits.start) { [self] error in
                    reportFailure(generation, error, after: clock.now() - began)
                }
                metrics.started(live.wasAdopted ? .adopted : .started, after: clock.now() - began)
                await finish(generation, live)
            } catch {
                reportFailure(generation, error, after: clock.now() - began)
                await finish(generation, nil)
            }
        }
    }

    /// Fails the waiters of a start that hangs in a step without its own time limit.
    private func startWatchdog(_ generation: Int) -> Task<Void, Never> {
        let budget = limits.start + limits.startSlack
        return Task(executorPreference: executor) { [self] in
            guard (try? await clock.sleep(budget)) != nil else { return }
            let why = "it was not up within \(budget.components.seconds) s; no step of the start reported an error"
            reportFailure(generation, DesktopError.start(why), after: budget)
        }
    }

    /// Reports to the waiters why the start failed, once, while what it left is removed. Later callers wait for the
    /// next start.
    private func reportFailure(_ generation: Int, _ error: any Error, after time: Duration) {
        let outcome = state.withLock { state -> StartOutcome? in
            guard case .starting(generation) = state.machine.phase, state.reportedFailure < generation else {
                return nil
            }
            state.reportedFailure = generation
            state.lastFailure = Self.text(error)
            return state.takeOutcome()
        }
        guard let outcome else { return }
        if (error as? DesktopError)?.code != .shuttingDown {
            metrics.started(.failed, after: time)
            log(failure: error)
        }
        outcome.fulfill(.failure(error))
    }

    /// - Parameter live: nil for a start that failed.
    private func finish(_ generation: Int, _ live: LiveDesktop?) async {
        let (outcome, isWanted) = state.withLock { state -> (StartOutcome, Bool) in
            let outcome = state.takeOutcome()
            guard let live else {
                state.machine.failed(generation)
                return (outcome, false)
            }
            guard state.machine.started(generation) else { return (outcome, false) }
            state.live = live
            state.lastFailure = nil
            state.wasReplaced = state.wasReplaced || live.isReplacement
            return (outcome, true)
        }
        if let live, !isWanted { await cleaner.stop(live) }
        let result: Result<LiveDesktop, any Error> =
            switch (live, isWanted) {
            case (let live?, true): .success(live)
            case (_?, false): .failure(Self.shuttingDown)
            // They came after the failure was reported.
            case (nil, _): .failure(StartIsOver())
            }
        outcome.fulfill(result)
    }

    /// Marks the desktop as unusable; the next use cleans up and starts another.
    func markLost(_ live: LiveDesktop, _ why: String) {
        let isFirst = state.withLock { state in
            guard state.machine.lost(live.generation) else { return false }
            state.live = nil
            state.deadDesktops.append(live)
            state.wasReplaced = true
            return true
        }
        guard isFirst else { return }
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
        guard let detail = error.detail?.prefix(while: { !$0.isNewline }) else { return error.message }
        return "\(error.message.hasSuffix(".") ? String(error.message.dropLast()) : error.message): \(detail)"
    }

    static let shuttingDown = DesktopError(.shuttingDown, "Desktop API is shutting down.")

    /// What /healthz reports; nil when all is well or the desktop was never used.
    package var health: HealthRegistry.Report? {
        let (failure, live) = state.withLock { ($0.lastFailure, $0.live) }
        if let live, live.problem == nil {
            if let manager = live.windowManager, !manager.isAlive {
                return .init(
                    "desktop: its window manager (openbox) has ended; the next use starts it again", degrades: false)
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

    /// Calls the handler once when shutdown begins, immediately when it has begun.
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

    /// Fails all waiters and refuses new uses.
    package func beginShutdown() { _ = refuseAll() }

    private func refuseAll() -> LiveDesktop? {
        let (outcome, handlers, start, live) = state.withLock { state in
            _ = state.machine.shutdown()
            defer { state.onShutdown = [:] }
            return (state.takeOutcome(), Array(state.onShutdown.values), state.start, state.live)
        }
        start?.cancel()
        outcome.fulfill(.failure(Self.shuttingDown))
        for handler in handlers { handler() }
        return live
    }

    /// Stops the desktop, if one runs, and removes all that it left.
    /// - Parameter recordings: finishes the recordings; called while the desktop still runs.
    package func shutdown(recordings: @Sendable () async -> Void = {}) async {
        let live = refuseAll()
        await recordings()
        await state.withLock { $0.start }?.value
        let (dead, wasUsed) = state.withLock { state in
            defer { (state.deadDesktops, state.live) = ([], nil) }
            return (state.deadDesktops, state.wasUsed)
        }
        for desktop in dead { await cleaner.clean(desktop) }
        if let live { await cleaner.stop(live) }
        // Also one of an earlier run that was not used in this run.
        if wasUsed || cleaner.mayHaveLeftovers { await cleaner.cleanLeftovers() }
    }
}
