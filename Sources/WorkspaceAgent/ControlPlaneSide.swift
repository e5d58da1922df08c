import AgentCore
import AgentHTTP
import AgentProto
import AgentSocket
import BoundaryLog
import ControlPlane
import DRPC
import Glibc
import Logging
import NIOCore

/// The daemon's parts that exist only with a control plane, put together.
struct ControlPlaneSide: Sendable {
    /// What the parts are made of.
    struct Foundation: Sendable {
        var configuration: AgentConfiguration
        var group: any EventLoopGroup
        var executor: EventLoopTaskExecutor
        var pool: BlockingPool
        var runner: any CommandRunner
        var metrics: MetricsRegistry
        var health: HealthRegistry
        var logger: Logger
        var clock: AgentClock
    }

    let link: Link
    let environment: EnvironmentBuilder
    let manifest = CurrentManifest()
    private let foundation: Foundation
    private let url: String
    private let subsystems: [Coder_Agent_V2_Startup.Subsystem]
    private let runtime: LinkRuntime
    private let scriptPool: BlockingPool
    /// Outlives lives: it knows which volume hangs.
    private let volumes: ResourcesMonitor

    /// - Throws: ``CommandFailure`` for a setting that makes no sense.
    init(_ settings: LinkSettings, _ foundation: Foundation) throws {
        let configuration = foundation.configuration
        let checked: LinkConfiguration
        do {
            checked = try LinkConfiguration(settings.input(configuration.environment))
            subsystems = try Subsystems.parse(configuration.environment["CODER_AGENT_SUBSYSTEM"])
        } catch {
            throw CommandFailure(message: "\(error)", code: 2)
        }
        do { try checked.checkFiles() } catch { throw CommandFailure(message: "\(error)") }
        self.foundation = foundation
        url = settings.url
        runtime = LinkRuntime(clock: foundation.clock, executor: foundation.executor, logger: foundation.logger)
        let link = Link(
            checked, group: foundation.group, pool: foundation.pool, clock: foundation.clock,
            runner: foundation.runner, environment: EnvironmentBuilder(base: configuration.environment).build(),
            logger: foundation.logger)
        self.link = link
        environment = EnvironmentBuilder(
            base: configuration.environment,
            agent: AgentLayer(
                url: settings.url, token: { link.tokens.last }, executable: ThisProgram.path,
                scriptBinDirectory: Self.binDirectory(configuration, foundation.logger)),
            logger: foundation.logger)
        volumes = ResourcesMonitor(pool: foundation.pool, runtime: runtime)
        scriptPool = BlockingPool("scripts", threads: 2)
    }

    private static func scriptState(_ configuration: AgentConfiguration) -> String {
        "\(configuration.stateDirectory)/scripts"
    }

    /// nil where another user could put programs in front of everybody's.
    private static func binDirectory(_ configuration: AgentConfiguration, _ logger: Logger) -> String? {
        let state = scriptState(configuration)
        let directory = ScriptRunner.binDirectory(state: state)
        do {
            try ScriptRunner.requireOwn(directory, state: state)
            return directory
        } catch {
            logger.warning("the scripts' bin directory is not put on PATH", metadata: ["error": "\(error)"])
            return nil
        }
    }

    /// The agent: one life after the other.
    /// - Parameters:
    ///   - connections: HTTP connections that are open, by kind.
    ///   - boundary: what forwards boundary logs, if they are taken.
    ///   - stopAcceptingWork, closeLocal: see ``ControlPlaneAgent``.
    func agent(
        connections: @escaping @Sendable () -> [String: Int64], boundary: (any DrainableRoutine)?,
        stopAcceptingWork: @escaping @Sendable () async -> Void, closeLocal: @escaping @Sendable () async -> Void
    ) -> ControlPlaneAgent {
        let (rest, side) = (link.rest, self)
        let reinit = ReinitWatcher(runtime: runtime) {
            switch try await rest.reinit() {
            case .never: throw ControlPlaneError(.http(409), "this workspace is never claimed")
            case .event(let event):
                ReinitNotice(workspaceID: event.workspaceID, reason: event.reason, ownerID: event.ownerID)
            }
        }
        return ControlPlaneAgent(
            runtime: runtime, reinit: reinit, stopAcceptingWork: stopAcceptingWork, closeLocal: closeLocal
        ) {
            await side.life(Connections(open: connections), boundary)
        }
    }

    private func life(_ connections: Connections, _ boundary: (any DrainableRoutine)?) async -> AgentLife {
        let f = foundation
        let environment = f.configuration.environment
        let user = (try? await scriptPool.run { LoginUser.current(environment: environment) })
        let context = ScriptContext(
            runner: f.runner, environment: self.environment,
            user: user ?? LoginUser(home: f.configuration.directory, shell: "/bin/sh"), pool: scriptPool,
            executor: f.executor, clock: f.clock, logger: f.logger)
        let logs = LogStore(metrics: f.metrics, logger: f.logger)
        let reports = ScriptReports(metrics: f.metrics, logger: f.logger)
        let scripts = ScriptRunner(
            configuration: .init(
                logDirectory: f.configuration.logDirectory, stateDirectory: Self.scriptState(f.configuration)),
            context: context, logs: logs, reports: reports, metrics: f.metrics, logger: f.logger)
        let metadata = MetadataCollector(context: context, metrics: f.metrics, logger: f.logger)
        let duties = WorkspaceDuties(
            context: context, scripts: scripts, metadata: metadata, daemonEnvironment: environment, current: manifest,
            logger: f.logger)
        let routines: [any Routine] = [
            FetchAnnouncementBanners(AnnouncementBanners(), runtime: runtime),
            ClosableRoutine(LogSender(store: logs, clock: f.clock), close: { logs.close() }, isEmpty: { logs.isEmpty }),
            ClosableRoutine(ScriptReporter(reports: reports), close: { reports.close() }, isEmpty: { reports.isEmpty }),
            ReportConnections(ConnectionReports(runtime: runtime, metrics: f.metrics)),
            metadata,
            volumes,
            ReportStats(source: connections, metrics: f.metrics, runtime: runtime),
        ]
        return AgentLife(
            identity: .init(version: "v\(BuildInfo.version)", subsystems: subsystems), dialler: link.dialler,
            duties: duties, prober: HTTPAppProber(group: f.group, pool: f.pool),
            routines: routines + [boundary].compactMap { $0 },
            runtime: runtime, metrics: f.metrics, health: f.health)
    }

    /// Ends what is left once the agent has.
    func close() async {
        await link.shutdown()
        // A thread that hangs on a dead mount must not keep the process.
        let pool = scriptPool
        _ = try? await runtime.within(.seconds(2), "ending the script threads") { await pool.shutdown() }
    }

    private struct Connections: StatsSource {
        var open: @Sendable () -> [String: Int64]
        func openConnections() -> [String: Int64] { open() }
    }
}

/// Passes app statuses to the agent of the moment.
struct LinkForwarder: AppStatusForwarder {
    let agent: ControlPlaneAgent

    func updateAppStatus(
        _ request: Coder_Agent_V2_UpdateAppStatusRequest
    ) async throws -> Coder_Agent_V2_UpdateAppStatusResponse {
        try await agent.updateAppStatus(request)
    }
}

/// Forwards boundary logs over each connection.
struct ForwardBoundaryLogs: DrainableRoutine {
    let name = "boundary forwarder"
    let atShutdown = RoutineShutdown.remains
    let forwarder: BoundaryForwarder
    let queue: DurableQueue
    /// What the delivery of the moment goes up to: boundary may write for as long as we live.
    private let mark = Watched<Int?>(nil)

    init(forwarder: BoundaryForwarder, queue: DurableQueue) { (self.forwarder, self.queue) = (forwarder, queue) }

    /// The control plane is well and does not take this batch.
    private struct Refused: Error, CustomStringConvertible {
        var cause: DRPCError
        var description: String { cause.description }
    }

    func run(_ connection: any AgentConnection) async throws {
        let hasSessions = connection.apiVersion.hasBoundarySessions
        try await forwarder.run { request in
            var request = request
            if !hasSessions {
                // Fields of API 2.9.
                (request.sessionID, request.confinedProcessName) = ("", "")
                for index in request.logs.indices { request.logs[index].sequenceNumber = 0 }
            }
            do {
                _ = try await connection.call(AgentAPI.reportBoundaryLogs, request)
            } catch let error as DRPCError {
                guard case .remote = error.code, !error.isUnknownRPC, await Self.isWell(connection) else { throw error }
                throw Refused(cause: error)
            }
        } classify: { error in
            if error is Refused { return .refused }
            if let error = error as? DRPCError, case .remote = error.code, !error.isUnknownRPC { return .transient }
            return .link
        }
    }

    /// An error's text does not tell a bad batch from a bad day of the control plane; whether it
    /// answers something else does, so that no log is given up because of an outage.
    private static func isWell(_ connection: any AgentConnection) async -> Bool {
        do {
            _ = try await connection.call(AgentAPI.getAnnouncementBanners, .init())
            return true
        } catch {
            return false
        }
    }

    func beginDelivery() {
        let now = queue.mark()
        mark.update { $0 = now }
    }

    var isDrained: Bool { mark.value.map { queue.isDrained(through: $0) } ?? (queue.status.batches == 0) }

    func drained() async { await forwarder.drained(through: mark.value) }
}
