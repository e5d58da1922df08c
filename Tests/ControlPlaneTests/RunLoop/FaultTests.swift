import AgentProto
import AgentTestSupport
import DRPC
import FoundationEssentials
import Synchronization
import Testing

@testable import ControlPlane

private let upToReady: [Coder_Agent_V2_Lifecycle.State] = [.starting, .ready]

/// Each method that fails, hangs or is not there.
@Suite struct FaultTests {
    enum Fault: Sendable, CaseIterable { case fails, hangs, unimplemented, unknown }

    struct Case: Sendable {
        var method: String
        /// Without an answer the connection is given up.
        var isEssential: Bool
        /// A failure of it tears the connection down.
        var tearsDown = true
    }

    static let cases = [
        Case(method: "GetManifest", isEssential: true),
        Case(method: "UpdateStartup", isEssential: true),
        Case(method: "UpdateLifecycle", isEssential: true),
        Case(method: "GetAnnouncementBanners", isEssential: false),
        Case(method: "UpdateStats", isEssential: false),
        Case(method: "BatchUpdateAppHealths", isEssential: false),
        Case(method: "ReportConnection", isEssential: false, tearsDown: false),
    ]

    /// The fault lasts for a minute and a half; what is left then must be as if it had not been.
    @Test(arguments: cases, Fault.allCases) func aMethodThat(_ test: Case, _ fault: Fault) throws {
        let simulation = Simulation()
        let log = LogLines()
        let server = FakeControlPlane(simulation)
        server.manifest.withLock { $0.apps = [app("a", "http://localhost:1")] }
        server.plan.withLock {
            $0.call = { call in
                guard call.method == test.method, simulation.now < .seconds(90) else { return .answer }
                return switch fault {
                case .fails: .fail(DRPCError(.remote(0), "database is down"))
                case .hangs: .hang
                case .unimplemented: .fail(DRPCError(.remote(12), "not implemented"))
                case .unknown: .fail(DRPCError(.remote(0), "protocol error: unknown rpc: \"\(call.method)\""))
                }
            }
        }
        let session = SimulatedSession(simulation, server, logger: log)
        session.reports.report(id: UUID(), .connect, .ssh, peer: "10.0.0.1:4")
        simulation.run(for: .seconds(89))
        let torn =
            switch fault {
            case .fails: test.tearsDown
            case .hangs: test.isEssential
            case .unimplemented, .unknown: false
            }
        #expect((server.dials.count > 1) == torn, "\(log.all)")
        // Everything else goes on.
        if test.method != "GetManifest" { #expect(session.actions.counts.crons == 1) }
        if test.method != "UpdateLifecycle", test.method != "GetManifest" { #expect(server.acknowledged == upToReady) }
        if fault == .unimplemented || fault == .unknown {
            #expect(log.count(.warning, "") == (test.method == "ReportConnection" ? 2 : 1), "\(log.all)")
            #expect(server.count(test.method) == 1)
        }
        // A new connection tries everything again.
        simulation.run(for: .seconds(60))
        for connection in server.connections { connection.drop() }
        simulation.run(for: .seconds(90))
        #expect(server.acknowledged == upToReady)
        #expect(session.actions.counts.starts == 1)
        #expect(session.actions.counts.crons == 1)
        #expect(try session.shutdown())
        #expect(server.acknowledged == upToReady + [.shuttingDown, .off])
    }

    private func app(_ slug: String, _ url: String) -> Coder_Agent_V2_WorkspaceApp {
        var app = Coder_Agent_V2_WorkspaceApp()
        app.id = Data(slug.utf8)
        app.slug = slug
        app.health = .initializing
        app.healthcheck.url = url
        app.healthcheck.interval = .init(seconds: 5)
        app.healthcheck.threshold = 3
        return app
    }

    @Test func aManifestWithoutAgentIsNoManifest() throws {
        for id in [Data(), Data(repeating: 0, count: 16), Data(repeating: 1, count: 15)] {
            let simulation = Simulation()
            let log = LogLines()
            let server = FakeControlPlane(simulation)
            server.manifest.withLock { $0.agentID = id }
            let session = SimulatedSession(simulation, server, logger: log)
            simulation.run(for: .seconds(5))
            #expect(server.dials.count > 3)
            #expect(session.actions.counts.applied == 0)
            #expect(log.count(.warning, "no agent id") > 3)
        }
    }

    /// Random drops, random orders of what happens: states are acknowledged once and in order, and
    /// keep the time at which they happened.
    @Test func statesSurviveRandomDrops() async throws {
        var seeds = SeededGenerator("statesSurviveRandomDrops")
        for _ in 0..<200 {
            // Others wait for the thread.
            await Task.yield()
            let generator = Mutex(Numbers(state: seeds.next()))
            let chance = { @Sendable (percent: UInt64) in generator.withLock { $0.next() % 100 < percent } }
            let simulation = Simulation(pick: { count in generator.withLock { Int($0.next() % UInt64(count)) } })
            let faults = Mutex(30)
            let server = FakeControlPlane(
                simulation,
                .init(
                    dial: { _ in chance(20) ? .fail(ControlPlaneError(.unreachable, "down")) : .connect },
                    call: { _ in
                        guard chance(30),
                            faults.withLock({
                                $0 -= 1; return $0 > 0
                            })
                        else { return .answer }
                        return switch generator.withLock({ $0.next() % 4 }) {
                        case 0: .fail(DRPCError(.remote(0), "no"))
                        case 1: .hang
                        default: .drop(taken: chance(50))
                        }
                    }))
            let session = SimulatedSession(simulation, server, fraction: 0.5)
            simulation.run(for: .seconds(Int64(generator.withLock { $0.next() % 400 })))
            // An answer that comes while the connection is torn down is lost like one that never came.
            let whole = deduplicated(server.acknowledged)
            #expect(Array(upToReady.prefix(whole.count)) == whole)
            let history = session.session.lifecycle.history
            try simulation.run("ready") { history.read(\.acknowledged) == upToReady.count }
            faults.withLock { $0 = 0 }
            server.plan.withLock { $0.dial = { _ in .connect } }
            #expect(try session.shutdown())
            #expect(history.read(\.acknowledged) == upToReady.count + 2)
            #expect(deduplicated(server.acknowledged) == upToReady + [.shuttingDown, .off])
            #expect(session.actions.counts.starts == 1)
            // On the wire a state may come twice, when its answer was lost, but never out of order.
            #expect(deduplicated(server.states) == deduplicated(server.acknowledged))
            let times = server.seen.withLock { $0.acknowledged.map(\.changedAt) }.map {
                Double($0.seconds) + Double($0.nanos) / 1e9
            }
            #expect(times == times.sorted())
        }
    }

    private struct Numbers {
        var state: UInt64
        mutating func next() -> UInt64 {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return state
        }
    }

    private func deduplicated(_ states: [Coder_Agent_V2_Lifecycle.State]) -> [Coder_Agent_V2_Lifecycle.State] {
        states.reduce(into: []) { if $0.last != $1 { $0.append($1) } }
    }
}
