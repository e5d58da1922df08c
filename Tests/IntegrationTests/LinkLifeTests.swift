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

/// A whole life of the built daemon beside a control plane that works.
@Suite("Link: life", .blocking, .timeLimit(.minutes(15))) struct LinkLifeTests {
    @Test func fromCreatedToOff() async throws {
        let start = LinkWorld.script(
            "start", "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; echo $FROM_MANIFEST"
        )
        let end = LinkWorld.script("end", "echo goodbye; touch stopped") {
            $0.runOnStart = false
            $0.runOnStop = true
        }
        let world = try await LinkWorld { manifest, _ in
            manifest.scripts = [start, end]
            manifest.environmentVariables = ["FROM_MANIFEST": "a value of the manifest"]
            manifest.metadata = [
                LinkWorld.metadata("answer", "echo 42"), LinkWorld.metadata("bad", "echo no >&2; exit 3"),
            ]
        }
        let daemon = try world.daemon(environment: ["CODER_AGENT_SUBSYSTEM": "envbuilder,exectrace"])
        let ready = try await world.recorder.wait("READY, logs, script, metadata, startup, stats, resources") { seen in
            let keys = Set(seen.requests(AgentAPI.batchUpdateMetadata).flatMap(\.metadata).map(\.key))
            let scripts = seen.requests(AgentAPI.scriptCompleted).count
            guard seen.states.last == .ready, scripts == 1, keys.count == 2 else { return false }
            guard seen.lines(start.logSourceID).count >= 401 else { return false }
            return [
                seen.count(AgentAPI.updateStartup), seen.count(AgentAPI.updateStats) - 1,
                seen.count(AgentAPI.pushResourcesMonitoringUsage), seen.count(AgentAPI.getAnnouncementBanners),
            ].allSatisfy { $0 > 0 }
        }
        #expect(ready.states.suffix(2) == [.starting, .ready])
        #expect(ready.lines(start.logSourceID, .info) == (0..<200).map { "out \($0)" } + ["a value of the manifest"])
        #expect(ready.lines(start.logSourceID, .error) == (0..<200).map { "err \($0)" })

        let timing = try #require(ready.requests(AgentAPI.scriptCompleted).first?.timing)
        #expect(timing.scriptID == start.id)
        #expect(timing.exitCode == 0)
        #expect(timing.stage == .start)
        #expect(timing.status == .ok)

        let startup = try #require(ready.requests(AgentAPI.updateStartup).first?.startup)
        #expect(startup.version.hasPrefix("v"))
        #expect(startup.expandedDirectory == world.directory.path)
        #expect(startup.subsystems == [.envbuilder, .exectrace])

        let metadata = ready.requests(AgentAPI.batchUpdateMetadata).flatMap(\.metadata)
        #expect(metadata.first { $0.key == "answer" }?.result.value.trimmingCharacters(in: .newlines) == "42")
        #expect(metadata.first { $0.key == "bad" }?.result.error.isEmpty == false)
        #expect(try daemon.linkHealth().hasPrefix("control plane: connected since "))

        #expect(try await daemon.stop() == 0)
        let over = try await world.recorder.wait("the connection's end") { $0.open == 0 }
        #expect(over.states == [.starting, .ready, .shuttingDown, .off])
        #expect(over.count(AgentAPI.updateLifecycle) == over.states.count, "none comes twice")
        #expect(over.lines(end.logSourceID) == ["goodbye"])
        let stopped = over.requests(AgentAPI.scriptCompleted).map(\.timing)
        #expect(stopped.map(\.stage) == [.start, .stop])
        // What is delivered is there before the goodbye, which is in order.
        #expect(over.opened == 1)
        #expect(over.ends == ["closed"], "another code than 1000, or none, would be named")
        #expect(over.violations == [])
        #expect(access("\(world.directory.path)/stopped", F_OK) == 0)
        await world.stop()
    }

    @Test func aManifestWithoutDirectoryIsReportedSoAndHomeIsUsed() async throws {
        let world = try await LinkWorld { manifest, _ in
            manifest.directory = ""
            manifest.scripts = [LinkWorld.script("where", "pwd > \"$HOME/where\"")]
        }
        let daemon = try world.daemon()
        let ready = try await world.recorder.wait("READY") {
            $0.states.last == .ready && $0.count(AgentAPI.updateStartup) > 0
        }
        #expect(ready.requests(AgentAPI.updateStartup).map(\.startup.expandedDirectory) == [""])
        #expect(ProcFS.text("\(world.directory.path)/where") == "\(world.directory.path)\n")
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test func appStatusGoesThroughTheAgentSocket() async throws {
        let world = try await LinkWorld { manifest, _ in manifest.apps = [LinkWorld.app("editor")] }
        let daemon = try world.daemon()
        try await world.reported(.ready)
        let client = try await AgentSocketClient.connect(
            path: daemon.agentSocketPath, group: MultiThreadedEventLoopGroup.singleton)
        var request = Coder_Agent_V2_UpdateAppStatusRequest()
        request.slug = "editor"
        request.state = .working
        request.message = "compiling"
        request.uri = "https://example.test/task"
        try await client.updateAppStatus(request)
        #expect(world.recorder.requests(AgentAPI.updateAppStatus) == [request])
        // What the control plane refuses comes back as it said it.
        request.slug = "nobody"
        let refused = await #expect(throws: DRPCError.self) { try await client.updateAppStatus(request) }
        #expect(refused?.message.contains("unknown app") == true, "\(refused as Any)")

        await world.server.stop()
        try await eventually("it knows that it is offline") { try daemon.linkHealth().contains("connecting") }
        let offline = await #expect(throws: DRPCError.self) { try await client.updateAppStatus(request) }
        #expect(offline?.message == "agent not connected to coderd")
        await client.close()
        // SHUTTING_DOWN and OFF can't be delivered.
        #expect(try await daemon.stop() == 1)
        #expect(daemon.log.contains("delivered"))
    }

    @Test(arguments: [("exit 7", LifecycleState.startError), ("sleep 30", .startTimeout)])
    func startScriptsThatFail(script: String, state: LifecycleState) async throws {
        let world = try await LinkWorld { manifest, _ in
            manifest.scripts = [
                LinkWorld.script("start", script) { if state == .startTimeout { $0.timeout = .init(seconds: 1) } }
            ]
        }
        let daemon = try world.daemon()
        let seen = try await world.recorder.wait("the outcome") {
            $0.states.contains(state) && !$0.requests(AgentAPI.scriptCompleted).isEmpty
        }
        let timing = try #require(seen.requests(AgentAPI.scriptCompleted).first?.timing)
        #expect(timing.status == (state == .startError ? .exitFailure : .timedOut))
        if state == .startError { #expect(timing.exitCode == 7) }
        #expect(try await daemon.stop() == 0)
        #expect(world.recorder.recording.states == [.starting, state, .shuttingDown, .off])
        await world.stop()
    }
}
