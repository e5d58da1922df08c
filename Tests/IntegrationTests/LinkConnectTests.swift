import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import Foundation
import Glibc
import Testing

@testable import ControlPlaneSimulator

/// Control planes that are late, old, unwilling or wrong, and manifests that are large or wrong.
@Suite("Link: connecting", .blocking, .timeLimit(.minutes(15))) struct LinkConnectTests {
    private let script = LinkWorld.script("start", "echo run >> runs")

    private func world(
        proxied: Bool = false, version: APIVersion = APIVersion(2, 10),
        service: (inout AgentService.Configuration) -> Void = { _ in }
    ) async throws -> LinkWorld {
        try await LinkWorld(proxied: proxied, version: version, service: service) { manifest, _ in
            manifest.scripts = [script]
        }
    }

    private func expectLocal(_ daemon: DaemonProcess) throws {
        let done = try daemon.connect().run("echo here")
        #expect(done["output"] as? String == "here\n")
    }

    @Test func aLargeManifest() async throws {
        let world = try await world { $0.manifestBytes = 7 << 19 }
        let daemon = try world.daemon()
        let seen = try await world.reported(.ready)
        #expect(seen.opened == 1)
        #expect(seen.states == [.starting, .ready])
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test func aManifestWithoutAnAgent() async throws {
        let world = try await world { $0.manifest.message.agentID = Data(count: 16) }
        let daemon = try world.daemon()
        try await world.recorder.wait("it tries again") { $0.count(AgentAPI.getManifest) >= 3 }
        try await eventually("it says why") {
            let health = try daemon.linkHealth()
            return health.contains("connecting since") && health.contains("agent id")
        }
        try expectLocal(daemon)
        #expect(!world.recorder.recording.states.contains(.starting))
        world.server.service.reconfigure { $0.manifest.message.agentID = LinkWorld.id() }
        try await world.reported(.ready)
        #expect(ProcFS.text("\(world.directory.path)/runs") == "run\n")
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test(arguments: [APIVersion(2, 9), APIVersion(2, 8), APIVersion(2, 7)])
    func anOlderControlPlane(version: APIVersion) async throws {
        let world = try await world(version: version)
        let daemon = try world.daemon()
        let seen = try await world.reported(.ready)
        let opened = seen.connectionEvents.compactMap { event in
            if case .opened(let version, let role) = event.change { [version, role] } else { nil as [String]? }
        }
        #expect(opened == [["\(version)", "agent"]])
        try await eventually("it says so") { try daemon.linkHealth().hasSuffix("API \(version)") }
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test func aControlPlaneThatIsLate() async throws {
        let world = try await world(proxied: true)
        let proxy = try #require(world.proxy)
        try await proxy.refuse()
        let daemon = try world.daemon()
        try await eventually("it says why") {
            let health = try daemon.linkHealth()
            return health.contains("connecting since") && health.contains("attempt") && health.contains("refused")
        }
        try expectLocal(daemon)
        try await proxy.listen()
        let seen = try await world.reported(.ready)
        #expect(seen.states == [.starting, .ready])
        #expect(try daemon.linkHealth().contains("connected since"))
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test(arguments: [401, 403, 404]) func aControlPlaneThatIsUnwilling(status: Int) async throws {
        let world = try await world()
        world.faults.planConnection(.refuse(status: status), times: nil)
        let daemon = try world.daemon()
        try await eventually("it says so") { try daemon.linkHealth().contains("refused since") }
        let health = try daemon.linkHealth()
        #expect(health.contains("\(status)"))
        #expect(health.contains("asked again every 10 s"))
        #expect(try daemon.connect().request("GET", "/healthz").json["status"] as? String == "degraded")
        try expectLocal(daemon)
        let log = try await daemon.logged("the control plane refuses this agent")
        #expect(log.split(separator: "\n").count { $0.contains("the control plane refuses this agent") } == 1)
        // SHUTTING_DOWN and OFF have nowhere to go.
        #expect(try await daemon.stop() == 1)
        await world.stop()
    }

    /// Statuses that pass are tried again soon.
    @Test func aControlPlaneThatIsUnwell() async throws {
        let world = try await world()
        world.faults.planConnection(.refuse(status: 500, body: "<html>no</html>"))
        world.faults.planConnection(.refuse(status: 502, body: ""))
        world.faults.planConnection(.reset)
        world.faults.planConnection(.close(code: 1011))
        world.faults.planConnection(.goAway(code: 2))
        let daemon = try world.daemon()
        try await world.reported(.ready)
        #expect(ProcFS.text("\(world.directory.path)/runs") == "run\n")
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }
}
