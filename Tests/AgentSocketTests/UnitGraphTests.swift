import DRPC
import Foundation
import Testing

@testable import AgentSocket

@Suite struct UnitGraphTests {
    private func unit(_ text: String) -> UnitName { UnitName(text) }

    @Test func namesAreBytes() {
        #expect(unit("e\u{301}") != unit("\u{e9}"))
        #expect(["é", "z", "Z", "a"].map(UnitName.init).sorted().map(\.text) == ["Z", "a", "z", "é"])
    }

    @Test func readinessFollowsStates() throws {
        var graph = UnitGraph()
        #expect(graph.isReady(unit("a")))
        try graph.register(unit("a"))
        try graph.want(unit("a"), unit("b"))
        try graph.want(unit("a"), unit("b"))
        #expect(graph.edgeCount == 1)
        #expect(!graph.isReady(unit("a")))
        #expect(graph.state(unit("b")) == nil)
        #expect(graph.count == 1)
        #expect(throws: UnitError.notReady) { try graph.start(unit("a")) }
        try graph.register(unit("b"))
        try graph.complete(unit("b"))
        #expect(graph.isReady(unit("a")))
        // Completed → started is allowed and takes the readiness away again.
        try graph.start(unit("b"))
        #expect(!graph.isReady(unit("a")))
        try graph.complete(unit("b"))
        try graph.start(unit("a"))
        #expect(throws: UnitError.sameStatus) { try graph.start(unit("a")) }
    }

    @Test func refusals() throws {
        var graph = UnitGraph()
        #expect(throws: UnitError.nameRequired) { try graph.register(unit("")) }
        #expect(throws: UnitError.notFound) { try graph.want(unit("a"), unit("b")) }
        #expect(throws: UnitError.notFound) { try graph.start(unit("a")) }
        try graph.register(unit("a"))
        #expect(throws: UnitError.cycle) { try graph.want(unit("a"), unit("a")) }
        try graph.want(unit("a"), unit("b"))
        #expect(throws: UnitError.notFound) { try graph.complete(unit("b")) }
        try graph.register(unit("b"))
        try graph.want(unit("b"), unit("c"))
        try graph.register(unit("c"))
        #expect(throws: UnitError.cycle) { try graph.want(unit("c"), unit("a")) }
        try graph.complete(unit("c"))
        #expect(throws: UnitError.sameStatus) { try graph.complete(unit("c")) }
    }

    @Test(arguments: [-1, 0, 1])
    func nameLimit(difference: Int) throws {
        var graph = UnitGraph()
        let name = unit(String(repeating: "n", count: AgentSocketLimits.nameBytes + difference))
        if difference > 0 {
            #expect(throws: UnitError(.limit, "")) { try graph.register(name) }
        } else {
            try graph.register(name)
        }
    }

    /// A name of so many bytes that begins with a number.
    static func name(_ number: Int, _ bytes: Int) -> String {
        let text = "\(number) "
        return text + String(repeating: "n", count: bytes - text.utf8.count)
    }

    @Test(arguments: [-1, 0, 1])
    func limitOfAllNames(difference: Int) throws {
        var graph = UnitGraph()
        let full = AgentSocketLimits.allNamesBytes / AgentSocketLimits.nameBytes - 1
        for number in 0..<full { try graph.register(unit(Self.name(number, AgentSocketLimits.nameBytes))) }
        try graph.register(
            unit(Self.name(full, AgentSocketLimits.allNamesBytes - full * AgentSocketLimits.nameBytes - 2)))
        let last = unit(String(repeating: "l", count: 2 + difference))
        if difference > 0 {
            #expect(throws: UnitError(.limit, "")) { try graph.register(last) }
            #expect(throws: UnitError(.limit, "")) {
                try graph.want(unit(Self.name(0, AgentSocketLimits.nameBytes)), last)
            }
            #expect(graph.edgeCount == 0)
        } else {
            try graph.register(last)
        }
    }

    @Test(arguments: [-1, 0, 1])
    func limitOfNamesInDependencies(difference: Int) throws {
        var graph = UnitGraph()
        let wanting = unit(Self.name(0, 4_000))
        try graph.register(wanting)
        let full = AgentSocketLimits.dependencyNamesBytes / 8_096
        for number in 1...full { try graph.want(wanting, unit(Self.name(number, 4_096))) }
        let left = AgentSocketLimits.dependencyNamesBytes - full * 8_096 - 4_000
        let last = unit(Self.name(full + 1, left + difference))
        if difference > 0 {
            #expect(throws: UnitError(.limit, "")) { try graph.want(wanting, last) }
        } else {
            try graph.want(wanting, last)
        }
        try graph.want(wanting, unit(Self.name(1, 4_096)))
        #expect(graph.edgeCount == full + (difference > 0 ? 0 : 1))
    }

    @Test func unitAndEdgeLimits() async throws {
        var graph = UnitGraph()
        for number in 0..<AgentSocketLimits.units {
            // Other tests wait for this thread.
            if number % 100 == 0 { await Task.yield() }
            try graph.register(unit("u\(number)"))
        }
        #expect(graph.count == AgentSocketLimits.units)
        #expect(throws: UnitError(.limit, "")) { try graph.register(unit("more")) }
        for number in 1...AgentSocketLimits.dependenciesPerUnit {
            if number % 100 == 0 { await Task.yield() }
            try graph.want(unit("u0"), unit("u\(number)"))
        }
        #expect(throws: UnitError(.limit, "")) {
            try graph.want(unit("u0"), unit("u\(AgentSocketLimits.dependenciesPerUnit + 1)"))
        }
        var (from, to) = (1, 5_000)
        while graph.edgeCount < AgentSocketLimits.edges {
            if to % 100 == 0 { await Task.yield() }
            try graph.want(unit("u\(from)"), unit("u\(to)"))
            to += 1
            if to == 9_000 { (from, to) = (from + 1, 5_000) }
        }
        #expect(throws: UnitError(.limit, "")) { try graph.want(unit("u9998"), unit("u9999")) }
    }

    @Test func aThousandUnitsInAChain() throws {
        var graph = UnitGraph()
        for number in 0..<1_000 {
            try graph.register(unit("u\(number)"))
            if number > 0 { try graph.want(unit("u\(number)"), unit("u\(number - 1)")) }
        }
        #expect(throws: UnitError.cycle) { try graph.want(unit("u0"), unit("u999")) }
        for number in 0..<1_000 {
            #expect(graph.isReady(unit("u\(number)")))
            #expect(number == 999 || !graph.isReady(unit("u\(number + 1)")))
            try graph.start(unit("u\(number)"))
            try graph.complete(unit("u\(number)"))
        }
    }

    /// 333 diamonds on top of each other. A walk that visits a unit more than once needs 2^333 steps.
    @Test func aThousandUnitsInDiamonds() throws {
        var graph = UnitGraph()
        try graph.register(unit("top0"))
        for number in 1...333 {
            for name in ["left\(number)", "right\(number)", "top\(number)"] { try graph.register(unit(name)) }
            for side in ["left", "right"] {
                try graph.want(unit("\(side)\(number)"), unit("top\(number - 1)"))
                try graph.want(unit("top\(number)"), unit("\(side)\(number)"))
            }
        }
        #expect(graph.count == 1_000)
        #expect(throws: UnitError.cycle) { try graph.want(unit("top0"), unit("top333")) }
        let names = graph.list().map { UnitName($0.unit) }
        #expect(names == names.sorted())
        try graph.complete(unit("top0"))
        #expect(graph.list().filter(\.isReady).count == 3)
    }

    /// The incremental graph against one that computes everything anew.
    @Test func agreesWithANaiveGraph() async throws {
        let seed = ProcessInfo.processInfo.environment["TEST_SEED"].flatMap(UInt64.init) ?? .random(in: 0...UInt64.max)
        var random = Seeded(state: seed)
        for _ in 0..<100 {
            await Task.yield()
            var graph = UnitGraph()
            var states: [String: UnitState] = [:]
            var edges: [String: Set<String>] = [:]
            func reaches(_ from: String, _ goal: String) -> Bool {
                from == goal || (edges[from] ?? []).contains { reaches($0, goal) }
            }
            for _ in 0..<150 {
                let a = "u\(Int.random(in: 0..<10, using: &random))"
                let b = "u\(Int.random(in: 0..<10, using: &random))"
                let ready = (edges[a] ?? []).allSatisfy { states[$0] == .completed }
                switch Int.random(in: 0..<4, using: &random) {
                case 0:
                    try graph.register(unit(a))
                    if states[a] == nil { states[a] = .pending }
                case 1:
                    let allowed = states[a] != nil && !reaches(b, a)
                    #expect(((try? graph.want(unit(a), unit(b))) != nil) == allowed, "TEST_SEED=\(seed)")
                    if allowed { edges[a, default: []].insert(b) }
                case 2:
                    let allowed = states[a] != nil && states[a] != .started && ready
                    #expect(((try? graph.start(unit(a))) != nil) == allowed, "TEST_SEED=\(seed)")
                    if allowed { states[a] = .started }
                default:
                    let allowed = states[a] != nil && states[a] != .completed
                    #expect(((try? graph.complete(unit(a))) != nil) == allowed, "TEST_SEED=\(seed)")
                    if allowed { states[a] = .completed }
                }
                for name in (0..<10).map({ "u\($0)" }) {
                    let expected = (edges[name] ?? []).allSatisfy { states[$0] == .completed }
                    #expect(graph.isReady(unit(name)) == expected, "TEST_SEED=\(seed)")
                    #expect(graph.report(unit(name)).dependencies.map(\.dependsOn) == (edges[name] ?? []).sorted())
                }
                #expect(graph.list().map(\.unit) == states.keys.sorted(), "TEST_SEED=\(seed)")
            }
        }
    }

    struct Seeded: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return (state >> 33) | (state << 31)
        }
    }
}

@Suite struct EventLogTests {
    @Test(arguments: [3, 4, 5])
    func keepsTheLatest(count: Int) {
        var log = EventLog(capacity: 4)
        let events = (0..<count).map {
            UnitEvent(unit: "\($0)", status: "pending", at: .init(seconds: 0, nanoseconds: 0))
        }
        for event in events { log.append(event) }
        #expect(log.read(from: 0) == .events(Array(events.suffix(4)), next: count))
        #expect(log.read(from: count) == .events([], next: count))
        #expect(log.forgotten == max(0, count - 4))
        var behind = log
        for event in events { behind.append(event) }
        #expect(behind.read(from: 1) == (count == 3 ? .lost(1) : .lost(2 * count - 4 - 1)))
    }
}
