import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import ControlPlaneSimulator

/// What takes minutes, since its waits are those of real life: on request only, with LINK_DRILL=1.
@Suite("Link: drills", .blocking, .enabled(if: ProcessInfo.processInfo.environment["LINK_DRILL"] != nil))
struct LinkDrills {
    @Test func fiftyDropsLeaveNothingBehind() async throws {
        var random = SeededGenerator("fifty drops of a daemon")
        let world = try await LinkWorld(proxied: true) { manifest, _ in
            manifest.scripts = [LinkWorld.script("start", "echo run >> runs; echo started")]
            manifest.metadata = [LinkWorld.metadata("tick", "echo tick", every: 1)]
        }
        let proxy = try #require(world.proxy)
        let daemon = try world.daemon()
        let poller = Poller(daemon)
        try await world.reported(.ready)
        func usage() -> String {
            "fds \(ProcFS.descriptors(daemon.pid)), threads \(ProcFS.threads(daemon.pid)), "
                + "\(ProcFS.residentKiB(daemon.pid)) KiB"
        }
        await proxy.cut()
        try await eventually("it is connected again") { try daemon.linkHealth().contains("connected since") }
        let (descriptors, threads) = (ProcFS.descriptors(daemon.pid), ProcFS.threads(daemon.pid))
        print("before: \(usage())")
        proxy.cutNext(
            (0..<50).map { _ in
                let direction: FaultProxy.Direction = Bool.random(using: &random) ? .toServer : .toClient
                return .init(
                    after: Int.random(in: 0..<(direction == .toServer ? 3_000 : 600), using: &random), direction,
                    reset: Bool.random(using: &random))
            })
        await proxy.reset()
        try await eventually("fifty drops", within: .seconds(800)) { proxy.cutsLeft == 0 }
        try await eventually("it is connected again", within: .seconds(60)) {
            try daemon.linkHealth().contains("connected since") && world.server.open == 1
        }
        print("after \(proxy.accepted) connections: \(usage())")
        try await eventually("descriptors are closed: \(usage())") { ProcFS.descriptors(daemon.pid) <= descriptors }
        try await eventually("threads have ended: \(usage())") { ProcFS.threads(daemon.pid) <= threads }
        let (answers, failures) = await poller.end()
        #expect(answers > 0 && failures == [], "the local API answers throughout")
        #expect(world.recorder.recording.states == [.starting, .ready])
        #expect(ProcFS.text("\(world.directory.path)/runs") == "run\n")
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }
}
