import AgentCore
import AgentHTTP
import AgentProc
import AgentSocket
import CPlatform
import Files
import GitWatch
import Glibc
import Metrics
import NIOCore
import NIOPosix
import ServiceLifecycle
import Synchronization
import Tailnet
import WorkspaceScripts

/// Puts the daemon together and runs it until a signal stops it.
enum Daemon {
    // A signal that was ignored at the start (nohup, a script's background job) stays ignored.
    static let handledSignals = [SIGTERM, SIGINT, SIGHUP].filter { !wa_signal_is_ignored($0) }

    /// Returns when everything has ended in order.
    /// - Throws: ``CommandFailure`` with one line for the terminal.
    static func run(_ configuration: AgentConfiguration) throws {
        let inherited = prepareProcess()
        try DescriptorBudget.check()
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
    struct Inherited {
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

    /// Makes the parts, from the bottom up, runs them as one service group and closes what they used.
    private static func compose(
        _ configuration: AgentConfiguration, _ inherited: Inherited, _ group: MultiThreadedEventLoopGroup,
        _ executor: EventLoopTaskExecutor
    ) async throws {
        // The runtime's own pool, which only the shutdown uses, ends the process when it begins without a descriptor: it gets
        // those that it needs now.
        await Task.detached {}.value
        let log = try DaemonLog(configuration)
        defer { log.pipeline.flush() }
        let state = try StateDirectory.open(configuration.stateDirectory)
        defer { state.release() }
        let context = DaemonContext(configuration, group, executor, log.logger, state)
        context.metrics.addSelfMetrics()
        MetricsSystem.bootstrap(SwiftMetricsBridge(registry: context.metrics))
        if let problem = state.problem {
            let text = "state directory: \(problem); the daemon keeps nothing over a restart"
            context.logger.warning("\(text)")
            context.health.set("state directory", .init(text))
        }
        let disk = DiskHealth(DiskChecks.places(configuration), clock: context.clock)
        context.health.register("disk") { disk.report() }
        let systemd = Systemd(environment: configuration.environment)

        let processes = try ProcessParts(context, inherited)
        let upward = try ControlPlaneParts(context, processes.commands)
        let current = upward?.manifest
        let environment = upward?.environment ?? context.environment
        let watches = WatchBudget(
            limit: configuration.environment["WORKSPACE_AGENT_GIT_WATCH_BUDGET"].flatMap { Int($0) })
        let git = GitWatcher(
            configuration: .init(
                executable: "/proc/self/exe", environment: context.environment.build(),
                watchBudget: watches),
            launcher: WorkerProcesses(launcher: processes.launcher, reactor: processes.reactor),
            metrics: context.metrics, health: context.health, logger: context.logger)
        let manager = processes.manager(
            context, stateProblem: state.problem, environment: environment, current: current, paths: git)
        let desktop = DesktopParts(
            context, environment: environment, manager: manager, runner: processes.commands,
            directory: { current?.snapshot?.directory ?? configuration.directory })

        let routes = AgentRoutes()
        coreRoutes(context, log, current).add(to: routes)
        ProcessRoutes(manager: manager, pool: context.pool).add(to: routes)
        GitWatchRoutes(watcher: git).add(to: routes)
        FilesRoutes(await context.files(inherited, state, paths: git, watches: watches)).add(to: routes)
        desktop.add(to: routes)
        let units = context.units(state)
        UnitRoutes(units: units).add(to: routes)
        ScriptRoutes(
            manifest: current ?? CurrentManifest(), history: upward?.scriptHistory ?? ScriptHistory(),
            pool: context.pool
        ).add(to: routes)
        LogStream(log: log.pipeline.recent, clock: context.clock).add(to: routes)
        let page = PageParts(context, state)
        let identity = PageRoutes.Identity(context, current)
        page?.add(to: routes, identity: identity)
        let overview = OverviewRoute(identity: identity, health: context.health, processes: { manager.counts }) {
            page?.sessions.mode(of: $0.head) ?? .on
        }
        overview.add(to: routes)
        let tailnet = TailnetParts(context, upward)
        TailnetRoutes(tailnet?.current ?? CurrentNode(nil), pool: context.pool) {
            TailnetParts.absence(configuration)
        }.add(to: routes)
        OpenAPIRoute.add(to: routes)
        context.logger.trace("routes", metadata: ["routes": "\(routes.list.joined(separator: ", "))"])
        let trimmer = MemoryTrimmer(group.next())
        var limits = HTTPLimits()
        limits.maximumConnections = context.descriptors.http
        // Where few are served at once, a crowd of silent clients is through sooner.
        if context.descriptors.http < HTTPLimits.connections { limits.firstRequestGrace = DescriptorBudget.grace }
        let service = HTTPService(
            routes: routes, metrics: context.metrics, logger: context.logger, instance: identity.instance,
            limits: limits
        ) { trimmer.noteActivity() }
        let http = HTTPServer(service: service, group: group, logger: context.logger)
        var listeners = Listeners(page: desktop.viewer.page, sessions: page?.sessions)
        defer { listeners.token?.remove() }
        let metricsServer: HTTPServer?
        let tunnel: TunnelParts?
        do {
            try await listeners.open(context, http, systemd)
            metricsServer = try await context.metricsServer()
            let services = try await TunnelParts.services(context, http)
            tunnel = try await TunnelParts.open(context) { port in
                var services = services
                services.ownUDPPorts = [port]
                return services
            }
            tailnet?.serve(services)
        } catch {
            // Those that were opened before the one that failed.
            await http.stop()
            await processes.reactor.stop()
            await upward?.close()
            throw error
        }
        if let tunnel { listeners.descriptions.append(tunnel.description) }
        await page?.listening(http, tcp: listeners.tcp)
        let boundary = BoundaryParts(context)
        if let boundary { listeners.descriptions.append("boundary logs \(boundary.path)") }
        let agent = upward?.agent(
            connections: { http.openConnections }, boundary: boundary?.routine, tailnet: tailnet,
            onClaim: { units.forgetAll() })
        let socket = context.agentSocket(units, agent, gitLogins: upward?.gitLogins)
        if let socket { listeners.descriptions.append("agent socket \(socket.path)") }

        overview.set(
            .init(
                link: agent.flatMap { agent in configuration.link.map { ($0.address, agent) } },
                boundary: boundary?.queue,
                usage: UsageSamples(clock: context.clock) { http.openConnections.values.reduce(0, +) }))

        // Shutdown goes through this list from its end: see docs/architecture.md.
        let services: [(any Service)?] = [
            agent,
            git,
            ProcessService(manager: manager, commands: processes.commands),
            desktop.service,
            http,
            metricsServer,
            boundary?.proxy,
            socket?.server,
            ShutdownBeginning(agent: agent) {
                tailnet?.beginShutdown()
                service.beginShutdown()
                log.pipeline.recent.close()
                manager.beginShutdown()
                desktop.session.beginShutdown()
                systemd.stopping()
            },
        ]
        let serviceGroup = ServiceGroup(
            configuration: .init(
                services: services.compactMap { $0 }.map {
                    .init(
                        service: $0, successTerminationBehavior: .gracefullyShutdownGroup,
                        failureTerminationBehavior: .gracefullyShutdownGroup)
                },
                logger: context.logger))
        processes.stop.set { Task(executorPreference: executor) { await serviceGroup.triggerGracefulShutdown() } }

        let addresses = listeners.descriptions.joined(separator: ", ")
        let control = configuration.link.map { ", control plane \($0.address)" } ?? ""
        context.logger.info(
            "workspace-agent \(BuildInfo.version) listening on \(addresses)\(control)",
            metadata: ["instance": "\(service.instance.lowercased)", "pid": "\(getpid())"])
        systemd.ready("Listening on \(addresses)")
        let watchdog = systemd.watchdogMicroseconds.map {
            Watchdog(every: .microseconds($0 / 2), group: group, reactor: processes.reactor, ping: systemd.alive)
        }
        watchdog?.start()
        // To the end: a shutdown may take longer than systemd waits for a sign of life.
        defer { withExtendedLifetime(watchdog) {} }
        if configuration.printsExamples { listeners.printExamples() }
        if let show = configuration.showPage, let address = try? await page?.invitation() { show(address) }
        trimmer.started()
        // A service that failed has ended the others in order; what they used is closed all the same.
        let outcome: Result<Void, any Error>
        do { outcome = .success(try await serviceGroup.run()) } catch { outcome = .failure(error) }
        await tunnel?.close()
        await tailnet?.close()
        await units.kept()
        let lost = await boundary?.queue.close() ?? 0
        await processes.reactor.stop()
        await upward?.close()
        try outcome.get()
        context.logger.info("stopped")
        if lost > 0 {
            throw CommandFailure(message: "\(lost) batches of boundary logs could not be written; the log says why")
        }
        if agent?.delivered == false {
            throw CommandFailure(
                message: "not everything was delivered to the control plane; the log names what is missing")
        }
    }

    private static func coreRoutes(
        _ context: DaemonContext, _ log: DaemonLog, _ current: CurrentManifest?
    ) -> CoreRoutes {
        let pipeline = log.pipeline
        return CoreRoutes(
            health: context.health, metrics: context.metrics, ports: ListeningPorts(pool: context.pool),
            manifest: { current?.snapshot.flatMap { try? ManifestReport($0).json() }.map { ByteBuffer(bytes: $0) } },
            log: log.file, pool: context.pool, flushLog: { pipeline.flush() })
    }
}
