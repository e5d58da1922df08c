import AgentCore
import AgentHTTP
import BoundaryLog
import ControlPlane
import Glibc
import Hummingbird

/// `GET /api/v0/overview`: how the daemon is doing, in one answer.
struct OverviewRoute: Sendable {
    let identity: PageRoutes.Identity
    let startedAt = timestampText(seconds: Int64(Glibc.time(nil)))
    let health: HealthRegistry
    let processes: @Sendable () -> (running: Int, known: Int)
    let mode: @Sendable (Request) -> PageSessions.Mode
    /// nil when the daemon runs standalone.
    let link: (address: String, agent: ControlPlaneAgent)?
    let boundary: DurableQueue?
    let usage: UsageSamples

    func add(to routes: AgentRoutes) { routes.get("/api/v0/overview", overview) }

    private struct Health: Encodable {
        var status: String
        var reasons: [String]
    }

    private struct Link: Encodable {
        var address: String
        var state: String
        var since: String?
        var problem: String?
        var attempts = 0
        var boundary_batches_queued: Int
    }

    private struct Processes: Encodable {
        var running: Int
        var known: Int
    }

    private struct Usage: Encodable {
        var interval_seconds = UsageSamples.interval
        var samples: [UsageSamples.Sample]
    }

    private struct Answer: Encodable {
        var version: String
        var instance: String
        var pid: Int32
        var hostname: String
        var started_at: String
        var mode: PageSessions.Mode
        var health: Health
        var link: Link?
        var processes: Processes
        var usage: Usage
    }

    private func overview(_ request: Request, _ context: AgentRequestContext) throws -> Response {
        _ = try Query(request, allowed: [])
        let reports = health.reports()
        let (running, known) = processes()
        return .json(
            Answer(
                version: identity.version, instance: identity.instance.lowercased, pid: getpid(),
                hostname: identity.hostname,
                started_at: startedAt, mode: mode(request),
                health: Health(
                    status: reports.contains(where: \.degrades) ? "degraded" : "ok", reasons: reports.map(\.text)),
                link: link.map { Self.link($0.address, $0.agent, boundary) },
                processes: Processes(running: running, known: known),
                usage: Usage(samples: usage.current())))
    }

    private static func link(_ address: String, _ agent: ControlPlaneAgent, _ boundary: DurableQueue?) -> Link {
        var link = Link(address: address, state: "stopped", boundary_batches_queued: boundary?.batches ?? 0)
        func text(_ seconds: Int64, _ nanoseconds: Int32) -> String {
            timestampText(seconds: seconds, nanoseconds: nanoseconds)
        }
        switch agent.session?.link.status ?? .off {
        case .off: break
        case .connecting(let since, let attempts, let problem):
            (link.state, link.since) = ("connecting", text(since.seconds, since.nanos))
            (link.attempts, link.problem) = (attempts, problem)
        case .connected(let since, _): (link.state, link.since) = ("connected", text(since.seconds, since.nanos))
        case .refused(let since, let reason):
            (link.state, link.since, link.problem) = ("refused", text(since.seconds, since.nanos), reason)
        }
        return link
    }
}
