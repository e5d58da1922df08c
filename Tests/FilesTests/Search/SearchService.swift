import AgentCore
import AgentTestSupport
import Foundation

@testable import AgentHTTP
@testable import Files

/// The searches of the file service without a server around them.
struct SearchService {
    let routes: SearchRoutes
    let caller = CallerPresence()

    /// - Parameter clock: by default one that stands still: on a busy machine a search may take longer than it may.
    init(clock: AgentClock = AgentClock(ManualClock())) {
        let work = DiskWork(clock: clock, executor: BlockingExecutor.shared, health: HealthRegistry())
        routes = SearchRoutes(work: work)
    }

    func glob(_ body: String) async throws -> SearchRoutes.GlobAnswer {
        let body = try JSONDecoder().decode(GlobQuery.Body.self, from: Data(body.utf8))
        return try await routes.glob(GlobQuery(body), caller)
    }

    func grep(_ body: String) async throws -> SearchRoutes.GrepAnswer {
        let body = try JSONDecoder().decode(GrepQuery.Body.self, from: Data(body.utf8))
        return try await routes.grep(GrepQuery(body), caller)
    }
}
