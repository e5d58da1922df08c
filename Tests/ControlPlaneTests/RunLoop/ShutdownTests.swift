import AgentCore
import AgentProto
import AgentTestSupport
import DRPC
import FoundationEssentials
import ServiceLifecycle
import Synchronization
import ControlPlaneAPI
import Testing

@testable import ControlPlane

private typealias State = Coder_Agent_V2_Lifecycle.State
private let upToReady: [State] = [.starting, .ready]
private let down = ControlPlaneError(.unreachable, "down")

@Suite struct ShutdownTests {
    private func ready(_ actions: (Simulation) -> FakeActions = { FakeActions($0) }, log: LogLines = LogLines()) throws
        -> SimulatedSession
    {
        let simulation = Simulation()
        let session = SimulatedSession(
            simulation, FakeControlPlane(simulation), actions: actions(simulation), logger: log)
        try simulation.run("ready") { session.server.acknowledged == upToReady }
        return session
    }

    /// The routines that stop do, and the connection stays for those that remain.
    @Test func stopsAndRemains() throws {
        let log = LogLines()
        let session = try ready({ FakeActions($0, stopTakes: .seconds(300)) }, log: log)
        session.simulation.run(for: .seconds(10))
        let agent = session.session
        let delivered = Mutex<Bool?>(nil)
        Task(executorPreference: session.simulation) {
            let value = await agent.shutdown()
            delivered.withLock { $0 = value }
        }
        session.simulation.run(for: .seconds(1))
        let (banners, stats) = (session.server.count("GetAnnouncementBanners"), session.server.count("UpdateStats"))
        // The stop scripts run for five minutes; connection reports still go out.
        session.simulation.run(for: .seconds(150))
        session.reports.report(id: UUID(), .disconnect, .ssh, peer: "[::1]:9")
        session.simulation.run(for: .seconds(100))
        #expect(session.server.count("ReportConnection") == 1)
        #expect(session.server.count("GetAnnouncementBanners") == banners)
        #expect(session.server.count("UpdateStats") == stats)
        #expect(session.server.acknowledged == upToReady + [.shuttingDown])
        // A connection that is made during shutdown has only the routines that remain.
        session.server.connections.last?.drop()
        session.simulation.run(for: .seconds(10))
        #expect(session.server.dials.count == 2)
        #expect(session.server.count("GetManifest") == 1)
        try session.simulation.run("shutdown") { delivered.withLock { $0 } != nil }
        #expect(delivered.withLock { $0 } == true)
        #expect(session.server.states == upToReady + [.shuttingDown, .off])
        #expect(session.server.dials.count == 2)
        #expect(session.server.connections.last?.closes.withLock { $0 } == 1)
        #expect(session.actions.counts.stopScripts == 1 && session.actions.counts.stops == 1)
        #expect(log.count(.warning, "") == 0, "\(log.all)")
    }

    @Test(
        arguments: [(.succeeded, .off), (.timedOut, .shutdownTimeout), (.failed, .shutdownError)]
            as [(ScriptOutcome, Coder_Agent_V2_Lifecycle.State)])
    func saysHowTheStopScriptsEnded(_ outcome: ScriptOutcome, _ state: Coder_Agent_V2_Lifecycle.State) throws {
        let session = try ready { FakeActions($0, stop: outcome) }
        #expect(try session.shutdown())
        #expect(session.server.states == upToReady + [.shuttingDown, state])
    }

    @Test(
        arguments: [(.timedOut, .startTimeout), (.failed, .startError)]
            as [(ScriptOutcome, Coder_Agent_V2_Lifecycle.State)])
    func saysHowTheStartScriptsEnded(_ outcome: ScriptOutcome, _ state: Coder_Agent_V2_Lifecycle.State) throws {
        let simulation = Simulation()
        let session = SimulatedSession(
            simulation, FakeControlPlane(simulation), actions: FakeActions(simulation, start: outcome))
        try simulation.run("started") { session.server.acknowledged == [.starting, state] }
        #expect(session.actions.counts.crons == 1)
    }

    @Test func shutdownDuringStartScriptsEndsThem() throws {
        let simulation = Simulation()
        let session = SimulatedSession(
            simulation, FakeControlPlane(simulation), actions: FakeActions(simulation, startTakes: .seconds(1_000)))
        try simulation.run("starting") { session.server.acknowledged == [.starting] }
        let began = simulation.now
        #expect(try session.shutdown())
        #expect(simulation.now - began < .seconds(1))
        #expect(session.server.states == [.starting, .shuttingDown, .off])
        #expect(session.actions.counts.startsEnded == 1 && session.actions.counts.crons == 0)
    }

    @Test func stopScriptsThatNeverEndAreATimeOut() throws {
        let session = try ready { FakeActions($0, stopTakes: .seconds(1_000_000)) }
        let began = session.simulation.now
        #expect(try session.shutdown())
        #expect(session.simulation.now - began < .seconds(601))
        #expect(session.server.states.last == .shutdownTimeout)
    }

    /// A control plane that does not answer costs the budget, and no more.
    @Test func deliveryKeepsItsBudget() throws {
        let session = try ready()
        session.server.plan.withLock { $0.call = { _ in .hang } }
        let began = session.simulation.now
        #expect(try session.shutdown() == false)
        #expect(session.simulation.now - began >= .seconds(5))
        #expect(session.simulation.now - began < .seconds(6))
        #expect(session.server.connections.last?.isOpen == false)
    }

    /// Without a connection it is tried again for as long as the budget goes, with short waits.
    @Test(arguments: [.zero, .seconds(2), nil] as [Duration?])
    func aLinkThatIsDownIsTriedForTheWholeBudget(_ upAfter: Duration?) throws {
        let session = try ready()
        session.server.plan.withLock { $0.dial = { _ in .fail(down) } }
        session.server.connections.last?.drop()
        session.simulation.run(for: .seconds(200))
        let (before, began) = (session.server.dials.count, session.simulation.now)
        session.server.plan.withLock { plan in
            // Whatever attempts fall into the time of the stop scripts fail.
            plan.dial = { [actions = session.actions, simulation = session.simulation] _ in
                guard actions.counts.stopScripts == 1, let upAfter else { return .fail(down) }
                return simulation.now - began >= upAfter ? .connect : .fail(down)
            }
        }
        #expect(try session.shutdown() == (upAfter != nil))
        let took = session.simulation.now - began
        // At once, and after 100 ms, 200 ms, 400 ms …: 5 s have room for six.
        #expect(session.server.dials.count == before + (upAfter == nil ? 6 : upAfter == .zero ? 1 : 6))
        #expect(upAfter == nil ? took >= .seconds(5) : took < (upAfter ?? .zero) + .seconds(2))
        #expect(took < .seconds(6))
        #expect(session.server.states == upToReady + (upAfter != nil ? [.shuttingDown, .off] : []))
    }

    /// A refusal will hardly change in five seconds.
    @Test func aRefusalEndsTheDelivery() throws {
        let session = try ready()
        session.server.plan.withLock { $0.dial = { _ in .fail(ControlPlaneError(.http(401), "who are you?")) } }
        session.server.connections.last?.drop()
        session.simulation.run(for: .seconds(200))
        let (before, began) = (session.server.dials.count, session.simulation.now)
        #expect(try session.shutdown() == false)
        #expect(session.server.dials.count <= before + 2)
        #expect(session.simulation.now - began < .seconds(1))
    }

    /// Losing the connection again and again costs nothing but time.
    @Test(arguments: [2, 4], [true, false]) func lossesDuringDeliveryAreMadeGood(_ losses: Int, _ taken: Bool) throws {
        let session = try ready()
        session.server.plan.withLock {
            $0.call = { call in
                call.method == "UpdateLifecycle" && call.connection <= losses ? .drop(taken: taken) : .answer
            }
        }
        let began = session.simulation.now
        #expect(try session.shutdown())
        #expect(session.simulation.now - began < .seconds(5))
        #expect(session.server.acknowledged == upToReady + [.shuttingDown, .off])
        #expect(session.server.dials.count == losses + 1)
    }

    @Test func aHangingAttemptAtShutdownIsGivenUp() throws {
        let simulation = Simulation()
        let session = SimulatedSession(simulation, FakeControlPlane(simulation, .init(dial: { _ in .hang })))
        simulation.run(for: .seconds(3))
        let began = simulation.now
        #expect(try session.shutdown() == false)
        #expect(simulation.now - began < .seconds(6))
    }

    @Test func aDropDuringDeliveryIsMadeGood() throws {
        let session = try ready()
        session.server.plan.withLock {
            $0.call = { $0.method == "UpdateLifecycle" && $0.connection == 1 ? .drop(taken: false) : .answer }
        }
        #expect(try session.shutdown())
        #expect(session.server.states == upToReady + [.shuttingDown, .off])
    }

    /// A scheduled run would otherwise outlive its session and its reports.
    @Test func scriptsEndInOrder() throws {
        let session = try ready()
        #expect(try session.shutdown())
        #expect(session.actions.counts.order == ["no more schedules", "end start and cron", "run stop", "end all"])
    }

    @Test func whatTheControlPlaneDoesNotOfferIsNotWaitedFor() throws {
        let simulation = Simulation()
        let server = FakeControlPlane(
            simulation,
            .init(call: { $0.method == "UpdateLifecycle" ? .fail(DRPCError(.remote(12), "no")) : .answer }))
        let session = SimulatedSession(simulation, server)
        simulation.run(for: .seconds(10))
        let began = simulation.now
        #expect(try session.shutdown())
        #expect(simulation.now - began < .seconds(1))
    }
}

extension ShutdownTests {
    private struct Queue: Routine {
        let name = "queue"
        let atShutdown = RoutineShutdown.remains
        let left: Watched<(count: Int, closed: Bool)>

        func run(_ connection: any AgentConnection) async throws {
            while true {
                let more = try await left.first { $0.count > 0 ? true : $0.closed ? false : nil }
                if !more { return }
                _ = try await connection.call(AgentAPI.scriptCompleted, .init())
                left.update { $0.count -= 1 }
            }
        }
    }

    @Test func aQueueIsClosedAndDeliveredToItsEnd() throws {
        for answers in [true, false] {
            let simulation = Simulation()
            let left = Watched((count: 3, closed: false))
            let routine = ClosableRoutine(
                Queue(left: left), close: { left.update { $0.closed = true } },
                isEmpty: { left.read { $0.count == 0 } })
            let server = FakeControlPlane(
                simulation,
                .init(
                    dial: { _ in simulation.now < .seconds(1) ? .fail(down) : .connect },
                    call: { $0.method == "ScriptCompleted" && !answers ? .hang : .answer }))
            let session = SimulatedSession(simulation, server, extra: [routine])
            simulation.run(for: .milliseconds(1_500))
            left.update { $0.count += 2 }
            #expect(try session.shutdown() == answers)
            #expect(left.read(\.count) == (answers ? 0 : 5))
        }
    }
}

@Suite struct ReinitTests {
    private struct Stream {
        let answers: Watched<[Result<ReinitNotice?, any Error>]>
        let asked = Watched<[Duration]>([])
        let simulation: Simulation

        init(_ simulation: Simulation, _ answers: [Result<ReinitNotice?, any Error>]) {
            (self.simulation, self.answers) = (simulation, .init(answers))
        }

        func next() async throws -> ReinitNotice? {
            let now = simulation.now
            asked.update { $0.append(now) }
            try await simulation.clock.sleep(for: .seconds(1))
            let answer = answers.update { $0.isEmpty ? nil : $0.removeFirst() }
            guard let answer else {
                try await simulation.clock.sleep(for: .seconds(1_000_000))
                return nil
            }
            return try answer.get()
        }
    }

    private func claimed(_ owner: String, reason: String = "prebuild_claimed") -> Result<ReinitNotice?, any Error> {
        .success(ReinitNotice(workspaceID: "w", reason: reason, ownerID: owner))
    }

    @Test func aClaimStartsANewSessionOnce() throws {
        let simulation = Simulation()
        let server = FakeControlPlane(simulation)
        let stream = Stream(
            simulation,
            [.failure(down), .success(nil), claimed("o", reason: "else"), claimed("o"), claimed("o"), claimed("p")])
        let sessions = Watched<[SimulatedSession]>([])
        let runtime = simulation.runtime()
        let agent = ControlPlaneAgent(
            runtime: runtime, reinit: ReinitWatcher(runtime: runtime) { try await stream.next() },
            makeSession: {
                let session = SimulatedSession(simulation, server, runs: false)
                sessions.update { $0.append(session) }
                return session.session
            })
        let run = Task(executorPreference: simulation) { try await agent.run() }
        simulation.run(for: .seconds(100))
        let whole = upToReady + [State.shuttingDown, .off]
        #expect(server.states == whole + whole + upToReady)
        #expect(sessions.value.map(\.actions.counts.starts) == [1, 1, 1])
        #expect(server.dials.count == 3)
        #expect(try simulation.run("status") { (try? await agent.updateAppStatus(.init())) != nil })
        #expect(try simulation.run("finish") { await agent.finish() })
        #expect(agent.delivered == true)
        #expect(server.states == whole + whole + whole)
        // Local services end now; the connection and the service are still there.
        simulation.run(for: .seconds(10))
        #expect(server.connections.last?.closes.withLock { $0 } == 0)
        run.cancel()
        #expect(try simulation.run("end") { (try? await run.value) != nil })
    }

    @Test func a409IsTheEndAndOthersBackOff() throws {
        let simulation = Simulation()
        let refused = ControlPlaneError(.http(404), "no")
        let stream = Stream(
            simulation,
            [
                .failure(down), .failure(down), .failure(refused), .failure(ControlPlaneError(.http(409), "never")),
                claimed("o"),
            ])
        let watcher = ReinitWatcher(runtime: simulation.runtime()) { try await stream.next() }
        try simulation.run("the end") { await watcher.run { _ in Issue.record("started anew") } }
        let asked = stream.asked.value
        #expect(
            zip(asked, asked.dropFirst()).map { $1 - $0 } == [.milliseconds(1_100), .milliseconds(1_200), .seconds(11)])
    }

    /// A signal may come while the first session is still being put together.
    @Test func aSignalBeforeTheFirstSessionEndsInOrder() throws {
        let simulation = Simulation()
        let server = FakeControlPlane(simulation)
        let (isBeingMade, mayGoOn) = (Watched(false), Watched(false))
        let agent = ControlPlaneAgent(
            runtime: simulation.runtime(), reinit: nil,
            makeSession: {
                isBeingMade.update { $0 = true }
                _ = try? await mayGoOn.first { $0 ? true : nil }
                return SimulatedSession(simulation, server, runs: false).session
            })
        let run = Task(executorPreference: simulation) { try await agent.run() }
        try simulation.run("it is being made") { isBeingMade.value }
        #expect(try simulation.run("finish") { await agent.finish() })
        mayGoOn.update { $0 = true }
        simulation.run(for: .seconds(10))
        #expect(agent.delivered == true && agent.session == nil)
        #expect(server.dials.isEmpty)
        // A second call finds it over.
        #expect(try simulation.run("again") { await agent.finish() })
        run.cancel()
        #expect(try simulation.run("end") { (try? await run.value) != nil })
    }

    /// As the daemon has it: the connection first in the group, what finishes the session last.
    @Test func aServiceGroupsGracefulShutdownIsOrderly() async throws {
        struct Finishing: Service {
            let agent: ControlPlaneAgent
            func run() async throws {
                try? await gracefulShutdown()
                await agent.finish()
            }
        }
        /// Ends when its turn comes.
        struct Local: Service {
            let server: FakeControlPlane
            let seen: Watched<String?>
            func run() async throws {
                try? await gracefulShutdown()
                let isOpen = server.connections.last?.isOpen == true
                let text = "\(server.acknowledged == upToReady + [.shuttingDown, .off]) \(isOpen)"
                seen.update { $0 = text }
            }
        }
        let simulation = Simulation()
        let server = FakeControlPlane(simulation)
        let seen = Watched<String?>(nil)
        let agent = ControlPlaneAgent(
            runtime: simulation.runtime(), reinit: nil,
            makeSession: { SimulatedSession(simulation, server, runs: false).session })
        let services: [any Service] = [agent, Local(server: server, seen: seen), Finishing(agent: agent)]
        let group = ServiceGroup(
            configuration: .init(services: services.map { .init(service: $0) }, logger: quiet))
        let ended = Watched(false)
        Task(executorPreference: simulation) {
            try await group.run()
            ended.update { $0 = true }
        }
        // The group is an actor, so parts of it run beside the simulation.
        try await eventually("ready") {
            simulation.run(for: .milliseconds(10))
            return server.acknowledged == upToReady
        }
        let trigger = Task { await group.triggerGracefulShutdown() }
        try await eventually("end") {
            simulation.run(for: .milliseconds(10))
            return ended.value
        }
        await trigger.value
        #expect(agent.delivered == true)
        #expect(seen.value == "true true", "all was delivered, and the connection still open")
        #expect(server.connections.allSatisfy { !$0.isOpen })
        #expect(server.states == upToReady + [.shuttingDown, .off])
    }
}
