import AgentCore
import AgentHTTP
import AgentProc
import AgentSocket
import CPlatform
import GitWatch
import Glibc
import Logging
import Metrics
import NIOCore
import NIOPosix
import ServiceLifecycle
import Synchronization

/// Puts the daemon together and runs it until it is told to stop.
enum Daemon {
    // What whoever started us has ignored (nohup, a script's background job) stays ignored.
    private static let handledSignals = [SIGTERM, SIGINT, SIGHUP].filter { !wa_signal_is_ignored($0) }

    /// Returns when everything has ended in order.
    /// - Throws: ``CommandFailure`` with one line for the terminal.
    static func run(_ configuration: AgentConfiguration) throws {
        let descriptorLimit = prepareProcess()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: min(2, System.coreCount))
        let executor = EventLoopTaskExecutor(group.next())
        // The main thread waits; everything runs on the loops, so that no further pool of threads
        // comes into being.
        let outcome = Mutex<Result<Void, any Error>?>(nil)
        let done = wa_eventfd()
        Task(executorPreference: executor) {
            let result: Result<Void, any Error>
            do {
                try await compose(configuration, descriptorLimit, group, executor)
                result = .success(())
            } catch {
                result = .failure(error)
            }
            outcome.withLock { $0 = result }
            wa_eventfd_signal(done)
        }
        var poll = pollfd(fd: done, events: Int16(POLLIN), revents: 0)
        while Glibc.poll(&poll, 1, -1) <= 0 {}
        do {
            try outcome.withLock { $0 }?.get()
        } catch let error as CommandFailure {
            throw error
        } catch {
            throw CommandFailure(message: "\(error)")
        }
    }

    /// - Returns: the soft descriptor limit that children get back.
    private static func prepareProcess() -> UInt64 {
        // A pipe that took the place of stdin would be closed as stdin in a child.
        var descriptor: CInt
        repeat { descriptor = wa_open("/dev/null", O_RDWR, 0) } while descriptor >= 0 && descriptor <= 2
        if descriptor > 2 { close(descriptor) }
        wa_ignore_sigpipe()
        let signals = handledSignals + [SIGCHLD]
        _ = wa_block_signals(signals, CInt(signals.count))
        wa_limit_malloc_arenas(2)
        umask(0o077)
        return wa_raise_nofile()
    }

    private static func compose(
        _ configuration: AgentConfiguration, _ descriptorLimit: UInt64, _ group: MultiThreadedEventLoopGroup,
        _ executor: EventLoopTaskExecutor
    ) async throws {
        let (pipeline, logFile, logProblem) = try makeLog(configuration)
        let level = configuration.logLevel
        let logger = Logger(label: "workspace-agent") { _ in AgentLogHandler(pipeline: pipeline, level: level) }
        defer { pipeline.flush() }
        for warning in configuration.warnings + [logProblem].compactMap({ $0 }) { logger.warning("\(warning)") }

        let metrics = MetricsRegistry()
        metrics.addSelfMetrics()
        MetricsSystem.bootstrap(SwiftMetricsBridge(registry: metrics))
        let stateLock = try StateDirectory.open(configuration)
        defer { stateLock.release() }
        let health = HealthRegistry()
        health.set(
            "control plane", .init("control plane: standalone, no --agent-url was given", degrades: false))
        let pool = BlockingPool(threads: 2)
        let systemd = Systemd(environment: configuration.environment)

        let processes = try makeProcesses(
            configuration, stateLock.problem, descriptorLimit, pool, executor, group, metrics, health, logger)
        let routes = AgentRoutes()
        CoreRoutes(
            health: health, metrics: metrics, ports: ListeningPorts(pool: pool),
            logTail: { maximum in
                guard let logFile else { return ByteBuffer() }
                return try await pool.run {
                    pipeline.flush()
                    return logFile.tail(maximum)
                }
            }
        ).add(to: routes)
        ProcessRoutes(manager: processes.manager, pool: pool).add(to: routes)
        GitWatchRoutes(watcher: processes.git).add(to: routes)

        let service = HTTPService(routes: routes, metrics: metrics, logger: logger)
        let server = HTTPServer(service: service, group: group, logger: logger) {
            processes.manager.beginShutdown()
            systemd.stopping()
        }
        var listeners = Listeners()
        var extra: [any Service] = []
        defer { listeners.token?.remove() }
        do {
            try await listeners.open(configuration, server, systemd, logger)
            if let address = configuration.prometheusAddress {
                extra.append(try await metricsServer(address, configuration, metrics, health, group, pool, logger))
            }
        } catch {
            // Whatever was opened before the one that failed goes away again.
            await server.stop()
            await processes.reactor.stop()
            throw error
        }
        var services: [any Service] = [processes.git, ProcessService(manager: processes.manager), server]
        services += extra
        if let socket = agentSocket(configuration, group, metrics, health, logger) {
            services.append(socket.server)
            listeners.descriptions.append("agent socket \(socket.path)")
        }

        let serviceGroup = ServiceGroup(
            configuration: .init(
                services: services.map { .init(service: $0, successTerminationBehavior: .gracefullyShutdownGroup) },
                logger: logger))
        processes.stop.set { Task(executorPreference: executor) { await serviceGroup.triggerGracefulShutdown() } }
        logger.info(
            "workspace-agent \(BuildInfo.version) listening on \(listeners.descriptions.joined(separator: ", "))",
            metadata: ["instance": "\(service.instance.lowercased)", "pid": "\(getpid())"])
        systemd.ready("Listening on \(listeners.descriptions.joined(separator: ", "))")
        if configuration.printsExamples { listeners.printExamples() }
        try await serviceGroup.run()
        await processes.reactor.stop()
        logger.info("stopped")
    }

    private struct Processes {
        var manager: ProcessManager
        var reactor: Reactor
        var stop: StopSignal
        /// Keeps the signal descriptor's owner.
        var reaper: OrphanReaper
        var git: GitWatcher
    }

    private static func makeProcesses(
        _ configuration: AgentConfiguration, _ stateProblem: String?, _ descriptorLimit: UInt64, _ pool: BlockingPool,
        _ executor: EventLoopTaskExecutor, _ group: MultiThreadedEventLoopGroup, _ metrics: MetricsRegistry,
        _ health: HealthRegistry, _ logger: Logger
    ) throws -> Processes {
        let reactor = try Reactor()
        guard reactor.start() else { throw CommandFailure(message: "cannot start a thread") }
        let launcher = try Launcher(priority: configuration.priority, descriptorLimit: descriptorLimit)
        if configuration.reapsOrphans { _ = wa_set_child_subreaper(true) }
        let stop = StopSignal()
        let signals = handledSignals + [SIGCHLD]
        let reaper = try OrphanReaper(
            signals: wa_signalfd(signals, CInt(signals.count)), reapsOrphans: configuration.reapsOrphans,
            launcher: launcher, reactor: reactor, onSignal: { stop.received($0, logger) })

        var spools: SpoolStore?
        let disk = NIOThreadPool(numberOfThreads: 1)
        disk.start()
        do {
            if let stateProblem { throw CoreError(.invalid, stateProblem) }
            spools = try SpoolStore(directory: "\(configuration.stateDirectory)/processes", disk: disk)
        } catch {
            logger.warning("complete process output is not kept", metadata: ["error": "\(error)"])
            health.set("process spool", .init("process spool: \(error)"))
        }
        let directory = configuration.directory
        let git = GitWatcher(
            configuration: .init(
                executable: "/proc/self/exe", environment: EnvironmentBuilder(base: configuration.environment).build(),
                watchBudget: configuration.environment["WORKSPACE_AGENT_GIT_WATCH_BUDGET"].flatMap { Int($0) }),
            launcher: WorkerProcesses(launcher: launcher, reactor: reactor), metrics: metrics, health: health,
            logger: logger)
        let manager = ProcessManager(
            configuration: .init(
                directory: { directory }, environment: EnvironmentBuilder(base: configuration.environment),
                paths: git, clock: AgentClock(EventLoopClock(group: group)),
                memoryEvents: OOMEvents.defaultPath()),
            launcher: launcher, reactor: reactor, pool: pool, executor: executor, spools: spools, metrics: metrics,
            logger: logger)
        manager.setAfterReap { reaper.reap() }
        return Processes(manager: manager, reactor: reactor, stop: stop, reaper: reaper, git: git)
    }

    /// A socket that cannot be had is no reason to withhold everything else: it is logged and shown by
    /// /healthz.
    private static func agentSocket(
        _ configuration: AgentConfiguration, _ group: any EventLoopGroup, _ metrics: MetricsRegistry,
        _ health: HealthRegistry, _ logger: Logger
    ) -> (server: AgentSocketServer, path: String)? {
        guard let path = configuration.agentSocket else { return nil }
        let server = AgentSocketServer(
            configuration: .init(path: path), units: UnitStore(), group: group, logger: logger, metrics: metrics)
        do {
            try server.bind()
            return (server, path)
        } catch {
            logger.error("the agent socket is not served", metadata: ["error": "\(error)"])
            health.set("agent socket", .init("agent socket: \(error)"))
            return nil
        }
    }

    private static func metricsServer(
        _ address: ListenAddress, _ configuration: AgentConfiguration, _ metrics: MetricsRegistry,
        _ health: HealthRegistry, _ group: any EventLoopGroup,
        _ pool: BlockingPool, _ logger: Logger
    ) async throws -> HTTPServer {
        let routes = AgentRoutes()
        CoreRoutes(health: health, metrics: metrics, ports: ListeningPorts(pool: pool), logTail: { _ in ByteBuffer() })
            .addMetrics(to: routes)
        // A registry of its own: this listener's requests are not the API's.
        let service = HTTPService(routes: routes, metrics: MetricsRegistry(), logger: logger)
        let server = HTTPServer(service: service, group: group, logger: logger)
        let policy = AccessPolicy(
            tokenRule: .none, allowedHosts: configuration.allowedHosts.union([address.host]), ownUID: geteuid())
        let port = try await server.serve(host: address.host, port: address.port, policy: policy)
        logger.info("serving metrics", metadata: ["address": "\(address.host):\(port)"])
        return server
    }

    private static func makeLog(
        _ configuration: AgentConfiguration
    ) throws -> (LogPipeline, RotatingLogSink?, problem: String?) {
        var sinks: [any LogSink] = [try StreamLogSink(path: configuration.logHuman, format: .human)]
        if let path = configuration.logJSON { sinks.append(try StreamLogSink(path: path, format: .json)) }
        var problem: String?
        var file: RotatingLogSink?
        do {
            try createDirectories(configuration.logDirectory, mode: 0o700)
            let sink = try RotatingLogSink(path: "\(configuration.logDirectory)/workspace-agent.log")
            sinks.append(sink)
            file = sink
        } catch {
            problem = "no log file: \(error)"
        }
        return (LogPipeline(sinks: sinks), file, problem)
    }
}

/// Ends the process manager when shutdown comes to it, after the HTTP server.
private struct ProcessService: Service {
    let manager: ProcessManager

    func run() async throws {
        try? await gracefulShutdown()
        await manager.shutdown()
    }
}

/// The first signal stops the daemon in order, the second at once.
final class StopSignal: Sendable {
    private struct State {
        var count = 0
        var handler: (@Sendable () -> Void)?
    }

    private let state = Mutex(State())

    /// Sets what the first signal does; it is done at once when the signal came before.
    func set(_ handler: @escaping @Sendable () -> Void) {
        let late = state.withLock {
            $0.handler = handler
            return $0.count > 0
        }
        if late { handler() }
    }

    func received(_ signal: CInt, _ logger: Logger) {
        let (count, handler) = state.withLock {
            $0.count += 1
            return ($0.count, $0.handler)
        }
        guard count == 1 else { _exit(1) }
        logger.info("shutting down", metadata: ["signal": "\(signal)"])
        handler?()
    }
}
