import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import DRPC
import FoundationEssentials
import NIOCore
import NIOPosix
import SwiftProtobuf
import Synchronization
import Testing

@testable import ControlPlaneSimulator

/// A service on one end of a unix socket pair's worth of plumbing, a client on the other.
private final class Fixture: Sendable {
    let service: AgentService
    let recorder: Recorder
    let cuts = Mutex(0)
    private let server: any Channel
    private let path: String
    private let directory: TemporaryDirectory

    init(version: APIVersion = APIVersion(2, 9), _ change: (inout AgentService.Configuration) -> Void = { _ in })
        async throws
    {
        directory = try TemporaryDirectory()
        path = "\(directory.path)/s"
        let clock = AgentClock(EventLoopClock(group: MultiThreadedEventLoopGroup.singleton))
        recorder = Recorder(clock: clock)
        var configuration = AgentService.Configuration(
            manifest: .demonstration(executable: "/bin/true", agentSocket: nil, healthURL: "http://127.0.0.1/x"))
        change(&configuration)
        service = AgentService(configuration: configuration, recorder: recorder, clock: clock)
        let service = service
        server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                let link = AgentService.Caller(connection: 1, version: version) { channel.close(promise: nil) }
                return channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(RPCServerHandler(router: service.router(link)))
                }
            }.bind(unixDomainSocketPath: path).get()
    }

    func client() async throws -> RPCClient {
        try await RPCClient.connect(unixPath: path, group: MultiThreadedEventLoopGroup.singleton)
    }

    func stop() async throws { try await server.close() }

    func refusal<Request: Message, Response: Message>(
        _ client: RPCClient, _ method: Method<Request, Response>, _ request: Request
    ) async -> String {
        do {
            _ = try await client.unary(method, request)
            return "no error"
        } catch {
            return "\(error)"
        }
    }
}

private let now = Google_Protobuf_Timestamp(seconds: 1_700_000_000)

private func lifecycle(_ state: Coder_Agent_V2_Lifecycle.State) -> Coder_Agent_V2_UpdateLifecycleRequest {
    var request = Coder_Agent_V2_UpdateLifecycleRequest()
    request.lifecycle.state = state
    request.lifecycle.changedAt = now
    return request
}

private func log(_ source: Data, _ text: String, level: Coder_Agent_V2_Log.Level = .info)
    -> Coder_Agent_V2_BatchCreateLogsRequest
{
    var request = Coder_Agent_V2_BatchCreateLogsRequest()
    request.logSourceID = source
    var log = Coder_Agent_V2_Log()
    log.createdAt = now
    log.level = level
    log.output = text
    request.logs = [log]
    return request
}

@Suite("Simulator: control plane state")
struct ControlPlaneStateTests {
    private func state() -> ControlPlaneState {
        ControlPlaneState(
            manifest: SimulatedManifest.demonstration(
                executable: "/bin/true", agentSocket: nil, healthURL: "http://127.0.0.1/x"
            ).message)
    }

    @Test("a whole life is taken, in order, with a report repeated after a lost answer")
    func life() throws {
        var state = state()
        for next in [.starting, .starting, .ready, .shuttingDown, .off, .starting] as [Coder_Agent_V2_Lifecycle.State] {
            #expect(try state.updateLifecycle(lifecycle(next), connection: 1).state == next)
        }
    }

    @Test("a state that cannot follow is refused and changes nothing")
    func order() throws {
        var state = state()
        #expect(throws: Refusal("lifecycle READY cannot follow nothing")) {
            try state.updateLifecycle(lifecycle(.ready), connection: 1)
        }
        #expect(
            throws: Refusal("lifecycle CREATED is never reported: the control plane begins with it by itself")
        ) { try state.updateLifecycle(lifecycle(.created), connection: 1) }
        _ = try state.updateLifecycle(lifecycle(.starting), connection: 1)
        #expect(throws: Refusal("lifecycle OFF cannot follow STARTING")) {
            try state.updateLifecycle(lifecycle(.off), connection: 1)
        }
        _ = try state.updateLifecycle(lifecycle(.ready), connection: 1)
        #expect(throws: Refusal("lifecycle STARTING cannot follow READY")) {
            try state.updateLifecycle(lifecycle(.starting), connection: 1)
        }
        // A killed agent's successor.
        _ = try state.updateLifecycle(lifecycle(.starting), connection: 2)
        #expect(throws: Refusal.self) { try state.updateLifecycle(lifecycle(.unspecified), connection: 2) }
        #expect(throws: Refusal.self) { try state.updateLifecycle(lifecycle(.UNRECOGNIZED(99)), connection: 2) }
        #expect(throws: Refusal("lifecycle READY: changed_at is missing")) {
            var request = lifecycle(.ready)
            request.lifecycle.clearChangedAt()
            _ = try state.updateLifecycle(request, connection: 2)
        }
    }

    @Test("logs: unknown source, level, NUL and batches past 1 MiB are refused")
    func logs() throws {
        var state = state()
        let source = state.manifest.scripts[0].logSourceID
        #expect(try state.createLogs(log(source, "hello")).logLimitExceeded == false)
        #expect(state.logBytes == 5)
        #expect(throws: Refusal.self) { try state.createLogs(log(UUID().data, "x")) }
        #expect(throws: Refusal("log_source_id has 3 bytes, not 16")) {
            try state.createLogs(log(Data("abc".utf8), "x"))
        }
        #expect(throws: Refusal("logs[0]: unknown level 0")) {
            try state.createLogs(log(source, "x", level: .unspecified))
        }
        #expect(throws: Refusal("logs[0]: the text has a NUL")) { try state.createLogs(log(source, "x\0")) }
        let overhead = try log(source, "").serializedData().count
        func batch(_ bytes: Int) -> Coder_Agent_V2_BatchCreateLogsRequest {
            // Two varints of lengths and the field's own tag come with the text.
            log(source, String(repeating: "x", count: bytes - overhead - 6))
        }
        #expect(try batch(1 << 20).serializedData().count == 1 << 20)
        _ = try state.createLogs(batch(1 << 20))
        #expect(throws: Refusal("the batch has 1048577 bytes; at most 1048576 are taken")) {
            try state.createLogs(batch((1 << 20) + 1))
        }
    }

    @Test("the log limit is exceeded by what does not fit, and stays so")
    func logLimit() throws {
        var state = state()
        state.logLimit = 10
        let source = state.manifest.scripts[0].logSourceID
        #expect(try !state.createLogs(log(source, "0123456789")).logLimitExceeded)
        #expect(try state.createLogs(log(source, "x")).logLimitExceeded)
        #expect(try state.createLogs(log(source, "")).logLimitExceeded)
        #expect(state.logBytes == 10)
    }

    @Test("metadata: known keys, and values up to 10 KiB")
    func metadata() throws {
        let state = state()
        func update(_ key: String, _ bytes: Int) -> Coder_Agent_V2_BatchUpdateMetadataRequest {
            var item = Coder_Agent_V2_Metadata()
            item.key = key
            item.result.collectedAt = now
            item.result.value = String(repeating: "x", count: bytes)
            var request = Coder_Agent_V2_BatchUpdateMetadataRequest()
            request.metadata = [item]
            return request
        }
        try state.updateMetadata(update("load", 10_240))
        #expect(throws: Refusal.self) { try state.updateMetadata(update("load", 10_241)) }
        #expect(throws: Refusal("unknown metadata key \"other\"")) { try state.updateMetadata(update("other", 1)) }
    }

    @Test("app health and status: known apps and values; a bad update changes nothing")
    func apps() throws {
        var state = state()
        let app = state.manifest.apps[0].id
        func update(_ ids: [(Data, Coder_Agent_V2_AppHealth)]) -> Coder_Agent_V2_BatchUpdateAppHealthRequest {
            var request = Coder_Agent_V2_BatchUpdateAppHealthRequest()
            request.updates = ids.map { id, health in
                var update = Coder_Agent_V2_BatchUpdateAppHealthRequest.HealthUpdate()
                update.id = id
                update.health = health
                return update
            }
            return request
        }
        try state.updateHealths(update([(app, .healthy)]))
        #expect(throws: Refusal.self) { try state.updateHealths(update([(app, .unhealthy), (UUID().data, .healthy)])) }
        #expect(throws: Refusal.self) { try state.updateHealths(update([(app, .unspecified)])) }
        #expect(state.healths == [app: .healthy])
        var status = Coder_Agent_V2_UpdateAppStatusRequest()
        status.slug = "agent-api"
        try state.updateAppStatus(status)
        status.slug = "other"
        #expect(throws: Refusal("unknown app \"other\"")) { try state.updateAppStatus(status) }
    }

    @Test("connection reports: ids, kinds and addresses without a port")
    func connections() throws {
        let state = state()
        var request = Coder_Agent_V2_ReportConnectionRequest()
        request.connection.id = UUID().data
        request.connection.action = .connect
        request.connection.type = .vscode
        request.connection.timestamp = now
        for ip in ["", "127.0.0.1", "::1"] {
            request.connection.ip = ip
            try state.reportConnection(request)
        }
        for ip in ["localhost", "127.0.0.1:22"] {
            request.connection.ip = ip
            #expect(throws: Refusal.self) { try state.reportConnection(request) }
        }
        request.connection.ip = ""
        request.connection.id = Data(count: 16)
        #expect(throws: Refusal.self) { try state.reportConnection(request) }
    }

    @Test("sub-agents: created, listed and deleted by id; names are unique")
    func subAgents() throws {
        var state = state()
        var request = Coder_Agent_V2_CreateSubAgentRequest()
        #expect(throws: Refusal.self) { try state.createSubAgent(request) }
        request.name = "one"
        var app = Coder_Agent_V2_CreateSubAgentRequest.App()
        app.slug = "web"
        request.apps = [app, app]
        let response = try state.createSubAgent(request)
        #expect(response.agent.id.count == 16 && response.agent.authToken.count == 16)
        #expect(response.appCreationErrors.map(\.index) == [1])
        #expect(throws: Refusal("there is a sub-agent \"one\" already")) { try state.createSubAgent(request) }
        request.id = UUID().data
        #expect(throws: Refusal.self) { try state.createSubAgent(request) }
        var delete = Coder_Agent_V2_DeleteSubAgentRequest()
        delete.id = response.agent.id
        try state.deleteSubAgent(delete)
        #expect(throws: Refusal.self) { try state.deleteSubAgent(delete) }
        request.clearID()
        for index in 0..<SimulatorLimits.subAgents {
            request.name = "n\(index)"
            _ = try state.createSubAgent(request)
        }
        request.name = "one more"
        #expect(throws: Refusal.self) { try state.createSubAgent(request) }
    }
}

@Suite("Simulator: service")
struct SimulatorServiceTests {
    @Test("all rpcs of the contract are served, and those that an older version lacks are unknown to it")
    func rpcs() async throws {
        let clock = AgentClock(ManualClock())
        let service = AgentService(
            configuration: .init(manifest: SimulatedManifest(.init())), recorder: Recorder(clock: clock), clock: clock)
        func names(_ minor: Int) -> [String] {
            service.router(.init(connection: 1, version: APIVersion(2, minor), cut: {})).names
        }
        #expect(names(9).count == 18)
        #expect(names(7) == names(9).filter { $0 != AgentAPI.updateAppStatus.name })
    }

    @Test("answers over a connection, and records what came")
    func answers() async throws {
        let fixture = try await Fixture { $0.statsInterval = .milliseconds(500) }
        let client = try await fixture.client()
        let manifest = try await client.unary(AgentAPI.getManifest, .init())
        #expect(manifest == fixture.service.manifest)
        #expect(try await client.unary(AgentAPI.updateStats, .init()).reportInterval.nanos == 500_000_000)
        #expect(try await client.unary(AgentAPI.updateLifecycle, lifecycle(.starting)).state == .starting)
        let refusal = await fixture.refusal(client, AgentAPI.updateLifecycle, lifecycle(.off))
        #expect(refusal == "lifecycle OFF cannot follow STARTING")
        #expect(
            try await client.unary(AgentAPI.getResourcesMonitoringConfiguration, .init()).config.numDatapoints == 20)
        let recording = fixture.recorder.recording
        #expect(recording.count(AgentAPI.updateLifecycle) == 2)
        #expect(recording.requests(AgentAPI.updateLifecycle).map(\.lifecycle.state) == [.starting])
        #expect(recording.refusals.map(\.outcome) == [.refused(refusal)])
        #expect(recording.calls(AgentAPI.getManifest).first?.connection == 1)
        try await fixture.stop()
    }

    @Test("faults: an error, an unknown rpc and a late answer, each as often as planned")
    func faults() async throws {
        let fixture = try await Fixture()
        let client = try await fixture.client()
        fixture.service.faults.plan(.fail(code: 7, text: "no"), on: AgentAPI.getManifest)
        fixture.service.faults.plan(.unimplemented, on: AgentAPI.updateStats, times: 2)
        await #expect(throws: DRPCError(.remote(7), "no")) { try await client.unary(AgentAPI.getManifest, .init()) }
        _ = try await client.unary(AgentAPI.getManifest, .init())
        for _ in 0..<2 {
            await #expect(throws: DRPCError(.remote(12), "")) { try await client.unary(AgentAPI.updateStats, .init()) }
        }
        fixture.service.faults.plan(.delay(.milliseconds(50)), on: AgentAPI.updateStats)
        let start = ContinuousClock.now
        _ = try await client.unary(AgentAPI.updateStats, .init())
        #expect(ContinuousClock.now - start >= .milliseconds(50))
        try await fixture.stop()
    }

    @Test("a connection that is dropped before a call has no record of it, one dropped after has")
    func drops() async throws {
        let fixture = try await Fixture()
        for recorded in [false, true] {
            fixture.service.faults.plan(.drop(recorded: recorded), on: AgentAPI.updateLifecycle)
            let client = try await fixture.client()
            await #expect(throws: DRPCError(.closed, "")) {
                try await client.unary(AgentAPI.updateLifecycle, lifecycle(.starting))
            }
            #expect(fixture.recorder.count(AgentAPI.updateLifecycle) == (recorded ? 1 : 0))
        }
        try await fixture.stop()
    }

    @Test("a hung call is recorded and ends with its connection")
    func hang() async throws {
        let fixture = try await Fixture()
        fixture.service.faults.plan(.hang, on: AgentAPI.getManifest)
        let client = try await fixture.client()
        let call = Task { try await client.unary(AgentAPI.getManifest, .init()) }
        try await fixture.recorder.wait("the call came") { $0.count(AgentAPI.getManifest) == 1 }
        #expect(fixture.recorder.requests(AgentAPI.getManifest).isEmpty)
        call.cancel()
        await #expect(throws: (any Error).self) { try await call.value }
        // The next connection is served.
        _ = try await fixture.client().unary(AgentAPI.getManifest, .init())
        try await fixture.stop()
    }

    @Test(
        "the manifest is padded to any size up to what a packet holds",
        arguments: [4_000, 70_000, 1_048_576, 4_194_304])
    func padding(_ bytes: Int) async throws {
        let fixture = try await Fixture { $0.manifestBytes = bytes }
        let manifest = try await fixture.client().unary(AgentAPI.getManifest, .init())
        #expect(try manifest.serializedData().count == bytes)
        #expect(manifest.scripts == fixture.service.manifest.scripts)
        try await fixture.stop()
    }
}

@Suite("Simulator: recorder")
struct SimulatorRecorderTests {
    private func recorder(
        _ clock: ManualClock = ManualClock(), onEvent: (@Sendable (RecordedEvent) -> Void)? = nil,
        change: (inout Recorder.Configuration) -> Void = { _ in }
    ) -> Recorder {
        var configuration = Recorder.Configuration()
        change(&configuration)
        return Recorder(configuration: configuration, clock: AgentClock(clock), wallTime: { .zero }, onEvent: onEvent)
    }

    private func record(_ recorder: Recorder, _ state: Coder_Agent_V2_Lifecycle.State) {
        recorder.call(rpc: "UpdateLifecycle", connection: 1, request: lifecycle(state))
    }

    @Test("at its limit the oldest call goes and the count goes on")
    func count() {
        let recorder = recorder(change: { $0.callsKept = 3 })
        let states: [Coder_Agent_V2_Lifecycle.State] = [.starting, .ready, .shuttingDown, .off]
        for state in states.dropLast() { record(recorder, state) }
        #expect(recorder.requests(AgentAPI.updateLifecycle).map(\.lifecycle.state) == Array(states.dropLast()))
        record(recorder, .off)
        #expect(recorder.requests(AgentAPI.updateLifecycle).map(\.lifecycle.state) == Array(states.dropFirst()))
        #expect(recorder.count(AgentAPI.updateLifecycle) == 4)
        #expect(recorder.recording.calls(AgentAPI.updateLifecycle).map(\.number) == [2, 3, 4])
    }

    @Test("bytes count too, and the newest call stays whatever its size")
    func bytes() {
        let recorder = recorder(change: { $0.callBytesKept = 1_000 })
        let source = UUID().data
        for _ in 0..<10 {
            recorder.call(
                rpc: "BatchCreateLogs", connection: 1, request: log(source, String(repeating: "x", count: 300)))
        }
        #expect(
            recorder.requests(AgentAPI.batchCreateLogs).count == 3 - 1
                || recorder.requests(AgentAPI.batchCreateLogs).count == 3)
        recorder.call(
            rpc: "BatchCreateLogs", connection: 1, request: log(source, String(repeating: "x", count: 3_000)))
        #expect(recorder.requests(AgentAPI.batchCreateLogs).count == 1)
        #expect(recorder.count(AgentAPI.batchCreateLogs) == 11)
    }

    @Test("an rpc that is not kept is counted")
    func unkept() {
        let recorder = recorder(change: { $0.keptByRPC = ["UpdateLifecycle": 0] })
        record(recorder, .ready)
        #expect(recorder.requests(AgentAPI.updateLifecycle).isEmpty)
        #expect(recorder.count(AgentAPI.updateLifecycle) == 1)
    }

    @Test("refusals and connection events are bounded")
    func bounded() {
        let recorder = recorder()
        for index in 0...SimulatorLimits.violationsKept {
            recorder.call(
                rpc: "UpdateStats", connection: index, request: Coder_Agent_V2_UpdateStatsRequest(),
                outcome: .refused("x"))
        }
        #expect(recorder.recording.refusals.count == SimulatorLimits.violationsKept)
        #expect(recorder.recording.refusals.first?.connection == 1)
        for index in 0...SimulatorLimits.connectionEventsKept { recorder.connection(index, .closed("x")) }
        #expect(recorder.recording.connectionEvents.count == SimulatorLimits.connectionEventsKept)
        #expect(recorder.recording.closed == SimulatorLimits.connectionEventsKept + 1)
    }

    @Test("a waiter is woken by what it waits for, and finds what came before")
    func waiter() async throws {
        let recorder = recorder()
        let waiter = Task {
            try await recorder.wait("READY") { recording in
                recording.requests(AgentAPI.updateLifecycle).contains { $0.lifecycle.state == .ready }
            }
        }
        record(recorder, .starting)
        record(recorder, .ready)
        #expect(try await waiter.value.lastNumber == 2)
        try await recorder.wait("two") { $0.lastNumber == 2 }
    }

    @Test("a waiter fails at its deadline and names what was seen, and when it is cancelled")
    func deadline() async throws {
        let clock = ManualClock()
        let recorder = recorder(clock)
        record(recorder, .starting)
        let waiter = Task { try await recorder.wait("READY", within: .seconds(5)) { _ in false } }
        await clock.sleepers(1)
        clock.advance(by: .seconds(5))
        do {
            _ = try await waiter.value
            Issue.record("no error")
        } catch {
            #expect("\(error)".contains("READY; seen: connections 0, open 0, refused 0, UpdateLifecycle 1"))
        }
        let cancelled = Task { try await recorder.wait("never") { _ in false } }
        await clock.sleepers(1)
        cancelled.cancel()
        await #expect(throws: CancellationError.self) { try await cancelled.value }
    }

    @Test("the observer hears everything in the order of its numbers")
    func observer() {
        let seen = Mutex<[UInt64]>([])
        let recorder = recorder(onEvent: { event in
            let number: UInt64 =
                switch event {
                case .call(let call): call.number
                case .connection(let change): change.number
                }
            seen.withLock { $0.append(number) }
        })
        recorder.connection(1, .opened(version: "2.9", role: "agent"))
        record(recorder, .starting)
        recorder.connection(1, .closed("end"))
        #expect(seen.withLock { $0 } == [1, 2, 3])
    }
}
