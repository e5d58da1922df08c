import AgentCore
import AgentHTTP
import AgentProc
import AgentSocket
import BoundaryLog
import CPlatform
import ControlPlane
import GitWatch
import Glibc
import LocalAgent
import NIOCore
import WorkspaceScripts

/// What starts, watches and reaps processes.
struct ProcessParts {
    let launcher: Launcher
    let reactor: Reactor
    let stop: StopSignal
    let reaper: OrphanReaper
    let commands: CommandLauncher

    init(_ context: DaemonContext, _ inherited: Daemon.Inherited) throws {
        let (configuration, logger) = (context.configuration, context.logger)
        let stop = StopSignal(logger: logger)
        reactor = try Reactor()
        guard reactor.start() else { throw CommandFailure(message: "cannot start a thread") }
        launcher = try Launcher(
            priority: configuration.priority, descriptorLimit: inherited.descriptorLimit, fileMask: inherited.fileMask)
        if configuration.reapsOrphans { _ = wa_set_child_subreaper(true) }
        let reaper = OrphanReaper(isEnabled: configuration.reapsOrphans, launcher: launcher, reactor: reactor)
        try SignalSource(Daemon.handledSignals, reactor: reactor, reaper: reaper) { stop.received($0) }
        commands = CommandLauncher(
            launcher: launcher, reactor: reactor, pool: context.pool, executor: context.executor, clock: context.clock,
            metrics: context.metrics, logger: logger)
        commands.setAfterReap { reaper.managedChildReaped() }
        (self.stop, self.reaper) = (stop, reaper)
    }

    /// What the process API starts.
    /// - Parameter stateProblem: why the state directory cannot be used, if so.
    func manager(
        _ context: DaemonContext, stateProblem: String?, environment: EnvironmentBuilder, manifest: CurrentManifest,
        paths: any PathStore
    ) -> ProcessManager {
        let configuration = context.configuration
        var spools: SpoolStore?
        do {
            if let stateProblem { throw CoreError(.invalid, stateProblem) }
            spools = try SpoolStore(
                directory: "\(configuration.stateDirectory)/processes", disk: BlockingPool("spool", threads: 1))
        } catch {
            context.logger.warning("complete process output is not kept", metadata: ["error": "\(error)"])
            context.health.set("process spool", .init("process spool: \(error)"))
        }
        let manager = ProcessManager(
            configuration: .init(
                directory: { manifest.snapshot?.directory ?? configuration.directory },
                home: AgentPaths.home(configuration.environment), environment: environment, paths: paths,
                clock: context.clock, memoryEvents: OOMEvents.defaultPath()),
            launcher: launcher, reactor: reactor, pool: context.pool, executor: context.executor, spools: spools,
            metrics: context.metrics, logger: context.logger)
        manager.setAfterReap { [reaper] in reaper.managedChildReaped() }
        return manager
    }
}

/// What takes boundary's logs and keeps them until they are delivered, with or without a control plane.
struct BoundaryParts {
    let proxy: BoundaryProxy
    let path: String
    let queue: DurableQueue
    let routine: ForwardBoundaryLogs

    /// nil when boundary logs are disabled, or their socket or queue cannot be opened: everything else still
    /// works, and /healthz says why.
    init?(_ context: DaemonContext) {
        let (configuration, health, logger) = (context.configuration, context.health, context.logger)
        guard let path = configuration.boundarySocket else { return nil }
        do {
            if let problem = SQLiteLibrary.problem {
                throw BoundaryError(.noLibrary, "\(problem); install libsqlite3-0")
            }
            let counters = BoundaryMetrics(registry: context.metrics)
            var store = DurableQueue.Configuration(directory: configuration.stateDirectory)
            store.startsWhenNeeded = true
            let queue = try DurableQueue(
                configuration: store, clock: context.clock, metrics: counters, registry: context.metrics,
                logger: logger)
            proxy = BoundaryProxy(
                configuration: .init(
                    path: path, mode: mode_t(configuration.boundarySocketMode),
                    maximumConnections: context.descriptors.boundary), queue: queue,
                group: context.group, metrics: counters, logger: logger)
            try proxy.bind()
            health.register("boundary logs") { queue.health() }
            let forwarder = BoundaryForwarder(queue: queue, clock: context.clock, metrics: counters, logger: logger)
            routine = ForwardBoundaryLogs(forwarder: forwarder, queue: queue)
            (self.path, self.queue) = (path, queue)
        } catch {
            logger.error("not accepting boundary logs", metadata: ["error": "\(error)"])
            health.set("boundary logs", .init("boundary logs: \(error)"))
            return nil
        }
    }
}

extension DaemonContext {
    /// Connections of the listener for Prometheus alone.
    private static let metricsConnections = 32

    /// The units, with those of a daemon that ran before this one since the machine started.
    func units(_ state: StateDirectory) -> UnitStore {
        if let problem = state.problem {
            logger.warning("units would not outlive the daemon", metadata: ["error": "\(problem)"])
            health.set("units", .init("units: they would not outlive the daemon: \(problem)"))
            return UnitStore()
        }
        let journal = UnitJournal(
            path: "\(configuration.stateDirectory)/units", machine: MachineStart.identity(), pool: pool,
            executor: executor, clock: clock, logger: logger)
        health.register("units") {
            journal.problem.map { .init("units: they would not outlive the daemon: \($0)") }
        }
        return UnitStore(journal: journal)
    }

    /// What all watching of files may take together.
    var watchBudget: WatchBudget {
        WatchBudget(limit: configuration.environment["WORKSPACE_AGENT_GIT_WATCH_BUDGET"].flatMap { Int($0) })
    }

    func gitWatcher(_ processes: ProcessParts, _ watches: WatchBudget) -> GitWatcher {
        GitWatcher(
            configuration: .init(
                executable: OwnProgram.ownExecutable, environment: environment.build(), watchBudget: watches),
            launcher: WorkerProcesses(launcher: processes.launcher, reactor: processes.reactor), metrics: metrics,
            health: health, logger: logger)
    }

    /// nil when the agent socket is disabled, or cannot be opened: everything else still works, and /healthz
    /// says why.
    func agentSocket(
        _ units: UnitStore, _ agent: ControlPlaneAgent?, gitLogins: (any GitLoginForwarder)?
    ) -> (server: AgentSocketServer, path: String)? {
        guard let path = configuration.agentSocket else { return nil }
        let server = AgentSocketServer(
            configuration: .init(path: path, maximumConnections: descriptors.agentSocket), units: units,
            forwarder: agent.map { LinkForwarder(agent: $0) } ?? OfflineForwarder(), gitLogins: gitLogins,
            group: group, logger: logger, metrics: metrics)
        do {
            try server.bind()
            return (server, path)
        } catch {
            logger.error("the agent socket is not served", metadata: ["error": "\(error)"])
            health.set("agent socket", .init("agent socket: \(error)"))
            return nil
        }
    }

    /// A server of its own for `--prometheus-address`, bound and not started yet; nil without one.
    func metricsServer() async throws -> (server: HTTPServer, service: HTTPService)? {
        guard let address = configuration.prometheusAddress else { return nil }
        let routes = AgentRoutes()
        CoreRoutes(health: health, metrics: metrics, ports: ListeningPorts(pool: pool), pool: pool)
            .addMetrics(to: routes)
        // A registry of its own: this listener's requests are not the API's.
        let own = MetricsRegistry()
        var limits = HTTPLimits()
        limits.maximumConnections = min(Self.metricsConnections, descriptors.http)
        let service = HTTPService(routes: routes, metrics: own, logger: logger, limits: limits)
        let server = HTTPServer(group: group, metrics: own, limits: limits, logger: logger)
        let policy = AccessPolicy(
            tokenRule: .none, allowedHosts: configuration.allowedHosts.union([address.host]), ownUID: geteuid())
        let port: Int
        do {
            port = try await server.serve(host: address.host, port: address.port, policy: policy)
        } catch {
            throw CommandFailure(message: "--prometheus-address: \(error)")
        }
        logger.info("serving metrics", metadata: ["address": "\(address.host):\(port)"])
        return (server, service)
    }
}
