import AgentCore
import AgentHTTP
import AgentProc
import AgentSocket
import ControlPlane
import Files
import GitWatch
import Glibc
import ServiceLifecycle
import Tailnet
import WorkspaceScripts

/// The daemon, put together from the bottom up. Its sockets are bound, so that clients are not refused, and nothing
/// answers before ``start()``.
struct Composition {
    private let context: DaemonContext
    private let http: HTTPServer
    private let service: HTTPService
    private let metricsServer: (server: HTTPServer, service: HTTPService)?
    private let listeners: Listeners
    private let upward: ControlPlaneParts?
    private let agent: ControlPlaneAgent?
    private let boundary: BoundaryParts?
    private let units: UnitStore
    private let page: PageParts?
    private let trimmer: MemoryTrimmer
    private let systemd: Systemd
    private let stop: StopSignal
    private let reserve: DescriptorReserve
    /// Services start from the first to the last and end from the last to the first: see docs/architecture.md.
    private let capabilities: [Capability]

    /// - Throws: ``CommandFailure`` when something is missing without which the daemon is not to run; what was opened
    ///   before is closed then.
    init(
        _ context: DaemonContext, _ state: StateDirectory, _ systemd: Systemd, _ processes: ProcessParts,
        _ inherited: Daemon.Inherited, _ reserve: DescriptorReserve
    ) async throws {
        (self.context, self.systemd, self.reserve, stop) = (context, systemd, reserve, processes.stop)
        let (configuration, pool, clock) = (context.configuration, context.pool, context.clock)
        let upward = try ControlPlaneParts(context, processes.commands)
        let manifest = upward?.manifest ?? CurrentManifest()
        let environment = upward?.environment ?? context.environment
        let disk = DiskHealth(DiskChecks.places(configuration), clock: clock)
        context.health.register("disk") { disk.report() }
        let watches = context.watchBudget
        let git = context.gitWatcher(processes, watches)
        let manager = processes.manager(
            context, stateProblem: state.problem, environment: environment, manifest: manifest, paths: git)
        let desktop = DesktopParts(
            context, environment: environment, manager: manager, runner: processes.commands,
            directory: { manifest.snapshot?.directory ?? configuration.directory })
        let files = FilesRoutes(await context.files(inherited, state, paths: git, watches: watches))
        let scripts = ScriptRoutes(
            manifest: manifest, history: upward?.scriptHistory ?? ScriptHistory(), pool: pool)
        let units = context.units(state)
        let sessions = context.pageSessions(state)
        let identity = PageRoutes.Identity(context, manifest)

        var limits = HTTPLimits()
        limits.maximumConnections = context.descriptors.http
        // Where few are served at once, a crowd of silent clients is through sooner.
        if context.descriptors.http < HTTPLimits.connections { limits.firstRequestGrace = DescriptorBudget.grace }
        let http = HTTPServer(
            group: context.group, metrics: context.metrics, limits: limits, logger: context.logger)
        var listeners = Listeners(page: desktop.viewer.page, sessions: sessions)
        let (tunnel, tailnet): (TunnelParts?, TailnetParts?)
        do {
            try await listeners.open(context, http, systemd)
            metricsServer = try await context.metricsServer()
            // After all that this process listens on: peers do not get to it.
            let ports = try await TunnelParts.ports(context, http)
            tunnel = try await TunnelParts(context, ports)
            tailnet = TailnetParts(context, upward, ports)
        } catch {
            await http.stop()
            listeners.token?.remove()
            await upward?.close()
            throw error
        }
        let page = sessions.map { PageParts($0, context, http, tcp: listeners.tcp) }
        await page?.reopen()
        let boundary = BoundaryParts(context)
        let connections: @Sendable () -> [String: Int64] = { http.openConnections }
        let agent = upward?.agent(
            connections: connections, boundary: boundary?.routine, tailnet: tailnet,
            onClaim: { units.forgetAll() })
        let socket = context.agentSocket(units, agent, gitLogins: upward?.gitLogins)
        let overview = OverviewRoute(
            identity: identity, health: context.health, processes: { manager.counts },
            mode: { request in sessions?.mode(of: request.head) ?? .on },
            link: agent.flatMap { agent in configuration.link.map { ($0.address, agent) } },
            boundary: boundary?.queue,
            usage: UsageSamples(clock: clock) { connections().values.reduce(0, +) })

        capabilities = [
            Capability(services: list(tunnel)),
            Capability(services: list(tailnet), beginShutdown: { tailnet?.beginShutdown() }) {
                TailnetRoutes(tailnet?.current ?? CurrentNode(nil), pool: pool) {
                    TailnetParts.absence(configuration)
                }.add(to: $0)
            },
            Capability(services: list(agent)),
            Capability(services: [git], routes: GitWatchRoutes(watcher: git).add),
            Capability(
                services: [ProcessService(manager: manager, commands: processes.commands)],
                beginShutdown: { manager.beginShutdown() }, routes: ProcessRoutes(manager: manager, pool: pool).add),
            Capability(routes: files.add),
            desktop.capability,
            Capability(routes: scripts.add),
            Capability(routes: { page?.add(to: $0, identity: identity) }),
            Capability(routes: overview.add),
            context.core(manifest: upward?.manifest),
            Capability(services: [http], listening: listeners.descriptions + list(tunnel?.description)),
            Capability(services: list(metricsServer?.server)),
            Capability(services: list(boundary?.proxy), listening: list(boundary.map { "boundary logs \($0.path)" })),
            Capability(
                services: list(socket?.server), listening: list(socket.map { "agent socket \($0.path)" }),
                routes: UnitRoutes(units: units).add),
        ]

        let routes = AgentRoutes()
        for capability in capabilities { capability.routes(routes) }
        context.logger.trace("routes", metadata: ["routes": "\(routes.list.joined(separator: ", "))"])
        let trimmer = MemoryTrimmer(context.group.next())
        service = HTTPService(
            routes: routes, metrics: context.metrics, logger: context.logger, instance: identity.instance,
            limits: limits
        ) { trimmer.noteActivity() }
        (self.http, self.listeners, self.trimmer) = (http, listeners, trimmer)
        (self.upward, self.agent, self.boundary, self.page, self.units) = (upward, agent, boundary, page, units)
    }

    /// Where it listens.
    var addresses: String { capabilities.flatMap(\.listening).joined(separator: ", ") }

    /// All services, and last what begins the shutdown.
    func serviceGroup() -> ServiceGroup {
        let beginning = ShutdownBeginning(signal: stop, reserve: reserve, agent: agent) {
            [service, capabilities, systemd] in
            service.beginShutdown()
            for capability in capabilities { capability.beginShutdown() }
            systemd.stopping()
        }
        let services = capabilities.flatMap(\.services) + [beginning]
        return ServiceGroup(
            configuration: .init(
                services: services.map {
                    .init(
                        service: $0, successTerminationBehavior: .gracefullyShutdownGroup,
                        failureTerminationBehavior: .gracefullyShutdownGroup)
                },
                logger: context.logger))
    }

    /// From here on clients are answered.
    func start() {
        http.start(service)
        if let metricsServer { metricsServer.server.start(metricsServer.service) }
        let control = context.configuration.link.map { ", control plane \($0.address)" } ?? ""
        context.logger.info(
            "workspace-agent \(BuildInfo.version) listening on \(addresses)\(control)",
            metadata: ["instance": "\(service.instance.lowercased)", "pid": "\(getpid())"])
        trimmer.started()
    }

    /// Prints what the terminal of `run` and `dev` shows.
    func greet() async {
        if context.configuration.printsExamples { listeners.printExamples() }
        if let show = context.configuration.showPage, let address = try? await page?.invitation() { show(address) }
    }

    /// Closes what the services used, after they have ended.
    /// - Returns: what could not be kept or delivered, as one sentence.
    func close() async -> String? {
        await units.kept()
        let lost = await boundary?.queue.close() ?? 0
        listeners.token?.remove()
        await upward?.close()
        if lost > 0 { return "\(lost) batches of boundary logs could not be written; the log says why" }
        if agent?.delivered == false {
            return "not everything was delivered to the control plane; the log names what is missing"
        }
        return nil
    }
}

/// None or one.
private func list<Element>(_ element: Element?) -> [Element] { element.map { [$0] } ?? [] }
