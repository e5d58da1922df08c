import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import Foundation
import Glibc
import Testing

@testable import ControlPlaneSimulator

/// The built daemon, and a network that fails at the worst moments.
@Suite("Link: faults", .blocking, .timeLimit(.minutes(5))) struct LinkFaultTests {
    private let start = LinkWorld.script("start", "echo run >> runs; echo started")

    private func expectQuiet(_ poller: Poller) async {
        let (answers, failures) = await poller.end()
        #expect(answers > 0 && failures == [], "the local API answers throughout")
    }

    /// Six connections in a row end in the request, its answer, a frame or a call. That every byte will do is
    /// shown in process, where waits take no time.
    @Test(arguments: [FaultProxy.Direction.toServer, .toClient], [false, true])
    func cutBetweenConnectAndCall(direction: FaultProxy.Direction, reset: Bool) async throws {
        let world = try await LinkWorld(proxied: true) { manifest, _ in manifest.scripts = [start] }
        let proxy = try #require(world.proxy)
        let places = direction == .toServer ? [0, 1, 150, 330, 400, 700] : [0, 1, 100, 150, 200, 500]
        proxy.cutNext(places.map { .init(after: $0, direction, reset: reset) })
        let daemon = try world.daemon()
        let poller = Poller(daemon)
        let seen = try await world.recorder.wait("READY and the log") {
            $0.states.contains(.ready) && $0.linesOnce(start.logSourceID) == ["started"]
        }
        try await eventually("all cuts were made") { proxy.cutsLeft == 0 && world.server.open == 1 }
        #expect(seen.states == [.starting, .ready])
        #expect(ProcFS.text("\(world.directory.path)/runs") == "run\n")
        await expectQuiet(poller)
        #expect(try await daemon.stop() == 0)
        let over = world.recorder.recording
        #expect(over.states == [.starting, .ready, .shuttingDown, .off])
        #expect(over.linesOnce(start.logSourceID) == ["started"])
        #expect(over.violations == [])
        await world.stop()
    }

    /// A start script writes while five connections go; nothing that it writes is lost.
    @Test func cutWhileLogsFlow() async throws {
        let script = LinkWorld.script(
            "start",
            "echo run >> runs; i=0; until [ -e go ]; do echo out $i; echo err $i >&2; i=$((i+1)); sleep 0.01; done; echo last"
        )
        let world = try await LinkWorld(proxied: true) { manifest, _ in manifest.scripts = [script] }
        let proxy = try #require(world.proxy)
        let daemon = try world.daemon()
        let poller = Poller(daemon)
        for round in 1...5 {
            let connected = try await world.recorder.wait("lines on connection \(round)") { seen in
                seen.opened >= round
                    && seen.calls(AgentAPI.batchCreateLogs).contains {
                        $0.connection == round && $0.outcome == .answered
                    }
            }
            #expect(connected.states == [.starting], "the script goes on")
            if round % 2 == 0 { await proxy.cut() } else { await proxy.reset() }
        }
        #expect(FileManager.default.createFile(atPath: "\(world.directory.path)/go", contents: nil))
        let ready = try await world.recorder.wait("READY and all lines") {
            $0.states.contains(.ready) && $0.linesOnce(script.logSourceID).contains("last")
        }
        #expect(ready.states == [.starting, .ready])
        #expect(ProcFS.text("\(world.directory.path)/runs") == "run\n")
        await expectQuiet(poller)
        #expect(try await daemon.stop() == 0)
        let lines = world.recorder.recording.linesOnce(script.logSourceID)
        let (out, err) = (lines.filter { $0.hasPrefix("out") }, lines.filter { $0.hasPrefix("err") })
        #expect(out == (0..<out.count).map { "out \($0)" })
        #expect(err == (0..<out.count).map { "err \($0)" })
        #expect(lines.count { $0 == "last" } == 1)
        #expect(world.recorder.recording.states == [.starting, .ready, .shuttingDown, .off])
        await world.stop()
    }

    // MARK: During shutdown

    /// A daemon that is ready, whose stop script waits until the test lets it go on.
    private func stopping() async throws -> (LinkWorld, DaemonProcess, Data) {
        let end = LinkWorld.script(
            "end",
            "touch stopping; until [ -e go ]; do sleep 0.02; done; i=0; while [ $i -lt 300 ]; do echo bye $i; i=$((i+1)); done"
        ) {
            $0.runOnStart = false
            $0.runOnStop = true
        }
        let world = try await LinkWorld(proxied: true) { manifest, _ in manifest.scripts = [start, end] }
        let daemon = try world.daemon()
        try await world.reported(.ready)
        daemon.signal(SIGTERM)
        try await world.reported(.shuttingDown)
        try await eventually("the stop script runs") { access("\(world.directory.path)/stopping", F_OK) == 0 }
        return (world, daemon, end.logSourceID)
    }

    private func letGo(_ world: LinkWorld) {
        #expect(FileManager.default.createFile(atPath: "\(world.directory.path)/go", contents: nil))
    }

    /// All that was to arrive did, and the daemon knows it.
    private func expectDelivered(_ world: LinkWorld, _ daemon: DaemonProcess, _ source: Data) async throws {
        #expect(try await daemon.wait() >> 8 & 0xff == 0, "\(daemon.log.suffix(3_000))")
        let over = world.recorder.recording
        #expect(over.states == [.starting, .ready, .shuttingDown, .off])
        #expect(over.linesOnce(source) == (0..<300).map { "bye \($0)" })
        #expect(Set(over.requests(AgentAPI.scriptCompleted).map(\.timing.stage)) == [.start, .stop])
        #expect(over.violations == [])
        await world.stop()
    }

    @Test(arguments: [false, true]) func lostWhileStopScriptsRun(reset: Bool) async throws {
        let (world, daemon, source) = try await stopping()
        let poller = Poller(daemon)
        let proxy = try #require(world.proxy)
        for round in 2...3 {
            if reset { await proxy.reset() } else { await proxy.cut() }
            try await world.recorder.wait("connection \(round)") { $0.opened == round }
        }
        #expect(try daemon.linkHealth().contains("control plane"))
        await expectQuiet(poller)
        letGo(world)
        try await expectDelivered(world, daemon, source)
    }

    /// The first and the second loss while the last lines are on their way: what the budget is for.
    @Test(arguments: [1, 2], [false, true]) func lostWhileLogsAreFlushed(losses: Int, recorded: Bool) async throws {
        let (world, daemon, source) = try await stopping()
        world.faults.plan(.drop(recorded: recorded), on: AgentAPI.batchCreateLogs, times: losses)
        letGo(world)
        try await expectDelivered(world, daemon, source)
        #expect(world.recorder.recording.opened > losses)
    }

    @Test(arguments: [1, 2], [false, true]) func lostWhileTheLastStateIsReported(
        losses: Int, recorded: Bool
    ) async throws {
        let (world, daemon, source) = try await stopping()
        world.faults.plan(.drop(recorded: recorded), on: AgentAPI.updateLifecycle, times: losses)
        letGo(world)
        try await expectDelivered(world, daemon, source)
        #expect(world.recorder.recording.opened > losses)
    }

    /// A control plane that comes back within the budget gets everything.
    @Test func backWithinTheBudget() async throws {
        let (world, daemon, source) = try await stopping()
        let proxy = try #require(world.proxy)
        try await proxy.refuse()
        await proxy.reset()
        letGo(world)
        // It is tried again and again meanwhile.
        _ = try await daemon.logged("state=off")
        try await proxy.listen()
        try await expectDelivered(world, daemon, source)
    }

    /// One that does not costs the budget, and an exit status that says so.
    @Test func goneForGood() async throws {
        let (world, daemon, _) = try await stopping()
        let proxy = try #require(world.proxy)
        try await proxy.refuse()
        await proxy.reset()
        let began = ContinuousClock.now
        letGo(world)
        #expect(try await daemon.wait() >> 8 & 0xff == 1)
        #expect(began.duration(to: .now) > .seconds(4))
        #expect(began.duration(to: .now) < .seconds(30))
        #expect(daemon.log.contains("not everything was delivered to the control plane"))
        #expect(world.recorder.recording.states == [.starting, .ready, .shuttingDown])
        await world.stop()
    }
}
