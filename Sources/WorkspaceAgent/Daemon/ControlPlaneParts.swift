import AgentCore
import AgentProto
import AgentSocket
import ControlPlane
import ControlPlaneAPI
import DERP
import GitCredentials
import LocalAgent
import Synchronization
import WorkspaceScripts

/// The daemon's parts that exist only with a control plane, put together.
struct ControlPlaneParts: Sendable {
    let environment: EnvironmentBuilder
    let manifest = CurrentManifest()
    let scriptHistory = ScriptHistory()
    private let access: ControlPlaneAccess
    private let context: DaemonContext
    private let runner: any CommandRunner
    private let subsystems: [Coder_Agent_V2_Startup.Subsystem]
    private let runtime: LinkRuntime
    private let scriptPool = BlockingPool("scripts", threads: 2)
    /// Outlives sessions: it knows which volume hangs.
    private let volumes: ResourcesMonitor

    /// nil without a control plane; /healthz says so.
    /// - Throws: ``CommandFailure`` for a setting that makes no sense.
    init?(_ context: DaemonContext, _ runner: any CommandRunner) throws {
        let configuration = context.configuration
        guard let settings = configuration.link else {
            context.health.set(
                "control plane", .init("control plane: standalone, no --agent-url was given", degrades: false))
            return nil
        }
        let checked: LinkConfiguration
        do {
            checked = try LinkConfiguration(settings.input(configuration.environment))
            subsystems = try Subsystems.parse(configuration.environment["CODER_AGENT_SUBSYSTEM"])
        } catch {
            throw CommandFailure(message: "\(error)", code: 2)
        }
        do { try checked.checkFiles() } catch { throw CommandFailure(message: "\(error)") }
        (self.context, self.runner) = (context, runner)
        runtime = LinkRuntime(clock: context.clock, executor: context.executor, logger: context.logger)
        let access = ControlPlaneAccess(
            checked, group: context.group, pool: context.pool, clock: context.clock, runner: runner,
            environment: context.environment.build(), logger: context.logger)
        self.access = access
        environment = EnvironmentBuilder(
            base: configuration.environment, local: context.local,
            agent: AgentLayer(
                url: settings.url, token: { access.tokens.last }, executable: OwnProgram.path,
                scriptBinDirectory: Self.binDirectory(context)),
            logger: context.logger)
        volumes = ResourcesMonitor(pool: context.pool, runtime: runtime)
    }

    /// How relays of the tailnet are reached.
    var relays: any RelayTransport { access.relays }

    /// What git of this workspace logs in with.
    var gitLogins: any GitLoginForwarder {
        GitLoginService(logins: GitLogins(source: ControlPlaneLogins(rest: access.rest), clock: context.clock))
    }

    private static func scriptState(_ configuration: AgentConfiguration) -> String {
        "\(configuration.stateDirectory)/scripts"
    }

    /// nil where another user could put programs first in everyone's PATH.
    private static func binDirectory(_ context: DaemonContext) -> String? {
        let state = scriptState(context.configuration)
        let directory = ScriptRunner.binDirectory(state: state)
        do {
            try ScriptRunner.requireOwn(directory, state: state)
            return directory
        } catch {
            context.logger.warning(
                "the scripts' bin directory is not put on PATH", metadata: ["error": "\(error)"])
            return nil
        }
    }

    /// The agent: one session after the other.
    /// - Parameters:
    ///   - connections: HTTP connections that are open, by kind.
    ///   - boundary: what forwards boundary logs, if they are taken.
    ///   - tailnet: what makes the node, if there is to be one.
    ///   - onClaim: called before the session of a workspace that was claimed.
    func agent(
        connections: @escaping @Sendable () -> [String: Int64], boundary: (any DrainableRoutine)?,
        tailnet: TailnetParts?, onClaim: @escaping @Sendable () -> Void
    ) -> ControlPlaneAgent {
        let rest = access.rest
        let reinit = ReinitWatcher(runtime: runtime) { try await rest.reinit() }
        let isFirst = Atomic(true)
        return ControlPlaneAgent(runtime: runtime, reinit: reinit) {
            if !isFirst.exchange(false, ordering: .relaxed) { onClaim() }
            return await session(connections, boundary, tailnet)
        }
    }

    private func session(
        _ connections: @escaping @Sendable () -> [String: Int64], _ boundary: (any DrainableRoutine)?,
        _ tailnet: TailnetParts?
    ) async -> AgentSession {
        let (configuration, metrics, logger) = (context.configuration, context.metrics, context.logger)
        let account = (try? await scriptPool.run { UserAccount.find() }) ?? nil
        let scripts = ScriptContext(
            runner: runner, environment: environment,
            user: LoginUser(account, environment: configuration.environment), pool: scriptPool,
            executor: context.executor, clock: context.clock, logger: logger)
        let actions = WorkspaceManifestActions(
            context: scripts,
            configuration: .init(
                logDirectory: configuration.logDirectory, stateDirectory: Self.scriptState(configuration)),
            daemonEnvironment: configuration.environment, current: manifest, history: scriptHistory, metrics: metrics,
            logger: logger)
        let routines: [any Routine] = [
            FetchAnnouncementBanners(AnnouncementBanners(), runtime: runtime),
            ReportConnections(ConnectionReports(runtime: runtime, metrics: metrics)),
            volumes,
            ReportStats(source: Connections(open: connections, tailnet: tailnet), metrics: metrics, runtime: runtime),
        ]
        return AgentSession(
            identity: .init(version: "v\(BuildInfo.version)", subsystems: subsystems), dialler: access.dialler,
            actions: actions, prober: HTTPAppProber(group: context.group, pool: context.pool),
            routines: routines + actions.routines + [boundary].compactMap { $0 } + (tailnet?.routines ?? []),
            runtime: runtime, metrics: metrics, health: context.health
        ) { await tailnet?.take($0) }
    }

    /// Ends what is left once the agent has.
    func close() async {
        await access.shutdown()
        // A thread that hangs on a dead mount must not keep the process.
        let pool = scriptPool
        _ = try? await runtime.within(.seconds(2), "ending the script threads") { await pool.shutdown() }
    }

    private struct Connections: StatsSource {
        var open: @Sendable () -> [String: Int64]
        var tailnet: TailnetParts?
        func openConnections() -> [String: Int64] { open() }
        func takeNetworkUsage() async -> NetworkUsage? { await tailnet?.takeUsage() }
    }
}

/// Passes app statuses to the current session.
struct LinkForwarder: AppStatusForwarder {
    let agent: ControlPlaneAgent

    func updateAppStatus(
        _ request: Coder_Agent_V2_UpdateAppStatusRequest
    ) async throws -> Coder_Agent_V2_UpdateAppStatusResponse {
        try await agent.updateAppStatus(request)
    }
}
