import AgentCore
import Glibc
import Logging
import Synchronization

/// Runs programs for the other capabilities (scripts, metadata, header commands) over the daemon's
/// one launcher and reactor.
public final class CommandLauncher: CommandRunner {
    private struct State {
        var shuttingDown = false
        var starting = 0
        var next = 0
        var commands: [Int: LaunchedCommand] = [:]
    }

    // A closure inside a struct: see ProcessManager.
    private struct Callback {
        var call: @Sendable () -> Void = {}
    }

    private let launcher: Launcher
    private let reactor: Reactor
    private let pool: BlockingPool
    private let executor: any TaskExecutor
    private let clock: AgentClock
    private let logger: Logger
    private let state = Mutex(State())
    private let afterReap = Mutex(Callback())

    /// - Parameters:
    ///   - pool: where spawns and /proc scans block.
    ///   - executor: runs the tasks that deliver signals.
    public init(
        launcher: Launcher, reactor: Reactor, pool: BlockingPool, executor: any TaskExecutor, clock: AgentClock,
        metrics: MetricsRegistry, logger: Logger
    ) {
        self.launcher = launcher
        self.reactor = reactor
        self.pool = pool
        self.executor = executor
        self.clock = clock
        self.logger = logger
        metrics.gauge("agent_commands_running", help: "Programs run for scripts and metadata.") { [weak self] in
            Double(self?.running ?? 0)
        }
    }

    /// Called on the reactor's thread after each reaped child, so that orphans behind it are found.
    public func setAfterReap(_ handler: @escaping @Sendable () -> Void) { afterReap.withLock { $0.call = handler } }

    /// Commands that run, or whose output something still holds.
    public var running: Int { state.withLock { $0.commands.count } }

    public func start(
        _ command: Command, output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    ) async throws -> any RunningCommand {
        try admit()
        let launched: LaunchedCommand
        do {
            launched = try await pool.run { [self] in try spawn(command, output) }
        } catch {
            state.withLock { $0.starting -= 1 }
            throw error
        }
        let (key, late) = state.withLock { state in
            state.starting -= 1
            state.next += 1
            state.commands[state.next] = launched
            return (state.next, state.shuttingDown)
        }
        do {
            // Known before it is watched: it may end at once.
            try launched.activate { [weak self] in self?.finished(key) }
        } catch {
            finished(key)
            try? await pool.runToEnd { launched.abandonStart() }
            throw LaunchError(stage: .resources, errno: ENOSPC, description: "\(error)")
        }
        if late { await end([launched]) }
        return launched
    }

    /// Takes no new starts, kills every session, also those whose leaders have ended, and returns when the
    /// leaders are reaped, at the latest after ``ProcLimits/killGrace``.
    public func shutdown() async {
        let commands = state.withLock { state in
            state.shuttingDown = true
            return Array(state.commands.values)
        }
        await end(commands, and: launcher.endedSessions.all)
    }

    private func end(_ commands: [LaunchedCommand], and ended: [OwnSession] = []) async {
        let sessions = commands.map(\.session) + ended
        guard !sessions.isEmpty else { return }
        // One look through /proc for all.
        _ = try? await pool.runToEnd { SessionProcesses().signal(SIGKILL, sessions: sessions) }
        for command in commands { command.abandonOutput() }
        let clock = clock
        let giveUp = Task(executorPreference: executor) {
            guard (try? await clock.sleep(ProcLimits.killGrace)) != nil else { return }
            for command in commands { command.stopWaiting() }
        }
        for command in commands {
            _ = await command.exit()
            await command.outputEnd()
        }
        giveUp.cancel()
    }

    private func admit() throws(LaunchError) {
        let refusal: String? = state.withLock { state in
            if state.shuttingDown { return "the agent is shutting down" }
            if state.starting + state.commands.count >= ProcLimits.commands {
                return "\(ProcLimits.commands) commands run already"
            }
            state.starting += 1
            return nil
        }
        if let refusal { throw LaunchError(stage: .resources, errno: EAGAIN, description: refusal) }
    }

    private func finished(_ key: Int) { state.withLock { _ = $0.commands.removeValue(forKey: key) } }

    private func spawn(
        _ command: Command, _ output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    ) throws -> LaunchedCommand {
        let piped = try launcher.launch(command, separatesErrors: !command.mergesOutputs, logger: logger)
        return LaunchedCommand(
            piped, gate: command.gate,
            context: .init(
                launcher: launcher, reactor: reactor, pool: pool, executor: executor,
                afterReap: { [weak self] in self?.afterReap.withLock { $0.call }() }),
            output: output)
    }
}
