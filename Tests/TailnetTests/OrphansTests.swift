import IPAddresses
import NetStack
import Testing

@testable import Tailnet

@Suite struct OrphansTests {
    /// Ids of real connections.
    private static func ids(_ count: Int) throws -> [ConnectionID] {
        var random = SystemRandomNumberGenerator()
        var stack = NetStack(addresses: [clientAddress], random: &random)
        return try (0..<count).map { _ in
            let id = stack.connect(to: Endpoint(serverAddress, 80), now: .zero)
            return try #require(id)
        }
    }

    private func expect(
        _ orphans: inout Orphans, at now: Duration, left: Int, _ due: [ConnectionID],
        _ location: SourceLocation = #_sourceLocation
    ) {
        let found = orphans.due(now: now) { _ in left }
        #expect(found == due, sourceLocation: location)
    }

    @Test func oneThatDoesNotMoveEndsAfterItsLife() throws {
        let ids = try Self.ids(2)
        var orphans = Orphans(life: .seconds(60))
        orphans.add(ids[0], queued: 0, now: .zero)
        orphans.add(ids[1], queued: 10, now: .seconds(1))
        #expect(orphans.nextDeadline == .seconds(60))
        expect(&orphans, at: .milliseconds(59_999), left: 0, [])
        expect(&orphans, at: .seconds(60), left: 0, [ids[0]])
        // Still as much as before.
        expect(&orphans, at: .seconds(61), left: 10, [ids[1]])
        #expect(orphans.count == 0 && orphans.nextDeadline == nil)
    }

    @Test func oneThatMovesLivesOn() throws {
        let id = try Self.ids(1)[0]
        var orphans = Orphans(life: .seconds(60))
        orphans.add(id, queued: 100, now: .zero)
        expect(&orphans, at: .seconds(60), left: 99, [])
        expect(&orphans, at: .seconds(120), left: 98, [])
        expect(&orphans, at: .seconds(180), left: 98, [id])
    }

    @Test func oneThatEndsIsForgotten() throws {
        let id = try Self.ids(1)[0]
        var orphans = Orphans(life: .seconds(60))
        orphans.add(id, queued: 0, now: .zero)
        let removed = [orphans.remove(id), orphans.remove(id)]
        #expect(removed == [true, false])
        expect(&orphans, at: .seconds(60), left: 0, [])
    }
}
