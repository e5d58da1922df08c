import AgentProto
import AgentSocket
import AgentTestSupport
import ControlPlaneAPI
import DRPC
import Foundation
import Glibc
import NIOPosix
import SwiftProtobuf
import Testing

@testable import ControlPlaneSimulator

/// Every rpc that the agent calls, each with everything that can go wrong with it.
@Suite("Link: methods", .blocking, .timeLimit(.minutes(5))) struct LinkMethodTests {
    /// One rpc.
    struct RPC: Sendable, CustomTestStringConvertible {
        var name: String
        var plan: @Sendable (Faults, RPCFault, Int?) -> Void
        var calls: @Sendable (Recording) -> [RecordedCall]
        /// Whether the agent lives without it: READY is reported where the control plane lacks it.
        var isOptional = true
        var testDescription: String { name }

        init<Request, Response>(_ method: Method<Request, Response>, optional: Bool = true) {
            name = rpcName(method)
            plan = { $0.plan($1, on: method, times: $2) }
            calls = { $0.calls(method) }
            isOptional = optional
        }
    }

    static let all: [RPC] = [
        RPC(AgentAPI.getManifest, optional: false), RPC(AgentAPI.updateLifecycle, optional: false),
        RPC(AgentAPI.updateStartup), RPC(AgentAPI.batchCreateLogs), RPC(AgentAPI.scriptCompleted),
        RPC(AgentAPI.batchUpdateMetadata), RPC(AgentAPI.batchUpdateAppHealths), RPC(AgentAPI.updateStats),
        RPC(AgentAPI.getAnnouncementBanners), RPC(AgentAPI.getResourcesMonitoringConfiguration),
        RPC(AgentAPI.pushResourcesMonitoringUsage), RPC(AgentAPI.reportBoundaryLogs), RPC(AgentAPI.updateAppStatus),
    ]

    /// With something to report of every kind.
    private func world() async throws -> LinkWorld {
        try await LinkWorld { manifest, _ in
            manifest.scripts = [LinkWorld.script("start", "echo run >> runs; echo a line")]
            manifest.metadata = [LinkWorld.metadata("tick", "echo tick", every: 1)]
            // Nobody listens there, which is an answer too: UNHEALTHY.
            manifest.apps = [LinkWorld.app("app", health: "http://127.0.0.1:1/")]
        }
    }

    private func startDaemon(_ world: LinkWorld) async throws -> DaemonProcess {
        let daemon = try world.daemon()
        // An audit log, as a client of the boundary socket sends it (docs/contracts/boundary.md#frames).
        var logs = Coder_Agent_V2_ReportBoundaryLogsRequest()
        logs.sessionID = "session"
        var log = Coder_Agent_V2_BoundaryLog()
        log.allowed = true
        log.time = Google_Protobuf_Timestamp(date: Date())
        log.httpRequest.method = "GET"
        log.httpRequest.url = "https://example.test/"
        logs.logs = [log]
        let payload: [UInt8] = try logs.serializedBytes()
        let socket = try RawConnection(unix: "\(world.directory.path)/boundary.sock")
        try socket.send(
            Data(
                [1, UInt8(payload.count >> 16), UInt8(payload.count >> 8 & 255), UInt8(payload.count & 255)] + payload))
        socket.closeSending()
        return daemon
    }

    private func appStatus(_ daemon: DaemonProcess) async throws -> DRPCError? {
        let client = try await AgentSocketClient.connect(
            path: daemon.agentSocketPath, group: MultiThreadedEventLoopGroup.singleton)
        var request = Coder_Agent_V2_UpdateAppStatusRequest()
        request.slug = "app"
        request.state = .working
        request.message = "at work"
        defer { Task { await client.close() } }
        do {
            try await client.updateAppStatus(request)
            return nil
        } catch let error as DRPCError {
            return error
        }
    }

    private func expectLocal(_ daemon: DaemonProcess) throws {
        #expect(try daemon.connect().request("GET", "/").status == 200)
        let done = try daemon.connect().run("echo still here")
        #expect(done["output"] as? String == "still here\n")
    }

    @Test(arguments: all) func oneFailure(rpc: RPC) async throws {
        let world = try await world()
        rpc.plan(world.faults, .fail(text: "out of order"), 1)
        let daemon = try await startDaemon(world)
        if rpc.name == "UpdateAppStatus" {
            try await world.reported(.ready)
            let error = try await appStatus(daemon)
            #expect(error?.message == "out of order")
            #expect(try await appStatus(daemon) == nil)
        }
        let seen = try await world.recorder.wait("\(rpc.name) after its failure, and READY") {
            rpc.calls($0).contains { $0.outcome == .faulted } && rpc.calls($0).contains { $0.outcome == .answered }
                && $0.states.contains(.ready)
        }
        #expect(seen.states == [.starting, .ready])
        #expect(ProcFS.text("\(world.directory.path)/runs") == "run\n")
        try expectLocal(daemon)
        #expect(try await daemon.stop() == 0)
        let over = world.recorder.recording
        #expect(over.states.suffix(2) == [.shuttingDown, .off])
        #expect(over.violations == [])
        await world.stop()
    }

    @Test(arguments: all) func unimplemented(rpc: RPC) async throws {
        let world = try await world()
        rpc.plan(world.faults, .unimplemented, nil)
        let daemon = try await startDaemon(world)
        if rpc.name == "UpdateAppStatus" {
            try await world.reported(.ready)
            #expect(try await appStatus(daemon)?.code == .remote(12))
        }
        let seen = try await world.recorder.wait("\(rpc.name) is refused\(rpc.isOptional ? ", READY" : "")") {
            !rpc.calls($0).isEmpty && (!rpc.isOptional || $0.states.contains(.ready))
        }
        if rpc.name != "GetManifest" {
            try await eventually("the start script has run") {
                ProcFS.text("\(world.directory.path)/runs") == "run\n"
            }
        }
        if rpc.isOptional {
            // Switched off, not fought: one connection, and one call on it.
            #expect(rpc.calls(seen).count == 1)
            #expect(seen.opened == 1)
        }
        try expectLocal(daemon)
        let code = try await daemon.stop()
        if rpc.isOptional {
            #expect(code == 0)
            #expect(world.recorder.recording.states.suffix(2) == [.shuttingDown, .off])
            #expect(world.recorder.recording.opened == 1)
        }
        #expect(world.recorder.recording.violations == [])
        await world.stop()
    }

    /// The connection is lost instead of an answer, before the control plane did what it was asked to or after.
    @Test(arguments: all, [false, true]) func dropped(rpc: RPC, recorded: Bool) async throws {
        let world = try await world()
        rpc.plan(world.faults, .drop(recorded: recorded), 1)
        let daemon = try await startDaemon(world)
        let poller = Poller(daemon)
        if rpc.name == "UpdateAppStatus" {
            try await world.reported(.ready)
            #expect(try await appStatus(daemon)?.message == "agent not connected to coderd")
            try await eventually("it goes through again") { try await appStatus(daemon) == nil }
        }
        try await expectAllIsWell(world, daemon, poller, after: rpc)
    }

    /// The connection is lost while the control plane still works on its answer.
    @Test(arguments: all.filter { $0.name != "UpdateAppStatus" }) func lostInTheMiddle(rpc: RPC) async throws {
        let world = try await world()
        rpc.plan(world.faults, .hang, 1)
        let daemon = try await startDaemon(world)
        let poller = Poller(daemon)
        try await world.recorder.wait("\(rpc.name) hangs") { !rpc.calls($0).isEmpty }
        world.server.reset()
        try await expectAllIsWell(world, daemon, poller, after: rpc)
    }

    private func expectAllIsWell(
        _ world: LinkWorld, _ daemon: DaemonProcess, _ poller: Poller, after rpc: RPC
    ) async throws {
        let seen = try await world.recorder.wait("\(rpc.name) on a second connection, and all that comes once") {
            seen in
            rpc.calls(seen).contains { $0.outcome == .answered && $0.connection > 1 } && seen.states.contains(.ready)
                && !seen.requests(AgentAPI.scriptCompleted).isEmpty
                && !seen.requests(AgentAPI.batchCreateLogs).isEmpty
                && !seen.requests(AgentAPI.reportBoundaryLogs).isEmpty
        }
        #expect(seen.opened == 2)
        #expect(seen.states == [.starting, .ready])
        #expect(ProcFS.text("\(world.directory.path)/runs") == "run\n")
        let source = try #require(seen.requests(AgentAPI.batchCreateLogs).first?.logSourceID)
        #expect(seen.linesOnce(source) == ["a line"])
        let (answers, failures) = await poller.end()
        #expect(answers > 0 && failures == [], "the local API answers throughout")
        #expect(try await daemon.stop() == 0)
        let over = world.recorder.recording
        #expect(over.states == [.starting, .ready, .shuttingDown, .off])
        #expect(over.violations == [])
        await world.stop()
    }

    /// What is never answered keeps nothing else from being done.
    @Test(arguments: all.filter { $0.isOptional && $0.name != "UpdateAppStatus" }) func hanging(rpc: RPC) async throws {
        let world = try await world()
        rpc.plan(world.faults, .hang, nil)
        let daemon = try await startDaemon(world)
        let others = Self.all.filter { $0.name != rpc.name && $0.name != "UpdateAppStatus" }
        let dependent = rpc.name == "GetResourcesMonitoringConfiguration" ? "PushResourcesMonitoringUsage" : ""
        let seen = try await world.recorder.wait("READY and everything else while \(rpc.name) hangs") { seen in
            !rpc.calls(seen).isEmpty && seen.states.contains(.ready)
                && others.allSatisfy { other in
                    other.name == dependent || other.calls(seen).contains { $0.outcome == .answered }
                }
        }
        #expect(seen.opened == 1)
        try expectLocal(daemon)
        #expect(try daemon.linkHealth().contains("connected since"))
        // Nobody waits for what hangs longer than a shutdown may take.
        daemon.signal(SIGKILL)
        _ = try await daemon.wait()
        await world.stop()
    }
}
