import AgentCore
import AgentHTTP
import AgentProc
import AgentSocket
import BoundaryLog
import CPlatform
import ControlPlane
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
        let inherited = prepareProcess()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: min(2, System.coreCount))
        let executor = EventLoopTaskExecutor(group.next())
        // The main thread waits; everything runs on the loops, so that no further pool of threads
        // comes into being.
        let outcome = Mutex<Result<Void, any Error>?>(nil)
        let done = wa_eventfd()
        Task(executorPreference: executor) {
            let result: Result<Void, any Error>
            do {
                try await compose(configuration, inherited, group, executor)
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

    /// What the daemon was started with and changed for itself; children get it back.
    private struct Inherited {
        /// The soft limit of descriptors.
        var descriptorLimit: UInt64
        var fileMask: mode_t
    }

    private static func prepareProcess() -> Inherited {
        // A pipe that took the place of stdin would be closed as stdin in a child.
        var descriptor: CInt
        repeat { descriptor = wa_open("/dev/null", O_RDWR, 0) } while descriptor >= 0 && descriptor <= 2
        if descriptor > 2 { close(descriptor) }
        wa_ignore_sigpipe()
        let signals = handledSignals + [SIGCHLD]
        _ = wa_block_signals(signals, CInt(signals.count))
        wa_limit_malloc_arenas(2)
        return Inherited(descriptorLimit: wa_raise_nofile(), fileMask: umask(0o077))
    }

    private static func compose(
        _ configuration: AgentConfiguration, _ inherited: Inherited, _ group: MultiThreadedEventLoopGroup,
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
        let pool = BlockingPool(threads: 2, reserve: 14)
        let systemd = Systemd(environment: configuration.environment)
        let clock = AgentClock(EventLoopClock(group: group))

        let processes = try makeProcesses(
            configuration, inherited, pool, executor, clock, metrics, logger)
        var side: ControlPlaneSide?
        if let settings = configuration.link {
            side = try ControlPlaneSide(
                settings,
                .init(
                    configuration: configuration, group: group, executor: executor, pool: pool,
                    runner: processes.commands, metrics: metrics, health: health, logger: logger, clock: clock))
        } else {
            health.set(
                "control plane", .init("control plane: standalone, no --agent-url was given", degrades: false))
        }
        let git = GitWatcher(
            configuration: .init(
                executable: "/proc/self/exe", environment: EnvironmentBuilder(base: configuration.environment).build(),
                watchBudget: configuration.environment["WORKSPACE_AGENT_GIT_WATCH_BUDGET"].flatMap { Int($0) }),
            launcher: WorkerProcesses(launcher: processes.launcher, reactor: processes.reactor), metrics: metrics,
            health: health, logger: logger)
        let current = side?.manifest
        let manager = makeManager(
            configuration, stateLock.problem, processes, pool, executor, clock,
            side?.environment ?? EnvironmentBuilder(base: configuration.environment), current, git, metrics, health,
            logger)
        let desktop = DesktopParts(
            .init(
                configuration: configuration,
                environment: side?.environment ?? EnvironmentBuilder(base: configuration.environment),
                manager: manager, runner: processes.commands, pool: pool, executor: executor, metrics: metrics,
                health: health, logger: logger, clock: clock,
                directory: { current?.snapshot?.directory ?? configuration.directory }))
        let routes = AgentRoutes()
        CoreRoutes(
            health: health, metrics: metrics, ports: ListeningPorts(pool: pool),
            manifest: { current?.snapshot.flatMap { try? ManifestReport($0).json() }.map { ByteBuffer(bytes: $0) } },
            logTail: { maximum in
                guard let logFile else { return ByteBuffer() }
                return try await pool.run {
                    pipeline.flush()
                    return logFile.tail(maximum)
                }
            }
        ).add(to: routes)
        ProcessRoutes(manager: manager, pool: pool).add(to: routes)
        GitWatchRoutes(watcher: git).add(to: routes)
        desktop.add(to: routes)

        let trimmer = MemoryTrimmer(group.next())
        let service = HTTPService(routes: routes, metrics: metrics, logger: logger) { trimmer.noteActivity() }
        let server = HTTPServer(service: service, group: group, logger: logger) {
            manager.beginShutdown()
            desktop.session.beginShutdown()
            systemd.stopping()
        }
        var listeners = Listeners(page: desktop.viewer.page)
        var extra: [any Service] = []
        defer { listeners.token?.remove() }
        do {
            try await listeners.open(configuration, server, systemd, health, logger)
            if let address = configuration.prometheusAddress {
                extra.append(try await metricsServer(address, configuration, metrics, health, group, pool, logger))
            }
        } catch {
            // Whatever was opened before the one that failed goes away again.
            await server.stop()
            await processes.reactor.stop()
            await side?.close()
            throw error
        }
        var services: [any Service] = [
            git, ProcessService(manager: manager, commands: processes.commands), desktop.service, server,
        ]
        services += extra

        // Without a control plane, too: they wait on disk for the day there is one.
        let boundary = boundaryLogs(configuration, group, clock, metrics, health, logger)
        if let boundary {
            services.append(boundary.proxy)
            listeners.descriptions.append("boundary logs \(boundary.path)")
        }
        let local = LocalServices()
        let agent = side?.agent(
            connections: { server.openConnections }, boundary: boundary?.routine,
            stopAcceptingWork: {
                manager.beginShutdown()
                systemd.stopping()
            },
            closeLocal: { await local.stop() })
        if let socket = agentSocket(configuration, group, agent, metrics, health, logger) {
            services.append(socket.server)
            listeners.descriptions.append("agent socket \(socket.path)")
        }

        let serviceGroup = ServiceGroup(
            configuration: .init(
                services: services.map { .init(service: $0, successTerminationBehavior: .gracefullyShutdownGroup) },
                logger: logger))
        local.set(serviceGroup)
        processes.stop.set {
            Task(executorPreference: executor) {
                if let agent { _ = await agent.shutdown() } else { await local.stop() }
            }
        }
        let addresses = listeners.descriptions.joined(separator: ", ")
        let upward = configuration.link.map { ", control plane \($0.address)" } ?? ""
        logger.info(
            "workspace-agent \(BuildInfo.version) listening on \(addresses)\(upward)",
            metadata: ["instance": "\(service.instance.lowercased)", "pid": "\(getpid())"])
        systemd.ready("Listening on \(addresses)")
        if configuration.printsExamples { listeners.printExamples() }
        trimmer.started()
        try await run(local, agent)
        let lost = await boundary?.queue.close() ?? 0
        await processes.reactor.stop()
        await side?.close()
        logger.info("stopped")
        if lost > 0 {
            throw CommandFailure(message: "\(lost) batches of boundary logs could not be written; the log says why")
        }
        if agent?.delivered == false {
            throw CommandFailure(
                message: "not everything was delivered to the control plane; the log names what is missing")
        }
    }

    /// Runs the local services and the agent until both have ended; the end of one ends the other.
    private static func run(_ local: LocalServices, _ agent: ControlPlaneAgent?) async throws {
        guard let agent else { return try await local.run() }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                let result: Result<Void, any Error>
                do { result = .success(try await local.run()) } catch { result = .failure(error) }
                // Where they ended by themselves the agent does not know yet.
                _ = await agent.shutdown()
                try result.get()
            }
            group.addTask { try await agent.run() }
            try await group.waitForAll()
        }
    }

    private struct Processes {
        var launcher: Launcher
        var reactor: Reactor
        var stop: StopSignal
        /// Keeps the signal descriptor's owner.
        var reaper: OrphanReaper
        var commands: CommandLauncher
    }

    private static func makeProcesses(
        _ configuration: AgentConfiguration, _ inherited: Inherited, _ pool: BlockingPool,
        _ executor: EventLoopTaskExecutor, _ clock: AgentClock, _ metrics: MetricsRegistry, _ logger: Logger
    ) throws -> Processes {
        let reactor = try Reactor()
        guard reactor.start() else { throw CommandFailure(message: "cannot start a thread") }
        let launcher = try Launcher(
            priority: configuration.priority, descriptorLimit: inherited.descriptorLimit, fileMask: inherited.fileMask)
        if configuration.reapsOrphans { _ = wa_set_child_subreaper(true) }
        let stop = StopSignal()
        let signals = handledSignals + [SIGCHLD]
        let reaper = try OrphanReaper(
            signals: wa_signalfd(signals, CInt(signals.count)), reapsOrphans: configuration.reapsOrphans,
            launcher: launcher, reactor: reactor, onSignal: { stop.received($0, logger) })
        let commands = CommandLauncher(
            launcher: launcher, reactor: reactor, pool: pool, executor: executor, clock: clock, metrics: metrics,
            logger: logger)
        commands.setAfterReap { reaper.reap() }
        return Processes(launcher: launcher, reactor: reactor, stop: stop, reaper: reaper, commands: commands)
    }

    private static func makeManager(
        _ configuration: AgentConfiguration, _ stateProblem: String?, _ processes: Processes, _ pool: BlockingPool,
        _ executor: EventLoopTaskExecutor, _ clock: AgentClock, _ environment: EnvironmentBuilder,
        _ current: CurrentManifest?, _ paths: any PathStore, _ metrics: MetricsRegistry, _ health: HealthRegistry,
        _ logger: Logger
    ) -> ProcessManager {
        var spools: SpoolStore?
        let disk = BlockingPool("spool", threads: 1)
        do {
            if let stateProblem { throw CoreError(.invalid, stateProblem) }
            spools = try SpoolStore(directory: "\(configuration.stateDirectory)/processes", disk: disk)
        } catch {
            logger.warning("complete process output is not kept", metadata: ["error": "\(error)"])
            health.set("process spool", .init("process spool: \(error)"))
        }
        let directory = configuration.directory
        let manager = ProcessManager(
            configuration: .init(
                directory: { current?.snapshot?.directory ?? directory },
                home: AgentConfiguration.home(configuration.environment), environment: environment, paths: paths,
                clock: clock, memoryEvents: OOMEvents.defaultPath()),
            launcher: processes.launcher, reactor: processes.reactor, pool: pool, executor: executor, spools: spools,
            metrics: metrics, logger: logger)
        let reaper = processes.reaper
        manager.setAfterReap { reaper.reap() }
        return manager
    }

    private struct BoundaryLogs {
        var proxy: BoundaryProxy
        var path: String
        var queue: DurableQueue
        var routine: ForwardBoundaryLogs
    }

    /// As the agent socket: without it everything else still works, and /healthz says so.
    private static func boundaryLogs(
        _ configuration: AgentConfiguration, _ group: any EventLoopGroup, _ clock: AgentClock,
        _ metrics: MetricsRegistry, _ health: HealthRegistry, _ logger: Logger
    ) -> BoundaryLogs? {
        guard let path = configuration.boundarySocket else { return nil }
        do {
            let counters = BoundaryMetrics(registry: metrics)
            var store = DurableQueue.Configuration(directory: configuration.stateDirectory)
            store.startsWhenNeeded = true
            let queue = try DurableQueue(
                configuration: store, clock: clock, metrics: counters, registry: metrics, logger: logger)
            let proxy = BoundaryProxy(
                configuration: .init(path: path, mode: mode_t(configuration.boundarySocketMode)), queue: queue,
                group: group, metrics: counters, logger: logger)
            try proxy.bind()
            health.register("boundary logs") { queue.health() }
            let forwarder = BoundaryForwarder(queue: queue, clock: clock, metrics: counters, logger: logger)
            return BoundaryLogs(
                proxy: proxy, path: path, queue: queue, routine: .init(forwarder: forwarder, queue: queue))
        } catch {
            logger.error("boundary logs are not taken", metadata: ["error": "\(error)"])
            health.set("boundary logs", .init("boundary logs: \(error)"))
            return nil
        }
    }

    /// A socket that cannot be had is no reason to withhold everything else: it is logged and shown by
    /// /healthz.
    private static func agentSocket(
        _ configuration: AgentConfiguration, _ group: any EventLoopGroup, _ agent: ControlPlaneAgent?,
        _ metrics: MetricsRegistry, _ health: HealthRegistry, _ logger: Logger
    ) -> (server: AgentSocketServer, path: String)? {
        guard let path = configuration.agentSocket else { return nil }
        let server = AgentSocketServer(
            configuration: .init(path: path), units: UnitStore(),
            forwarder: agent.map { LinkForwarder(agent: $0) } ?? OfflineForwarder(), group: group, logger: logger,
            metrics: metrics)
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
        let port: Int
        do {
            port = try await server.serve(host: address.host, port: address.port, policy: policy)
        } catch {
            throw CommandFailure(message: "--prometheus-address: \(error)")
        }
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
