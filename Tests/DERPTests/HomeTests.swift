import AgentTestSupport
import Sodium
import Testing

@testable import DERP

func region(_ id: Int, avoid: Bool = false, host: String = "h", stunOnly: Bool = false) -> DERPMap.Region {
    var region = DERPMap.Region(id: id)
    var node = DERPMap.Node()
    (node.hostName, node.stunOnly) = (host, stunOnly)
    (region.avoid, region.nodes) = (avoid, [node])
    return region
}

private func begun(_ round: HomeChooser.Round?) throws -> HomeChooser.Round { try #require(round) }

@Suite struct HomeTests {
    private var chooser = HomeChooser()

    /// Measures once; regions without a latency don't answer.
    private mutating func round(at seconds: Int, _ latencies: [Int: Int]) throws {
        let round = try begun(chooser.advance(now: .seconds(seconds)))
        for region in round.regions {
            chooser.measured(
                region, latencies[region].map { .milliseconds($0) }, round: round.number, now: .seconds(seconds))
        }
    }

    @Test mutating func aSingleRegionIsTakenUnmeasured() throws {
        #expect(chooser.home == nil && chooser.nextDeadline == nil)
        chooser.update(DERPMap(regions: [region(7, avoid: true), region(1, stunOnly: true)]), now: .zero)
        #expect(chooser.home == 7)
        // It is measured once, to be shown.
        try round(at: 1, [7: 40])
        #expect(chooser.home == 7 && chooser.nextDeadline == nil)
        #expect(chooser.latencies(now: .seconds(999)) == [7: .milliseconds(40)])
        #expect(chooser.advance(now: .seconds(999)) == nil)
        chooser.relayFailed(now: .seconds(5))
        #expect(chooser.nextDeadline == nil)
        let gone = chooser.update(DERPMap(regions: [region(1, stunOnly: true)]), now: .zero)
        #expect(gone == [7] && chooser.home == nil)
    }

    @Test mutating func theLowestScoreWins() throws {
        chooser.update(DERPMap(regions: [region(1), region(2), region(3)], regionScore: [2: 0.5]), now: .zero)
        try round(at: 0, [1: 50, 2: 90, 3: 60])
        #expect(chooser.home == 2 && chooser.nextDeadline == .seconds(300))
        #expect(chooser.latencies(now: .zero) == [1: .milliseconds(50), 2: .milliseconds(90), 3: .milliseconds(60)])
    }

    @Test mutating func scoresThatAreHuge() throws {
        chooser.update(DERPMap(regions: [region(1), region(2)], regionScore: [1: 1e300, 2: 1e-300]), now: .zero)
        try round(at: 0, [1: 1, 2: 5_000])
        #expect(chooser.home == 2)
    }

    /// Home moves only for 10 ms or more, to two thirds or less.
    @Test(arguments: [
        (100, 91, false), (100, 90, false), (100, 67, false), (100, 66, true), (12, 3, false), (12, 2, true),
        (30, 20, true), (30, 21, false), (100, 100, false),
    ])
    mutating func homeIsKept(_ old: Int, _ new: Int, _ moves: Bool) throws {
        chooser.update(DERPMap(regions: [region(1), region(2)]), now: .zero)
        try round(at: 0, [2: old])
        #expect(chooser.home == 2)
        try round(at: 300, [1: new, 2: old])
        #expect(chooser.home == (moves ? 1 : 2))
    }

    @Test mutating func theBestOfFiveMinutesCounts() throws {
        chooser.update(DERPMap(regions: [region(1), region(2)]), now: .zero)
        try round(at: 0, [1: 20, 2: 100])
        #expect(chooser.home == 1)
        // One slow answer of home is none: the best of the last 5 minutes is.
        try round(at: 300, [1: 400, 2: 100])
        #expect(chooser.home == 1 && chooser.latencies(now: .seconds(300))[1] == .milliseconds(20))
        try round(at: 600, [1: 400, 2: 100])
        #expect(chooser.home == 2)
    }

    @Test mutating func whatDoesNotAnswer() throws {
        chooser.update(DERPMap(regions: [region(1), region(2), region(3, avoid: true)]), now: .zero)
        try round(at: 0, [:])
        #expect(chooser.home == 1)
        // To be avoided, but there is nothing else.
        try round(at: 300, [3: 500])
        #expect(chooser.home == 3)
        try round(at: 600, [:])
        #expect(chooser.home == 3)
        // The fastest is to be avoided, and home is no longer.
        try round(at: 900, [2: 499, 3: 1])
        #expect(chooser.home == 2)
        // Home does not answer: its old latency doesn't help it.
        try round(at: 1_100 + 100, [1: 4_000])
        #expect(chooser.home == 1)
    }

    @Test mutating func aRoundEndsAfterFiveSeconds() throws {
        chooser.update(DERPMap(regions: [region(1), region(2)]), now: .zero)
        let round = try begun(chooser.advance(now: .zero))
        #expect(round.regions == [1, 2] && round.until == .seconds(5) && chooser.nextDeadline == .seconds(5))
        chooser.measured(2, .milliseconds(7), round: round.number, now: .seconds(1))
        chooser.measured(2, .milliseconds(1), round: round.number, now: .seconds(1))
        chooser.measured(9, .milliseconds(1), round: round.number, now: .seconds(1))
        #expect(chooser.home == nil)
        #expect(chooser.advance(now: .seconds(5)) == nil)
        #expect(chooser.home == 2 && chooser.nextDeadline == .seconds(305))
        chooser.measured(1, .milliseconds(1), round: round.number, now: .seconds(6))
        chooser.measured(1, .milliseconds(1), round: round.number + 1, now: .seconds(6))
        #expect(chooser.latencies(now: .seconds(6)) == [2: .milliseconds(7)])
    }

    @Test mutating func mapChangesAndErrorsMeasureAgain() throws {
        let map = DERPMap(regions: [region(1), region(2)])
        chooser.update(map, now: .zero)
        try round(at: 0, [1: 50, 2: 60])
        #expect(chooser.update(map, now: .seconds(1)) == [] && chooser.nextDeadline == .seconds(300))
        chooser.relayFailed(now: .seconds(2))
        #expect(chooser.nextDeadline == .seconds(10))
        chooser.relayFailed(now: .seconds(200))
        #expect(chooser.nextDeadline == .seconds(10))
        try round(at: 10, [1: 50, 2: 60])
        chooser.relayFailed(now: .seconds(200))
        #expect(chooser.nextDeadline == .seconds(200))
        // A region of another definition has no past, and what is still measured of the old one doesn't count.
        let old = try begun(chooser.advance(now: .seconds(200)))
        let changed = chooser.update(DERPMap(regions: [region(1, host: "new"), region(2)]), now: .seconds(201))
        #expect(changed == [1] && chooser.home == 1 && chooser.nextDeadline == .seconds(201))
        chooser.measured(1, .milliseconds(1), round: old.number, now: .seconds(201))
        #expect(chooser.latencies(now: .seconds(201)) == [2: .milliseconds(60)])
        for number in 0..<DERPLimits.samples + 1 {
            let at = Duration.seconds(202 + number * 11)
            if number > 0 { chooser.relayFailed(now: at) }
            let round = try begun(chooser.advance(now: at))
            for id in [1, 2] { chooser.measured(id, .milliseconds(10 + number), round: round.number, now: at) }
        }
        #expect(chooser.latencies(now: .seconds(400))[1] == .milliseconds(11))
    }
}

@Suite struct LinkTests {
    private var links = RelayLinks(alwaysWebSocket: false, random: SystemRandomNumberGenerator())
    private let map = DERPMap(regions: [region(1), region(2), region(3, stunOnly: true)])

    private func dial(_ id: Int, _ host: String = "h", webSocket: Bool = false) throws -> RelayLinks.Action {
        .dial(id, try #require(region(id, host: host).relay), webSocket: webSocket)
    }

    @Test mutating func homeIsDialledUntilItAnswers() throws {
        links.update(map, now: .zero)
        #expect(links.takeActions() == [])
        links.setHome(1, now: .zero)
        #expect(links.takeActions() == [try dial(1)] && links.nextDeadline == .seconds(10))
        // A dial that takes too long is given up.
        links.advance(now: .seconds(10))
        #expect(links.takeActions() == [.close(1)])
        var now = Duration.seconds(10)
        var delays: [Duration] = []
        for _ in 0..<12 {
            let isTold = links.closed(1, now: now)
            #expect(isTold)
            let next = try #require(links.nextDeadline)
            delays.append(next - now)
            links.advance(now: next - .nanoseconds(1))
            #expect(links.takeActions() == [])
            links.advance(now: next)
            #expect(links.takeActions() == [try dial(1)])
            now = next
        }
        for (index, delay) in delays.enumerated() {
            let most = min(Duration.seconds(5), .milliseconds(250) * (1 << index))
            #expect(delay <= most && delay >= most * 0.5)
        }
        links.opened(1, now: now)
        #expect(links.isOpen(1) && links.openRegions == [1] && links.nextDeadline == nil)
        links.closed(1, now: now)
        #expect(try #require(links.nextDeadline) - now <= .milliseconds(250))
    }

    @Test mutating func otherRelaysCloseWhenIdle() throws {
        links.update(map, now: .zero)
        links.setHome(1, now: .zero)
        links.opened(1, now: .zero)
        links.wanted(2, now: .seconds(1))
        links.wanted(2, now: .seconds(2))
        links.wanted(3, now: .seconds(2))
        links.wanted(99, now: .seconds(2))
        #expect(links.takeActions() == [try dial(1), try dial(2)])
        links.opened(2, now: .seconds(2))
        links.wrote(2, now: .seconds(10))
        #expect(links.nextDeadline == .seconds(70) && links.lastWrite(2) == .seconds(10))
        links.advance(now: .milliseconds(69_999))
        #expect(links.takeActions() == [])
        links.advance(now: .seconds(70))
        #expect(links.takeActions() == [.close(2)] && !links.isOpen(2))
        // Wanted while it closes: dialled after it.
        links.wanted(2, now: .seconds(71))
        #expect(links.takeActions() == [])
        let isTold = links.closed(2, now: .seconds(71))
        #expect(try !isTold && links.takeActions() == [dial(2)])
        links.opened(2, now: .seconds(71))
        links.setHome(2, now: .seconds(72))
        #expect(links.takeActions() == [.notePreferred(1, false), .notePreferred(2, true)])
        #expect(links.nextDeadline == .seconds(132))
    }

    @Test mutating func aWantedRelayThatIsDownIsNotDialledForEver() throws {
        links.update(map, now: .zero)
        links.wanted(2, now: .zero)
        var now = Duration.zero
        while !links.takeActions().isEmpty {
            links.closed(2, now: now)
            guard let next = links.nextDeadline else { break }
            now = next
            links.advance(now: now)
        }
        #expect(now >= .seconds(55) && now <= .seconds(66))
        links.wanted(2, now: now + .seconds(100))
        links.advance(now: now + .seconds(100))
        #expect(links.takeActions() == [try dial(2)])
    }

    @Test mutating func refusedUpgrades() throws {
        links.update(map, now: .zero)
        links.setHome(1, now: .zero)
        _ = links.takeActions()
        links.refusedUpgrade(1, reason: "426")
        links.refusedUpgrade(1, reason: "later")
        links.refusedUpgrade(99, reason: "unknown")
        links.closed(1, now: .zero)
        links.advance(now: .seconds(1))
        #expect(links.takeActions() == [try dial(1, webSocket: true)] && links.forcedWebSocket == [1: "426"])
        // Another definition is another relay.
        links.opened(1, now: .seconds(1))
        links.update(DERPMap(regions: [region(1, host: "new")]), now: .seconds(2))
        #expect(links.takeActions() == [.close(1)] && links.forcedWebSocket == [:])
        links.closed(1, now: .seconds(2))
        #expect(links.takeActions() == [try dial(1, "new")])
        var always = RelayLinks(alwaysWebSocket: true, random: SystemRandomNumberGenerator())
        always.update(map, now: .zero)
        always.setHome(1, now: .zero)
        #expect(always.takeActions() == [try dial(1, webSocket: true)])
    }

    @Test mutating func aRegionThatGoesAndComes() throws {
        links.update(map, now: .zero)
        links.setHome(1, now: .zero)
        links.opened(1, now: .zero)
        _ = links.takeActions()
        links.update(DERPMap(regions: [region(2)]), now: .zero)
        #expect(links.takeActions() == [.close(1)] && links.home == nil)
        links.update(map, now: .zero)
        links.setHome(1, now: .zero)
        #expect(links.takeActions() == [])
        links.closed(1, now: .zero)
        #expect(links.takeActions() == [try dial(1)])
        links.update(DERPMap(regions: []), now: .zero)
        links.closed(1, now: .zero)
        links.setHome(1, now: .zero)
        links.wanted(1, now: .zero)
        #expect(links.takeActions() == [.close(1)])
    }

    @Test mutating func aRestartingRelayIsWaitedFor() throws {
        links.update(map, now: .zero)
        links.setHome(1, now: .zero)
        links.opened(1, now: .zero)
        links.restarting(1, reconnectIn: .seconds(2), tryFor: .seconds(5), now: .zero)
        let isTold = links.closed(1, now: .seconds(1))
        #expect(!isTold && links.nextDeadline == .seconds(3))
        links.advance(now: .seconds(3))
        let isToldInTime = links.closed(1, now: .milliseconds(6_999))
        #expect(!isToldInTime)
        links.advance(now: .seconds(9))
        let isToldLate = links.closed(1, now: .seconds(9))
        #expect(isToldLate)
        links.advance(now: .seconds(20))
        links.opened(1, now: .seconds(20))
        links.restarting(1, reconnectIn: .seconds(4_000_000), tryFor: .seconds(4_000_000), now: .seconds(20))
        links.closed(1, now: .seconds(20))
        #expect(links.nextDeadline == .seconds(80))
    }

    @Test mutating func whichRelayForAPeer() throws {
        var routes = RelayRoutes()
        let peer = try makeKey(5).publicKey
        links.update(map, now: .zero)
        #expect(routes.route(peer, preferred: 2, links: links) == .dial(2))
        #expect(routes.route(peer, preferred: 0, links: links) == .none)
        links.setHome(1, now: .zero)
        links.opened(1, now: .zero)
        routes.heard(peer, from: 1, now: .zero)
        #expect(routes.route(peer, preferred: 2, links: links) == .send(1))
        routes.gone(peer, from: 2)
        #expect(routes.route(peer, preferred: 2, links: links) == .send(1))
        links.wanted(2, now: .zero)
        links.opened(2, now: .zero)
        #expect(routes.route(peer, preferred: 2, links: links) == .send(2))
        #expect(routes.route(peer, preferred: 3, links: links) == .send(1))
        routes.gone(peer, from: 1)
        #expect(routes.route(peer, preferred: 3, links: links) == .dial(3))
        routes.heard(peer, from: 1, now: .zero)
        routes.closed(1)
        #expect(routes.count == 0)
        for number in 0..<DERPLimits.routes + 1 {
            let bytes = [UInt8](repeating: 7, count: 30) + [UInt8(number & 255), UInt8(number >> 8)]
            routes.heard(try #require(PublicKey(bytes)), from: 1, now: .seconds(number))
        }
        #expect(routes.count == DERPLimits.routes && routes.evicted == 1)
    }
}
