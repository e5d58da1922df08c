import AgentTestSupport
import AgentCore
import ControlPlaneAPI
import ControlPlaneTestSupport
import AgentProto
import ControlPlane
import DRPC
import FoundationEssentials
import SwiftProtobuf
import Synchronization

/// A control plane in memory, with faults by script.
final class FakeControlPlane: Dialler {
    struct Call: Sendable {
        var method: String
        /// Of all calls, from 0.
        var index: Int
        /// Of the connections, from 1.
        var connection: Int
        /// How often this method was called before.
        var earlier: Int
    }

    enum Behaviour: Sendable {
        case answer
        case fail(any Error)
        /// No answer for as long as the connection is open.
        case hang
        /// The connection ends, before or after the control plane took the request.
        case drop(taken: Bool)
    }

    enum Dial: Sendable {
        case connect
        case fail(any Error)
        case hang
        /// Answers after so long, even if nobody waits.
        case late(Duration)
    }

    struct Plan: Sendable {
        var dial: @Sendable (Int) -> Dial = { _ in .connect }
        var call: @Sendable (Call) -> Behaviour = { _ in .answer }
    }

    struct Seen: Sendable {
        var dials: [Duration] = []
        var connections: [FakeConnection] = []
        var calls: [Call] = []
        var taken: [(method: String, request: any Message)] = []
        /// Lifecycle states whose answer was delivered.
        var acknowledged: [Coder_Agent_V2_Lifecycle] = []
    }

    let simulation: Simulation
    let plan: Mutex<Plan>
    let seen = Mutex(Seen())
    let version: APIVersion
    let manifest: Mutex<Coder_Agent_V2_Manifest>
    let answers = Mutex<[String: any Message]>([:])

    init(_ simulation: Simulation, _ plan: Plan = Plan(), version: APIVersion = APIVersion(2, 9)) {
        (self.simulation, self.version) = (simulation, version)
        self.plan = Mutex(plan)
        var manifest = Coder_Agent_V2_Manifest()
        manifest.agentID = Data(repeating: 7, count: 16)
        manifest.directory = "~/work"
        self.manifest = Mutex(manifest)
    }

    func dial() async throws -> any AgentConnection {
        let now = simulation.now
        let number = seen.withLock { seen in
            seen.dials.append(now)
            return seen.dials.count
        }
        switch plan.withLock({ $0 }).dial(number) {
        case .connect: break
        case .fail(let error): throw error
        case .hang: try await simulation.clock.sleep(for: .seconds(1_000_000))
        case .late(let wait):
            let clock = simulation.clock
            await Task(executorPreference: simulation) { try? await clock.sleep(for: wait) }.value
        }
        return seen.withLock { seen in
            let connection = FakeConnection(self, number: seen.connections.count + 1)
            seen.connections.append(connection)
            return connection
        }
    }

    func count(_ method: String) -> Int { seen.withLock { $0.calls.count { $0.method == method } } }
    var dials: [Duration] { seen.withLock { $0.dials } }
    var connections: [FakeConnection] { seen.withLock { $0.connections } }
    var acknowledged: [Coder_Agent_V2_Lifecycle.State] { seen.withLock { $0.acknowledged.map(\.state) } }
    /// States that arrived, in order, twice where an answer was lost.
    var states: [Coder_Agent_V2_Lifecycle.State] { requests(AgentAPI.updateLifecycle).map(\.lifecycle.state) }

    func requests<Request, Response>(_ method: Method<Request, Response>) -> [Request] {
        seen.withLock { $0.taken.compactMap { $0.request as? Request } }
    }
}

final class FakeConnection: UnaryConnection {
    let server: FakeControlPlane
    let number: Int
    let end = Watched<String?>(nil)
    let closes = Mutex(0)

    init(_ server: FakeControlPlane, number: Int) { (self.server, self.number) = (server, number) }

    var apiVersion: APIVersion { server.version }
    var isOpen: Bool { end.value == nil }

    func drop(_ reason: String = "end of stream") { end.update { if $0 == nil { $0 = reason } } }

    func ended() async -> String { (try? await end.first { $0 }) ?? "cancelled" }

    func close() async {
        closes.withLock { $0 += 1 }
        drop("closed by us")
    }

    func call<Request: Message, Response: Message>(
        _ method: Method<Request, Response>, _ request: Request
    ) async throws -> Response {
        let name = String(method.name.split(separator: "/").last ?? "")
        try check()
        let call = server.seen.withLock { seen in
            let earlier = seen.calls.count { $0.method == name }
            let call = FakeControlPlane.Call(
                method: name, index: seen.calls.count, connection: number, earlier: earlier)
            seen.calls.append(call)
            return call
        }
        // An answer comes later than the question, so that other things happen in between.
        try await server.simulation.clock.sleep(for: .milliseconds(1))
        try check()
        switch server.plan.withLock({ $0 }).call(call) {
        case .answer: break
        case .fail(let error): throw error
        case .hang:
            _ = try await end.first { $0 }
            try check()
        case .drop(let taken):
            if taken { server.seen.withLock { $0.taken.append((name, request)) } }
            drop()
            try check()
        }
        server.seen.withLock { $0.taken.append((name, request)) }
        let response = answer(name, Response.self)
        server.seen.withLock { seen in
            if let request = request as? Coder_Agent_V2_UpdateLifecycleRequest {
                seen.acknowledged.append(request.lifecycle)
            }
        }
        return response
    }

    private func check() throws {
        try Task.checkCancellation()
        if !isOpen { throw DRPCError(.closed, "the connection is closed") }
    }

    private func answer<Response: Message>(_ name: String, _: Response.Type) -> Response {
        if let manifest = server.manifest.withLock({ $0 }) as? Response { return manifest }
        return server.answers.withLock { $0[name] } as? Response ?? Response()
    }
}

/// Scripts and manifests without processes.
final class FakeActions: ManifestActions {
    struct Seen: Sendable {
        var applied = 0
        var starts = 0
        var startsEnded = 0
        var crons = 0
        var stops = 0
        var stopScripts = 0
        /// What shutdown asked for.
        var order: [String] = []
    }

    let seen = Mutex(Seen())
    let clock: AgentClock
    let startTakes: Duration
    let stopTakes: Duration
    let startOutcome: ScriptOutcome
    let stopOutcome: ScriptOutcome

    init(
        _ simulation: Simulation, startTakes: Duration = .milliseconds(50), stopTakes: Duration = .milliseconds(20),
        start: ScriptOutcome = .succeeded, stop: ScriptOutcome = .succeeded
    ) {
        clock = AgentClock(simulation.clock)
        (self.startTakes, self.stopTakes, startOutcome, stopOutcome) = (startTakes, stopTakes, start, stop)
    }

    var counts: Seen { seen.withLock { $0 } }

    func apply(_ message: Coder_Agent_V2_Manifest) async throws -> String {
        seen.withLock { $0.applied += 1 }
        return "/home/coder/work"
    }

    func runStartScripts() async -> ScriptOutcome {
        seen.withLock { $0.starts += 1 }
        try? await clock.sleep(startTakes)
        seen.withLock { $0.startsEnded += 1 }
        return startOutcome
    }

    func startCron() { seen.withLock { $0.crons += 1 } }
    func stopCron() {
        seen.withLock { seen in
            seen.stops += 1
            seen.order.append("no more schedules")
        }
    }

    func endScripts(all: Bool) async { seen.withLock { $0.order.append(all ? "end all" : "end start and cron") } }

    func runStopScripts() async -> ScriptOutcome {
        seen.withLock { seen in
            seen.stopScripts += 1
            seen.order.append("run stop")
        }
        try? await clock.sleep(stopTakes)
        return stopOutcome
    }
}

struct FakeProber: AppProber {
    let healthy = AnswerBox()
    final class AnswerBox: Sendable {
        let answers = Mutex<[String: Bool]>([:])
        let asked = Mutex<[(url: String, limit: Duration)]>([])
    }
    func isHealthy(_ url: String, within limit: Duration) async -> Bool {
        healthy.asked.withLock { $0.append((url, limit)) }
        return healthy.answers.withLock { $0[url] ?? true }
    }
}

struct NoConnections: StatsSource {
    func openConnections() -> [String: Int64] { ["http": 2, "websocket": 1] }
}

/// A whole session with all routines of this folder.
struct SimulatedSession {
    let simulation: Simulation
    let server: FakeControlPlane
    let actions: FakeActions
    let reports: ConnectionReports
    let banners = AnnouncementBanners()
    let metrics = MetricsRegistry()
    let health = HealthRegistry()
    let prober = FakeProber()
    let session: AgentSession

    init(
        _ simulation: Simulation, _ server: FakeControlPlane, actions: FakeActions? = nil, fraction: Double = 1,
        logger: LogLines = LogLines(), extra: [any Routine] = [], runs: Bool = true
    ) {
        let runtime = simulation.runtime(fraction: fraction, logger: logger.logger)
        let actions = actions ?? FakeActions(simulation)
        (self.simulation, self.server, self.actions) = (simulation, server, actions)
        reports = ConnectionReports(runtime: runtime, metrics: metrics)
        session = AgentSession(
            identity: .init(version: "v1.2.3", subsystems: [.envbox]), dialler: server, actions: actions,
            prober: prober,
            routines: [
                FetchAnnouncementBanners(banners, runtime: runtime), ReportConnections(reports),
                ReportStats(source: NoConnections(), metrics: metrics, runtime: runtime),
            ] + extra,
            runtime: runtime, metrics: metrics, health: health)
        let session = session
        if runs { Task(executorPreference: simulation) { await session.run() } }
    }

    func shutdown() throws -> Bool {
        let session = session
        return try simulation.run("shutdown") { await session.shutdown() }
    }

    /// The value of a line of the exposition.
    func metric(_ line: String) -> String? {
        metrics.render().split(separator: "\n").first { $0.hasPrefix(line + " ") }
            .flatMap { $0.split(separator: " ").last }.map(String.init)
    }
}

extension AgentSession {
    /// Ends as the daemon's shutdown does.
    func shutdown() async -> Bool {
        let delivered = await finish()
        await close()
        return delivered
    }
}
