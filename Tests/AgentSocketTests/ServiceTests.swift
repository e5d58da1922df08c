import AgentTestSupport
import DRPC
import Foundation
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import AgentSocket

@Suite(.timeLimit(.minutes(3))) struct ServiceTests {
    private func text(_ body: () async throws -> Void) async -> String {
        do {
            try await body()
            return "(no error)"
        } catch {
            #expect((error as? DRPCError)?.code == .remote(0))
            return (error as? DRPCError)?.message ?? "\(error)"
        }
    }

    @Test func errorTexts() async throws {
        try await withAgent { agent in
            let client = try await agent.client()
            try await client.want("A", dependsOn: "B")
            #expect(await text { try await client.start("A") } == #"cannot start unit "A": unit not ready"#)
            try await client.start("B")
            #expect(
                await text { try await client.start("B") }
                    == #"cannot start unit "B": checking status for unit "B": same status already set"#)
            #expect(
                await text { try await client.start("") } == #"SyncStart: registering unit "": unit name is required"#)
            #expect(
                await text { try await client.want("", dependsOn: "X") }
                    == #"cannot add dependency: registering unit "": unit name is required"#)
            #expect(
                await text { try await client.want("X", dependsOn: "") }
                    == "cannot add dependency: dependency name cannot be empty: unit name is required")
            #expect(try await client.status("X").status == "pending", "a refused want leaves the unit registered")
            for unit in ["B", "A"] {
                #expect(
                    await text { try await client.want(unit, dependsOn: "A") }
                        == "cannot add dependency: adding edge for unit \"\(unit)\": failed to add dependency\n"
                        + "adding edge (\(unit) -> A): cycle detected")
            }
            #expect(
                await text { try await client.complete("N") }
                    == #"cannot complete unit "N": unit "N" must be registered first: unit not found"#)
            try await client.complete("B")
            #expect(
                await text { try await client.complete("B") }
                    == #"cannot complete unit "B": checking status for unit "B": same status already set"#)
            #expect(
                await text { try await client.complete("") }
                    == #"cannot complete unit "": updating status for unit "": unit name is required"#)
            for empty in [
                { _ = try await client.isReady("") }, { _ = try await client.status("") },
                { try await client.waitUntilReady("", pollInterval: .seconds(1), clock: ContinuousClock()) },
            ] as [@Sendable () async throws -> Void] {
                #expect(
                    await text(empty) == "cannot check readiness: unit ID cannot be empty: unit name is required")
            }
            #expect(
                await text { try await client.complete("a\"\n\u{1}é\u{200b}") }
                    == #"cannot complete unit "a\"\n\x01é\u200b": unit "a\"\n\x01é\u200b" must be registered first: unit not found"#
            )
        }
    }

    @Test func theLongestListFitsAPacket() async throws {
        let units = UnitStore()
        let bytes = AgentSocketLimits.allNamesBytes / AgentSocketLimits.units
        for number in 0..<AgentSocketLimits.units {
            let last = number == AgentSocketLimits.units - 1
            let name = UnitGraphTests.name(number, last ? AgentSocketLimits.allNamesBytes - number * bytes : bytes)
            try units.register(name)
            try units.complete(name)
        }
        #expect(throws: UnitError(.limit, "")) { try units.register("m") }
        try await withAgent(units: units) { agent in
            let list = try await agent.client().list()
            #expect(list.count == AgentSocketLimits.units)
        }
    }

    @Test func theLongestStatusFitsAPacket() async throws {
        let units = UnitStore()
        let count = 1_024
        let bytes = AgentSocketLimits.dependencyNamesBytes / count / 2
        let wanting = UnitGraphTests.name(0, bytes)
        try units.register(wanting)
        for number in 1...count {
            let name = UnitGraphTests.name(number, bytes)
            try units.register(name)
            try units.complete(name)
            try units.want(wanting, name)
        }
        try await withAgent(units: units) { agent in
            let report = try await agent.client().status(wanting)
            #expect(report.dependencies.count == count)
        }
    }

    @Test func longNamesAreCutBeforeTheyAreQuoted() async throws {
        try await withAgent { agent in
            let client = try await agent.client()
            // Minutes of quoting without the cut, and then the suite's time is up.
            let message = await text { try await client.complete(String(repeating: "\u{1}", count: 4_000_000)) }
            #expect(message.hasPrefix(#"cannot complete unit "\x01\x01"#))
            #expect(message.utf8.count == DRPCLimits.errorTextBytes)
        }
    }

    @Test func waitWakesAtTheLastCompletion() async throws {
        try await withAgent { agent in
            let client = try await agent.client()
            for dependency in ["x", "y", "z"] { try await client.want("u", dependsOn: dependency) }
            let waiting = Task {
                try await agent.client().waitUntilReady("u", pollInterval: .seconds(3_600), clock: ContinuousClock())
            }
            for dependency in ["x", "y", "z"] {
                try await eventually("a call waits") { agent.units.waiting == 1 }
                try await client.start(dependency)
                try await client.complete(dependency)
            }
            try await waiting.value
            #expect(agent.units.waiting == 0)
        }
    }

    @Test func aWaiterThatLeavesIsForgotten() async throws {
        try await withAgent { agent in
            try agent.units.register("u")
            try agent.units.want("u", "never")
            let waiting = Task {
                try await agent.client().waitUntilReady("u", pollInterval: .seconds(1), clock: ContinuousClock())
            }
            try await eventually("it waits") { agent.units.waiting == 1 }
            waiting.cancel()
            _ = await waiting.result
            try await eventually("no call waits") { agent.units.waiting == 0 && agent.server.connections == 0 }
        }
    }

    @Test func eventsComeWithHistoryAndLive() async throws {
        let time = Mutex(Int64(0))
        let units = UnitStore(now: {
            UnitInstant(
                seconds: time.withLock {
                    $0 += 1; return $0
                }, nanoseconds: 5)
        })
        try await withAgent(units: units) { agent in
            let client = try await agent.client()
            #expect(try await client.history().isEmpty)
            try await client.start("a")
            let seen = Mutex<[String]>([])
            let following = Task {
                try await agent.client().follow { event in seen.withLock { $0.append("\(event.unit) \(event.status)") }
                }
            }
            try await eventually("history is there") { seen.withLock { $0.count } == 2 }
            try await client.complete("a")
            try await eventually("the live event is there") { seen.withLock { $0.count } == 3 }
            #expect(seen.withLock { $0 } == ["a pending", "a started", "a completed"])
            following.cancel()
            _ = await following.result
            #expect(try await client.history().map(\.at.seconds) == [1, 2, 3])
        }
    }

    /// An older server has no SyncWait; the client asks it at each interval.
    @Test func fallsBackToPolling() async throws {
        let units = UnitStore()
        try units.register("u")
        try units.want("u", "d")
        let asked = Mutex(0)
        var router = Router()
        router.immediate(AgentSocketAPI.syncReady) { request, _ in
            let count = asked.withLock {
                $0 += 1; return $0
            }
            if count == 5 {
                try units.register("d")
                try units.complete("d")
            }
            return .with { $0.ready = units.isReady(request.unit) }
        }
        let old = router
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let path = "/tmp/wa-test-\(UUID().uuidString.prefix(8)).sock"
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(RPCServerHandler(router: old))
                }
            }
            .bind(unixDomainSocketPath: path).get()
        let client = try await AgentSocketClient.connect(path: path, group: group)
        try await client.waitUntilReady("u", pollInterval: .seconds(3_600), clock: ImmediateClock())
        #expect(asked.withLock { $0 } == 5)
        try await server.close()
        try await group.shutdownGracefully()
        unlink(path)
    }

    struct ImmediateClock: Clock {
        typealias Duration = Swift.Duration
        typealias Instant = ContinuousClock.Instant
        var now: Instant { .now }
        var minimumResolution: Duration { .zero }
        func sleep(until deadline: Instant, tolerance: Duration?) async throws { await Task.yield() }
    }
}
