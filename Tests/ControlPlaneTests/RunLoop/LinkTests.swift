import AgentCore
import AgentProto
import AgentTestSupport
import DRPC
import ControlPlaneAPI
import Testing

@testable import ControlPlane

private let upToReady: [Coder_Agent_V2_Lifecycle.State] = [.starting, .ready]
private let outage = ControlPlaneError(.unreachable, "cannot reach https://coder.example")

@Suite struct LinkTests {
    @Test func connectsAndRunsEverything() throws {
        let simulation = Simulation()
        let session = SimulatedSession(simulation, FakeControlPlane(simulation))
        try simulation.run("ready") {
            session.server.acknowledged == upToReady && session.server.requests(AgentAPI.updateStats).count == 2
        }
        #expect(session.server.dials.count == 1)
        #expect(session.actions.counts.crons == 1)
        let startup = session.server.requests(AgentAPI.updateStartup).map(\.startup)
        #expect(startup.map(\.version) == ["v1.2.3"])
        #expect(startup.map(\.expandedDirectory) == ["/home/coder/work"])
        #expect(startup.map(\.subsystems) == [[.envbox]])
        let stats = session.server.requests(AgentAPI.updateStats)
        #expect(stats.map(\.hasStats) == [false, true])
        #expect(stats.last?.stats.connectionCount == 3)
        #expect(stats.last?.stats.connectionMedianLatencyMs == -1)
        #expect(stats.last?.stats.metrics.contains { $0.name == "agent_control_plane_connects_total" } == true)
        #expect(session.health.reports().map(\.degrades) == [false])
        #expect(session.health.reports().first?.text == "control plane: connected since 2027-01-15T08:00:00Z, API 2.9")
        #expect(session.metric("agent_control_plane_state") == "2")
        #expect(session.metric("agent_control_plane_connects_total") == "1")
        simulation.run(for: .seconds(600))
        #expect(session.server.count("GetAnnouncementBanners") == 6)
        #expect(session.server.dials.count == 1)
    }

    /// The connection ends at each step in turn, before and after the control plane took it.
    @Test(arguments: Array(0..<12), [true, false]) func survivesADropAtEveryStep(_ step: Int, _ taken: Bool) throws {
        let simulation = Simulation()
        let log = LogLines()
        let server = FakeControlPlane(
            simulation, .init(call: { $0.index == step ? .drop(taken: taken) : .answer }))
        let session = SimulatedSession(simulation, server, logger: log)
        simulation.run(for: .seconds(400))
        #expect(server.acknowledged == upToReady)
        #expect(session.actions.counts.starts == 1)
        #expect(session.actions.counts.crons == 1)
        #expect(server.dials.count == 2)
        #expect(log.count(.info, "the connection to the control plane ended reason=end of stream") == 1)
        #expect(log.count(.warning, "") == 0, "\(log.all)")
        #expect(try session.shutdown())
        #expect(server.connections.allSatisfy { !$0.isOpen })
    }

    @Test func survivesFiftyDropsInARow() throws {
        let simulation = Simulation()
        let server = FakeControlPlane(
            simulation, .init(call: { $0.connection <= 50 ? .drop(taken: false) : .answer }))
        let session = SimulatedSession(simulation, server)
        try simulation.run("ready") { server.acknowledged == upToReady }
        #expect(server.dials.count == 51)
        #expect(session.actions.counts.starts == 1)
        #expect(server.connections.dropLast().allSatisfy { !$0.isOpen })
        #expect(session.metric("agent_control_plane_disconnects_total{reason=\"ended\"}") == "50")
    }

    @Test(arguments: [1.0, 0.5]) func backsOffWhileTheControlPlaneIsDown(_ fraction: Double) throws {
        let simulation = Simulation()
        let log = LogLines()
        let server = FakeControlPlane(
            simulation, .init(dial: { _ in simulation.now < .seconds(3_600) ? .fail(outage) : .connect }))
        let session = SimulatedSession(simulation, server, fraction: fraction, logger: log)
        try simulation.run("ready") { server.acknowledged == upToReady }
        let waits = zip(server.dials, server.dials.dropFirst()).map { $1 - $0 }
        let curve = [100, 200, 400, 800, 1_600, 3_200, 6_400].map { Duration.milliseconds($0) * fraction }
        #expect(Array(waits.prefix(7)) == curve)
        #expect(waits.dropFirst(7).allSatisfy { $0 == .seconds(10) * fraction })
        // 12.7 s of curve, then one attempt every 10 s, all of it times the jitter.
        #expect(server.dials.count == (fraction == 1 ? 1 + 7 + 359 : 1 + 7 + 719))
        #expect(log.count(.warning, "cannot connect") == 1)
        #expect(session.health.reports().map(\.degrades) == [false])
    }

    @Test func sayWhyThereIsNoConnection() throws {
        let simulation = Simulation()
        let server = FakeControlPlane(simulation, .init(dial: { _ in .fail(outage) }))
        let session = SimulatedSession(simulation, server)
        try simulation.run("three dials") { server.dials.count == 3 }
        let report = try #require(session.health.reports().first)
        #expect(report.degrades)
        #expect(
            report.text
                == "control plane: connecting since 2027-01-15T08:00:00Z, attempt 3: cannot reach https://coder.example"
        )
    }

    @Test(arguments: [.http(401), .http(403), .http(404), .version] as [ControlPlaneError.Code])
    func aRefusalIsAskedAgainEvery10Seconds(_ code: ControlPlaneError.Code) throws {
        let simulation = Simulation()
        let log = LogLines()
        let server = FakeControlPlane(
            simulation, .init(dial: { $0 < 20 ? .fail(ControlPlaneError(code, "not wanted")) : .connect }))
        let session = SimulatedSession(simulation, server, fraction: 0, logger: log)
        simulation.run(for: .seconds(95))
        #expect(zip(server.dials, server.dials.dropFirst()).allSatisfy { $1 - $0 == .seconds(10) })
        #expect(server.dials.count == 10)
        #expect(
            session.health.reports()
                == [.init("control plane: refused since 2027-01-15T08:00:00Z, asked again every 10 s: not wanted")])
        #expect(session.metric("agent_control_plane_state") == "3")
        #expect(log.count(.warning, "refuses") == 1)
        try simulation.run("ready") { server.acknowledged == upToReady }
    }

    @Test func anAttemptIsBoundedAndALateConnectionClosed() throws {
        let simulation = Simulation()
        let server = FakeControlPlane(
            simulation, .init(dial: { $0 == 1 ? .hang : $0 == 2 ? .late(.seconds(200)) : .connect }))
        _ = SimulatedSession(simulation, server)
        try simulation.run("ready") { server.acknowledged == upToReady }
        #expect(server.dials.count == 3)
        #expect(server.dials[1] == .milliseconds(30_100))
        simulation.run(for: .seconds(300))
        #expect(server.connections.count == 2)
        #expect(server.connections.filter(\.isOpen).count == 1)
    }

    private struct Deaf: Routine {
        let name = "deaf"
        let atShutdown = RoutineShutdown.stops
        let continuations = Watched<[CheckedContinuation<Void, Never>]>([])
        func run(_ connection: any AgentConnection) async throws {
            await withCheckedContinuation { continuation in continuations.update { $0.append(continuation) } }
        }
    }

    @Test func aRoutineThatHangsHoldsNobody() throws {
        let simulation = Simulation()
        let log = LogLines()
        let deaf = Deaf()
        let server = FakeControlPlane(
            simulation, .init(call: { $0.method == "UpdateStats" && $0.earlier == 0 ? .drop(taken: false) : .answer }))
        let session = SimulatedSession(simulation, server, logger: log, extra: [deaf])
        simulation.run(for: .seconds(30))
        #expect(server.acknowledged == upToReady)
        #expect(server.dials.count == 2)
        // Not run twice at a time.
        #expect(deaf.continuations.read(\.count) == 1)
        #expect(log.count(.error, "still hangs routine=deaf") == 1)
        let hanging = HealthRegistry.Report(
            "control plane: hanging since an earlier connection, and not done until it ends: deaf")
        #expect(session.health.reports().contains(hanging))
        #expect(session.metric("agent_control_plane_routines_stuck") == "1")

        // Once it ends it does its duty on the connection that there is.
        let first = deaf.continuations.update { $0.removeFirst() }
        first.resume()
        simulation.run(for: .seconds(1))
        #expect(deaf.continuations.read(\.count) == 1)
        #expect(log.count(.info, "has ended and is started anew routine=deaf") == 1)
        #expect(!session.health.reports().contains(hanging))
        #expect(session.metric("agent_control_plane_routines_stuck") == "0")
        #expect(server.dials.count == 2)
        #expect(try session.shutdown())
        #expect(session.metric("agent_control_plane_routines_stuck") == "1")
        for continuation in deaf.continuations.value { continuation.resume() }
    }

    /// One that stops at shutdown is not started anew during it.
    @Test func aRoutineThatHungIsLeftAloneOnceShutdownBegan() throws {
        let simulation = Simulation()
        let deaf = Deaf()
        let server = FakeControlPlane(
            simulation, .init(call: { $0.method == "UpdateStats" && $0.earlier == 0 ? .drop(taken: false) : .answer }))
        let session = SimulatedSession(
            simulation, server, actions: FakeActions(simulation, stopTakes: .seconds(100)), extra: [deaf])
        simulation.run(for: .seconds(30))
        let agent = session.session
        let delivered = Watched<Bool?>(nil)
        Task(executorPreference: simulation) {
            let value = await agent.shutdown()
            delivered.update { $0 = value }
        }
        simulation.run(for: .seconds(10))
        deaf.continuations.update { $0.removeFirst() }.resume()
        try simulation.run("shutdown") { delivered.value != nil }
        #expect(delivered.value == true)
        #expect(deaf.continuations.read(\.count) == 0)
    }

    @Test func appStatusNeedsAConnectionAndAPI28() throws {
        let simulation = Simulation()
        let refusal = DRPCError(.remote(3), "no such app")
        let server = FakeControlPlane(
            simulation,
            .init(
                dial: { _ in simulation.now < .seconds(1) ? .fail(outage) : .connect },
                call: { $0.method == "UpdateAppStatus" && $0.earlier == 1 ? .fail(refusal) : .answer }))
        let session = SimulatedSession(simulation, server)
        let link = session.session.link
        @Sendable func send() async -> DRPCError? {
            do {
                _ = try await link.updateAppStatus(.init())
                return nil
            } catch { return error as? DRPCError }
        }
        let offline = try simulation.run("offline", send)
        #expect(offline == ControlPlaneLink.offline)
        #expect(offline?.message == "agent not connected to coderd")
        try simulation.run("ready") { server.acknowledged == upToReady }
        #expect(try simulation.run("taken", send) == nil)
        let answer = try simulation.run("refused", send)
        #expect(answer?.code == .remote(3) && answer?.message == "no such app")

        let other = Simulation()
        let old = FakeControlPlane(other, version: APIVersion(2, 7))
        let oldLife = SimulatedSession(other, old)
        try other.run("ready") { old.acknowledged == upToReady }
        let oldLink = oldLife.session.link
        let refused = try other.run("old") { () -> DRPCError? in
            do {
                _ = try await oldLink.updateAppStatus(.init())
                return nil
            } catch { return error as? DRPCError }
        }
        #expect(refused?.code == .remote(12))
        #expect(old.count("UpdateAppStatus") == 0)
    }
}
