import AgentCore
import AgentProto
import ControlPlaneAPI
import FoundationEssentials
import Glibc
import Logging
import Synchronization

/// Runs the manifest's scripts: at the start, on schedules, at the stop (docs/contracts/control-plane.md#scripts).
///
/// It lives as long as the agent, over all connections. Losing a connection never ends a script.
package final class ScriptRunner: Sendable {
    package struct Configuration: Sendable {
        /// Where relative log paths lead.
        package var logDirectory: String
        /// The scripts' own part of the state directory, absolute; made when needed.
        package var stateDirectory: String

        package init(logDirectory: String, stateDirectory: String) {
            self.logDirectory = logDirectory
            self.stateDirectory = stateDirectory
        }
    }

    /// Where scripts leave programs for one another. Give it to the environment builder, after
    /// ``requireOwn(_:state:)``.
    package static func binDirectory(state: String) -> String { "\(state)/bin" }

    /// Refuses a directory of the scripts that another user has made or can change, in itself or by one above
    /// it up to the daemon's state directory. A missing one is none: it can only be made by us then. Blocks.
    /// - Parameter state: the scripts' own part of the state directory.
    /// - Throws: `CoreError` that names the directory.
    package static func requireOwn(_ directory: String, state: String) throws {
        if directory.hasPrefix(state) { try requireOwn(parentDirectory(of: directory), state: state) }
        var info = stat()
        if lstat(directory, &info) == 0 || errno != ENOENT { try requirePrivateDirectory(directory) }
    }

    private typealias Stage = Coder_Agent_V2_Timing.Stage
    private static let allStages: Set<Stage> = [.start, .stop, .cron]

    private struct State {
        var scripts: [WorkspaceScript] = []
        var directory = ""
        var hasStarted = false
        var wantsCron = false
        var cron: [Task<Void, Never>] = []
        /// Counts the times that schedules were made: of two at once the later one counts.
        var schedules = 0
        /// Ids of scripts whose scheduled run has not ended.
        var cronBusy: Set<Data> = []
        /// Stages of which nothing is started any more.
        var ended: Set<Stage> = []
        /// Those of them whose patience is over.
        var killed: Set<Stage> = []
        var nextRun = 0
        /// Runs under way; the command comes once it is started.
        var runs: [Int: (stage: Stage, command: (any RunningCommand)?)] = [:]
        /// Fulfilled when no run is left.
        var idle: [Promise<Void>] = []
    }

    private let configuration: Configuration
    private let context: ScriptContext
    private let logs: LogStore
    private let reports: ScriptReports
    private let history: ScriptHistory
    private let logger: Logger
    private let ran: CounterFamily
    private let skipped: CounterSeries
    private let state = Mutex(State())
    private let startOutcome = Promise<ScriptOutcome>()

    package init(
        configuration: Configuration, context: ScriptContext, logs: LogStore, reports: ScriptReports,
        history: ScriptHistory = ScriptHistory(), metrics: MetricsRegistry, logger: Logger
    ) {
        self.configuration = configuration
        self.context = context
        self.logs = logs
        self.reports = reports
        self.history = history
        self.logger = logger
        ran = metrics.counter(
            "agent_scripts_total", help: "Runs of scripts by stage and result.", labels: ["stage", "status"])
        skipped = metrics.counter(
            "agent_script_cron_skipped_total", help: "Scheduled runs left out because the last one still ran."
        ).with()
        metrics.gauge("agent_scripts_running", help: "Scripts that run.") { [weak self] in
            self.map { Double($0.state.withLock { $0.runs.count }) }
        }
    }

    // MARK: What the manifest routine calls

    /// A manifest came. Nothing runs because of it, but schedules follow it once ``startCron()`` was called.
    package func update(_ manifest: ManifestSnapshot) {
        var scripts = manifest.scripts
        if scripts.count > ScriptLimits.scripts {
            logger.warning(
                "the manifest has too many scripts; only the first \(ScriptLimits.scripts) are run",
                metadata: ["scripts": "\(scripts.count)"])
            scripts.removeLast(scripts.count - ScriptLimits.scripts)
        }
        history.keep(scripts)
        let changed = state.withLock { state in
            state.directory = manifest.directory
            defer { state.scripts = scripts }
            return state.scripts != scripts && state.wantsCron
        }
        if changed { scheduleAll() }
    }

    /// Runs the start scripts, all at once, the first time it is called in this session; later calls, also
    /// concurrent ones, get the same outcome.
    /// - Throws: `CancellationError` when the caller is cancelled. The scripts go on.
    package func runStartScripts() async throws -> ScriptOutcome {
        let scripts = state.withLock { state in
            defer { state.hasStarted = true }
            return state.hasStarted ? nil : state.scripts.filter(\.runsOnStart)
        }
        if let scripts {
            Task(executorPreference: context.executor) { [self] in
                startOutcome.fulfill(await runAll(scripts, .start))
            }
        }
        return try await startOutcome.valueUnlessCancelled()
    }

    /// Begins to run scripts on their schedules; later calls do nothing.
    package func startCron() {
        let isNew = state.withLock { state in
            guard !state.wantsCron, !state.ended.contains(.cron) else { return false }
            state.wantsCron = true
            return true
        }
        if isNew { scheduleAll() }
    }

    /// Ends the schedules and runs the stop scripts, all at once.
    package func runStopScripts() async -> ScriptOutcome {
        stopCron()
        return await runAll(state.withLock { $0.scripts }.filter(\.runsOnStop), .stop)
    }

    /// Starts no more, ends what runs (SIGTERM, two seconds later SIGKILL), and returns when all have ended
    /// and reported.
    package func cancelAll() async { await end(Self.allStages) }

    /// As ``cancelAll()``, but stop scripts may still run.
    package func cancelStart() async { await end([.start, .cron]) }

    private func end(_ stages: Set<Stage>) async {
        stopCron()
        signalAll(SIGTERM, stages)
        let context = context
        let kill = Task(executorPreference: context.executor) { [self] in
            guard (try? await context.clock.sleep(ScriptLimits.cancelGrace)) != nil else { return }
            signalAll(SIGKILL, stages)
        }
        let idle = Promise<Void>()
        state.withLock { state in
            if state.runs.isEmpty { idle.fulfill() } else { state.idle.append(idle) }
        }
        await idle.valueIgnoringCancellation
        kill.cancel()
    }

    // MARK: Running

    private func runAll(_ scripts: [WorkspaceScript], _ stage: Stage) async -> ScriptOutcome {
        await withTaskGroup(of: Coder_Agent_V2_Timing?.self) { group in
            for script in scripts { group.addTask { await self.run(script, stage) } }
            var outcome = ScriptOutcome.succeeded
            for await timing in group {
                if let timing { outcome.add(timing) } else if outcome == .succeeded { outcome = .failed }
            }
            return outcome
        }
    }

    /// - Returns: nil when nothing is started any more.
    private func run(
        _ script: WorkspaceScript, _ stage: Stage
    ) async -> Coder_Agent_V2_Timing? {
        let (run, directory): (Int?, String) = state.withLock { state in
            guard !state.ended.contains(stage) else { return (nil, "") }
            state.nextRun += 1
            state.runs[state.nextRun] = (stage, nil)
            return (state.nextRun, state.directory)
        }
        guard let run else { return nil }
        let execution = ScriptExecution(
            script: script, stage: stage, context: context,
            paths: .init(
                directory: directory, logDirectory: configuration.logDirectory, state: configuration.stateDirectory),
            logs: logs, logger: logger,
            onStart: { [self] command in
                // What was being started when its end was asked for gets the same signals as the others.
                let late = state.withLock { state -> CInt? in
                    state.runs[run] = (stage, command)
                    return state.killed.contains(stage) ? SIGKILL : state.ended.contains(stage) ? SIGTERM : nil
                }
                if let late { command.signal(late) }
                if late == SIGKILL { command.abandonOutput() }
            })
        logger.debug("script started", metadata: ["script": "\(script.displayName)", "stage": "\(stage.label)"])
        history.started(script.id, logPath: execution.logPath)
        let timing = await execution.run()
        history.ended(timing)
        logger.info(
            "script ended",
            metadata: [
                "script": "\(script.displayName)", "stage": "\(stage.label)", "status": "\(timing.status.label)",
                "exit_code": "\(timing.exitCode)",
            ])
        reports.add(timing)
        ran.with(stage.label, timing.status.label).increment()
        let idle = state.withLock { state -> [Promise<Void>] in
            state.runs[run] = nil
            guard state.runs.isEmpty else { return [] }
            defer { state.idle = [] }
            return state.idle
        }
        for waiter in idle { waiter.fulfill() }
        return timing
    }

    private func signalAll(_ number: CInt, _ stages: Set<Stage>) {
        let commands = state.withLock { state in
            state.ended.formUnion(stages)
            if number == SIGKILL { state.killed.formUnion(stages) }
            return state.runs.values.compactMap { stages.contains($0.stage) ? $0.command : nil }
        }
        for command in commands {
            command.signal(number)
            if number == SIGKILL { command.abandonOutput() }
        }
    }

    // MARK: Schedules

    /// Begins no further scheduled runs.
    package func stopCron() {
        let tasks = state.withLock { state in
            state.wantsCron = false
            defer { state.cron = [] }
            return state.cron
        }
        for task in tasks { task.cancel() }
    }

    private func scheduleAll() {
        let (all, number) = state.withLock { state in
            state.schedules += 1
            return (state.scripts, state.schedules)
        }
        let scripts = all.filter { !$0.cron.isEmpty }
        var tasks: [Task<Void, Never>] = []
        for script in scripts {
            do {
                let schedule = try CronSchedule(script.cron)
                tasks.append(
                    Task(executorPreference: context.executor) { [weak self, context] in
                        await Self.follow(schedule, context) { [weak self] in self?.cronDue(script) }
                    })
            } catch {
                logger.warning(
                    "a script is not scheduled", metadata: ["script": "\(script.displayName)", "error": "\(error)"])
            }
        }
        let old = state.withLock { state in
            guard state.wantsCron, !state.ended.contains(.cron), state.schedules == number else { return tasks }
            defer { state.cron = tasks }
            return state.cron
        }
        for task in old { task.cancel() }
    }

    /// Calls at each time of the schedule until it is cancelled. Times that pass while the machine sleeps
    /// are called for once.
    private static func follow(
        _ schedule: CronSchedule, _ context: ScriptContext, _ due: @Sendable () -> Void
    ) async {
        var last = context.wallTime().seconds
        while let next = schedule.next(after: last) {
            while case let now = context.wallTime(), now.seconds < next {
                // Set back: what was due before its time is due again.
                if now.seconds < last - 1 { break }
                let wait = Duration.seconds(next - now.seconds) - .nanoseconds(Int64(now.nanoseconds))
                guard (try? await context.clock.sleep(min(wait, ScriptLimits.cronNap))) != nil else { return }
            }
            let now = context.wallTime().seconds
            if now >= next {
                guard !Task.isCancelled else { return }
                due()
            }
            last = now
        }
    }

    private func cronDue(_ script: WorkspaceScript) {
        let isFree = state.withLock { $0.cronBusy.insert(script.id).inserted }
        guard isFree else {
            skipped.increment()
            logger.info(
                "a scheduled run is left out: the last one has not ended",
                metadata: ["script": "\(script.displayName)"])
            return
        }
        Task(executorPreference: context.executor) { [self] in
            _ = await run(script, .cron)
            state.withLock { _ = $0.cronBusy.remove(script.id) }
        }
    }
}

extension ScriptOutcome {
    fileprivate mutating func add(_ timing: Coder_Agent_V2_Timing) {
        if timing.status == .timedOut {
            self = .timedOut
        } else if timing.exitCode != 0, self == .succeeded {
            self = .failed
        }
    }
}
