import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import FoundationEssentials
import NIOPosix
import Testing

@testable import ControlPlane
@testable import ControlPlaneSimulator
@testable import WorkspaceScripts

private let testToken = Secret("a-token-of-the-tests")

func linkConfiguration(_ url: String) throws -> LinkConfiguration {
    LinkConfiguration(url: try ServerAddress(url, what: "url"), authentication: .token(testToken))
}

private struct NoApps: AppProber {
    func isHealthy(_ url: String, within limit: Duration) async -> Bool { true }
}

private struct NoConnections: StatsSource {
    func openConnections() -> [String: Int64] { ["http": 2, "websocket": 1] }
}

/// A whole session with real sockets and real scripts against the simulator, through a network that fails.
/// Waits between attempts take no time, so that hundreds of drops don't either.
final class SocketSession: Sendable {
    let fixture: ScriptFixture
    let server: SimulatorServer
    let proxy: FaultProxy
    let session: AgentSession
    let log = LogLines()
    private let link: ControlPlaneAccess
    private let run: Task<Void, Never>

    var recording: Recording { server.recorder.recording }

    init(scripts: [Coder_Agent_V2_WorkspaceAgentScript], cuts: [FaultProxy.Cut] = []) async throws {
        let group = MultiThreadedEventLoopGroup.singleton
        let clock = AgentClock(EventLoopClock(group: group))
        let fixture = try ScriptFixture()
        self.fixture = fixture
        var manifest = Coder_Agent_V2_Manifest()
        manifest.agentID = Data(1...16)
        manifest.workspaceID = Data(17...32)
        manifest.agentName = "main"
        manifest.directory = fixture.home
        manifest.scripts = scripts
        var service = AgentService.Configuration(manifest: SimulatedManifest(manifest))
        service.statsInterval = .seconds(1)
        server = try await SimulatorServer.start(
            configuration: .init(token: testToken),
            service: AgentService(configuration: service, recorder: Recorder(clock: clock), clock: clock),
            group: group)
        proxy = try await FaultProxy.start(to: try #require(server.address), group: group)
        proxy.cutNext(cuts)
        link = ControlPlaneAccess(
            LinkConfiguration(
                url: try ServerAddress("http://127.0.0.1:\(proxy.port)", what: "url"), authentication: .token(testToken)
            ),
            group: group, pool: BlockingPool(threads: 1), clock: clock, runner: fixture.commands, environment: [:],
            logger: log.logger)
        let runtime = LinkRuntime(clock: clock, random: { 0 }, executor: fixture.executor, logger: log.logger)
        var context = fixture.context
        context.clock = clock
        let actions = WorkspaceManifestActions(
            context: context,
            configuration: .init(logDirectory: "\(fixture.home)/logs", stateDirectory: "\(fixture.home)/state"),
            daemonEnvironment: ["HOME": fixture.home], current: CurrentManifest(), metrics: fixture.metrics,
            logger: log.logger)
        let session = AgentSession(
            identity: .init(version: "v1.2.3", subsystems: []), dialler: link.dialler, actions: actions,
            prober: NoApps(),
            routines: actions.routines + [
                FetchAnnouncementBanners(AnnouncementBanners(), runtime: runtime),
                ReportConnections(ConnectionReports(runtime: runtime, metrics: fixture.metrics)),
                ReportStats(source: NoConnections(), metrics: fixture.metrics, runtime: runtime),
            ],
            runtime: runtime, metrics: fixture.metrics, health: HealthRegistry())
        self.session = session
        run = Task(executorPreference: fixture.executor) { await session.run() }
    }

    /// Shuts down and ends everything.
    /// - Returns: whether all was delivered.
    func end() async throws -> Bool {
        let delivered = await session.finish()
        await session.close()
        await run.value
        await link.shutdown()
        // While the listeners live nobody else gets their ports, and the kernel may take a moment to end a
        // connection that both sides have closed.
        try await eventually("the network is idle") {
            proxy.open == 0 && server.open == 0 && sockets().isEmpty
        }
        await proxy.stop()
        await server.stop()
        await fixture.end()
        return delivered
    }

    /// Sockets of this machine that have one of our ports and are not merely waiting for stray packets.
    func sockets() -> [String] {
        let ports = [proxy.port, server.address?.port ?? 0].map { ":" + String($0, radix: 16, uppercase: true) }
        return ["/proc/net/tcp", "/proc/net/tcp6"].flatMap { path in
            (readTextFile(path) ?? "").split(separator: "\n").map(String.init).filter { line in
                let fields = line.split(separator: " ")
                // State 06 is TIME_WAIT, 0A the listener.
                guard fields.count > 3, fields[3] != "06", fields[3] != "0A" else { return false }
                return ports.contains { fields[1].hasSuffix($0) || fields[2].hasSuffix($0) }
            }
        }
    }
}

extension Recording {
    /// Lifecycle states in the order in which they first arrived; one whose answer was lost comes again.
    /// What was sent over a connection that was cut may be taken up after its repetition over the next one.
    var statesOnce: [Coder_Agent_V2_Lifecycle.State] {
        var states: [Coder_Agent_V2_Lifecycle.State] = []
        for state in requests(AgentAPI.updateLifecycle).map(\.lifecycle.state) where !states.contains(state) {
            states.append(state)
        }
        return states
    }

    /// Lines of script output, each of them different. A batch whose answer was lost comes again as it was,
    /// perhaps after the one behind it, and counts once.
    var linesOnce: [String] {
        var seen: Set<[String]> = []
        return requests(AgentAPI.batchCreateLogs).map { $0.logs.map(\.output) }.filter { seen.insert($0).inserted }
            .flatMap(\.self)
    }
}
