import AgentCore
import AgentProc
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import ControlPlaneTestSupport
import DRPC
import FoundationEssentials
import Glibc
import Logging
import NIOPosix
import SwiftProtobuf
import Synchronization

@testable import WorkspaceScripts

/// Records calls; a test says what becomes of each.
final class RecordingConnection: UnaryConnection {
    enum Fault: Sendable, Equatable {
        /// The connection is gone; with `delivered` the control plane had the call before.
        case drop(delivered: Bool)
        case hang
        case unimplemented
        /// Answered with an error; the connection stays.
        case refuse
    }

    private struct State {
        var faults: [Fault?] = []
        var logs: [Coder_Agent_V2_BatchCreateLogsRequest] = []
        var scripts: [Coder_Agent_V2_Timing] = []
        var metadata: [Coder_Agent_V2_BatchUpdateMetadataRequest] = []
        var attempts = 0
        var limitExceeded = false
    }

    let apiVersion = APIVersion(2, 9)
    private let state = Mutex(State())

    var logs: [Coder_Agent_V2_BatchCreateLogsRequest] { state.withLock { $0.logs } }
    var scripts: [Coder_Agent_V2_Timing] { state.withLock { $0.scripts } }
    var metadata: [Coder_Agent_V2_BatchUpdateMetadataRequest] { state.withLock { $0.metadata } }
    /// Calls begun.
    var attempts: Int { state.withLock { $0.attempts } }
    var lines: [String] { logs.flatMap { $0.logs.map(\.output) } }

    /// The next calls meet these; nil is none.
    func plan(_ faults: [Fault?]) { state.withLock { $0.faults = faults } }
    func exceedLimit() { state.withLock { $0.limitExceeded = true } }

    func call<Request: Message, Response: Message>(
        _ method: Method<Request, Response>, _ request: Request
    ) async throws -> Response {
        let fault = state.withLock { state -> Fault? in
            state.attempts += 1
            return state.faults.isEmpty ? nil : state.faults.removeFirst()
        }
        switch fault {
        case .drop(let delivered):
            if delivered { record(request) }
            throw DRPCError(.closed, "the connection is closed")
        case .unimplemented: throw DRPCError(.remote(DRPCError.unimplementedCode), "unimplemented")
        case .refuse: throw DRPCError(.remote(0), "not that one")
        case .hang: try await Wakeup().wait()
        case nil: record(request)
        }
        var response = Response()
        if var logs = response as? Coder_Agent_V2_BatchCreateLogsResponse {
            logs.logLimitExceeded = state.withLock { $0.limitExceeded }
            response = logs as? Response ?? response
        }
        return response
    }

    private func record(_ request: any Message) {
        state.withLock { state in
            switch request {
            case let logs as Coder_Agent_V2_BatchCreateLogsRequest: state.logs.append(logs)
            case let script as Coder_Agent_V2_WorkspaceAgentScriptCompletedRequest: state.scripts.append(script.timing)
            case let metadata as Coder_Agent_V2_BatchUpdateMetadataRequest: state.metadata.append(metadata)
            default: break
            }
        }
    }

    func ended() async -> String { "" }
    func close() async {}
}

/// A wall clock that goes with a manual one.
final class FixtureClock: Sendable {
    let manual = ManualClock()
    private let origin: Mutex<Int64>

    init(startsAt seconds: Int64 = 1_700_000_000) { origin = Mutex(seconds) }

    var clock: AgentClock { AgentClock(manual, wallSeconds: { self.wall().seconds }) }

    func wall() -> WallTime {
        let (seconds, attoseconds) = manual.now.offset.components
        return WallTime(
            seconds: origin.withLock { $0 } + seconds, nanoseconds: Int32(attoseconds / 1_000_000_000))
    }

    func setWall(by seconds: Int64) { origin.withLock { $0 += seconds } }
}

/// Scripts and metadata over real processes, on a clock that the test moves.
final class ScriptFixture: Sendable {
    let directory: TemporaryDirectory
    let time: FixtureClock
    let log = LogLines()
    let metrics = MetricsRegistry()
    let commands: CommandLauncher
    let environment: EnvironmentBuilder
    let context: ScriptContext
    let logs: LogStore
    let reports: ScriptReports
    let scripts: ScriptRunner
    let metadata: MetadataCollector
    private let reactor: Reactor
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let pool: BlockingPool
    var home: String { directory.path }
    var executor: any TaskExecutor { EventLoopTaskExecutor(group.next()) }

    init(shell: String = "/bin/sh", startsAt seconds: Int64 = 1_700_000_000, threads: Int = 2) throws {
        pool = BlockingPool(threads: threads)
        directory = try TemporaryDirectory()
        time = FixtureClock(startsAt: seconds)
        reactor = try Reactor()
        _ = reactor.start()
        let executor = EventLoopTaskExecutor(group.next())
        let (home, time) = (directory.path, time)
        commands = CommandLauncher(
            launcher: try Launcher(), reactor: reactor, pool: pool, executor: executor,
            clock: AgentClock(ContinuousClock()), metrics: metrics, logger: log.logger)
        environment = EnvironmentBuilder(
            base: ["PATH": "/usr/bin:/bin", "HOME": home],
            agent: AgentLayer(
                url: "https://c.example", token: { Secret("hush-token") }, executable: "/opt/agent",
                scriptBinDirectory: ScriptRunner.binDirectory(state: "\(home)/state")), logger: log.logger)
        context = ScriptContext(
            runner: commands, environment: environment, user: LoginUser(home: home, shell: shell), pool: pool,
            executor: executor, clock: time.clock, logger: log.logger, wallTime: { time.wall() })
        logs = LogStore(metrics: metrics, logger: log.logger)
        reports = ScriptReports(metrics: metrics, logger: log.logger)
        scripts = ScriptRunner(
            configuration: .init(logDirectory: "\(home)/logs", stateDirectory: "\(home)/state"), context: context,
            logs: logs, reports: reports, metrics: metrics, logger: log.logger)
        metadata = MetadataCollector(context: context, metrics: metrics, logger: log.logger)
    }

    /// Hands a manifest to everything that wants one.
    func manifest(
        scripts list: [Coder_Agent_V2_WorkspaceAgentScript] = [],
        metadata items: [Coder_Agent_V2_WorkspaceAgentMetadata.Description] = [],
        _ change: (inout Coder_Agent_V2_Manifest) -> Void = { _ in }
    ) throws {
        let message = ManifestSnapshotTests.message {
            $0.scripts = list
            $0.metadata = items
            change(&$0)
        }
        let (manifest, secrets) = try ManifestSnapshot.receive(message, home: home, environment: ["HOME": home])
        environment.update(manifest.environment(secrets: secrets.variables().variables))
        scripts.update(manifest)
        metadata.update(manifest)
    }

    /// What there is in the store now, through the routine.
    func delivered() async throws -> RecordingConnection {
        let connection = RecordingConnection()
        logs.close()
        reports.close()
        try await LogSender(store: logs, clock: time.clock).run(connection)
        try await ScriptReporter(reports: reports).run(connection)
        return connection
    }

    func end() async {
        await commands.shutdown()
        // Orphans are found by descent, which needs a subreaper; here by where they are.
        for entry in directoryEntries("/proc") {
            guard let pid = pid_t(entry) else { continue }
            var buffer = [CChar](repeating: 0, count: 256)
            guard readlink("/proc/\(entry)/cwd", &buffer, 255) > 0 else { continue }
            let path = buffer.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } ?? "" }
            if path == home || path.hasPrefix("\(home)/") { kill(pid, SIGKILL) }
        }
        await reactor.stop()
        await pool.shutdown()
        try? await group.shutdownGracefully()
    }

    static func with(
        shell: String = "/bin/sh", startsAt seconds: Int64 = 1_700_000_000, threads: Int = 2,
        _ body: (ScriptFixture) async throws -> Void
    ) async throws {
        let fixture = try ScriptFixture(shell: shell, startsAt: seconds, threads: threads)
        do { try await body(fixture) } catch {
            await fixture.end()
            throw error
        }
        await fixture.end()
    }
}

extension Coder_Agent_V2_WorkspaceAgentScript {
    static func make(
        _ text: String, number: UInt8 = 1, _ change: (inout Coder_Agent_V2_WorkspaceAgentScript) -> Void = { _ in }
    ) -> Coder_Agent_V2_WorkspaceAgentScript {
        var script = Coder_Agent_V2_WorkspaceAgentScript()
        script.id = Data(repeating: number, count: 16)
        script.logSourceID = Data(repeating: number, count: 16)
        script.displayName = "script \(number)"
        script.script = text
        script.runOnStart = true
        change(&script)
        return script
    }
}
