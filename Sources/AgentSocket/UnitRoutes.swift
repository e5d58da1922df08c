import AgentCore
import AgentHTTP
import Hummingbird

/// `GET /api/v0/units`: the units of `exp sync` with what they wait for, and what has happened.
public struct UnitRoutes: Sendable {
    private let units: UnitStore

    public init(units: UnitStore) { self.units = units }

    public func add(to routes: AgentRoutes) { routes.get("/api/v0/units", list) }

    private struct Dependency: Encodable {
        var name: String
        var status: String
        var satisfied: Bool
    }

    private struct Unit: Encodable {
        var name: String
        var status: String
        var ready: Bool
        var dependencies: [Dependency]
    }

    private struct Event: Encodable {
        var time: String
        var unit: String
        var event: String
    }

    private struct Answer: Encodable {
        var units: [Unit]
        var timeline: [Event]
    }

    private func list(_ request: Request, _ context: AgentRequestContext) throws -> Response {
        _ = try Query(request, allowed: [])
        let units = units.reports().map { report in
            Unit(
                name: report.unit, status: report.status, ready: report.isReady,
                dependencies: report.dependencies.map {
                    Dependency(name: $0.dependsOn, status: $0.currentStatus, satisfied: $0.isSatisfied)
                })
        }
        return .json(Answer(units: units, timeline: timeline))
    }

    /// All events that are kept. One that comes meanwhile may be left out.
    private var timeline: [Event] {
        var events: [Event] = []
        var number = 0
        let end = units.nextEvent
        while number < end, case .events(let batch, let next) = units.events(from: number), !batch.isEmpty {
            events += batch.map {
                Event(
                    time: timestampText(seconds: $0.at.seconds, nanoseconds: $0.at.nanoseconds), unit: $0.unit,
                    event: $0.status)
            }
            number = next
        }
        return events
    }
}
