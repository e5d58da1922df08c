import AgentTestSupport
import CPlatform
import Foundation
import Synchronization
import Testing

@testable import AgentSocket

/// 1,000 units over the real socket, each with a client of its own that waits for it.
@Suite(.timeLimit(.minutes(3)), .serialized) struct ThousandUnitTests {
    /// Dependencies of each unit.
    private typealias Shape = [(unit: String, wants: [String])]

    private final class Order: Sendable {
        private let names = Mutex<[String]>([])
        var all: [String] { names.withLock { $0 } }
        func append(_ name: String) { names.withLock { $0.append(name) } }
    }

    private static func chain() -> Shape {
        (0..<1_000).map { ("u\($0)", $0 == 0 ? [] : ["u\($0 - 1)"]) }
    }

    /// 333 diamonds on top of each other.
    private static func diamonds() -> Shape {
        [("top0", [])]
            + (1...333).flatMap { number in
                [
                    ("left\(number)", ["top\(number - 1)"]), ("right\(number)", ["top\(number - 1)"]),
                    ("top\(number)", ["left\(number)", "right\(number)"]),
                ]
            }
    }

    @Test(arguments: ["chain", "diamonds"]) func startInOrder(name: String) async throws {
        let shape = name == "chain" ? Self.chain() : Self.diamonds()
        #expect(shape.count == 1_000)
        let (root, last) = (shape[0].unit, shape[999].unit)
        // Two ends of 1,000 connections are in this process.
        _ = wa_raise_nofile()
        try #require(openFileLimit() >= 2_500)
        try await withAgent { agent in
            let client = try await agent.client()
            for (unit, wants) in shape {
                for dependency in wants { try await client.want(unit, dependsOn: dependency) }
            }
            await #expect(throws: (any Error).self, "the edge that would close the circle") {
                try await client.want(root, dependsOn: last)
            }
            #expect(try await client.list().filter(\.isReady).map(\.unit) == [root])
            for unit in [shape[1].unit, last] {
                await #expect(throws: (any Error).self) { try await client.start(unit) }
            }

            let order = Order()
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                for (unit, _) in shape.dropFirst() {
                    tasks.addTask {
                        let client = try await agent.client()
                        // Never polls: a client that is not notified hangs.
                        try await client.waitUntilReady(unit, pollInterval: .seconds(86_400), clock: ContinuousClock())
                        try await client.start(unit)
                        order.append(unit)
                        try await client.complete(unit)
                        await client.close()
                    }
                }
                tasks.addTask {
                    try await eventually("all wait") { agent.units.waiting == 999 }
                    #expect(order.all.isEmpty)
                    try await client.start(root)
                    order.append(root)
                    try await client.complete(root)
                }
                try await tasks.waitForAll()
            }
            let places = Dictionary(uniqueKeysWithValues: order.all.enumerated().map { ($1, $0) })
            #expect(places.count == 1_000)
            for (unit, wants) in shape {
                for dependency in wants {
                    let (place, earlier) = (try #require(places[unit]), try #require(places[dependency]))
                    #expect(earlier < place, "\(dependency) before \(unit)")
                }
            }
            #expect(try await client.list().allSatisfy { $0.status == "completed" })
            // Even completed units keep the graph without circles.
            await #expect(throws: (any Error).self) { try await client.want(root, dependsOn: last) }
            await client.close()
            try await eventually("all are gone") { agent.server.connections == 0 && agent.units.waiting == 0 }
        }
    }

    private func openFileLimit() -> UInt64 {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        return UInt64(limit.rlim_cur)
    }
}
