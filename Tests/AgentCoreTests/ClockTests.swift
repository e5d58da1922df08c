import AgentCore
import NIOCore
import NIOPosix
import Testing

@Suite struct ClockTests {
    private let clock = EventLoopClock(group: MultiThreadedEventLoopGroup.singleton)

    @Test func sleepsAtLeastAsLong() async throws {
        let start = ContinuousClock.now
        try await clock.sleep(for: .milliseconds(20))
        #expect(start.duration(to: .now) >= .milliseconds(20))
        try await clock.sleep(for: .zero)
        try await clock.sleep(for: .seconds(-1))
    }

    @Test func cancellationEndsASleep() async {
        let clock = clock
        let task = Task { try await clock.sleep(for: .seconds(3600)) }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }
}

@Suite struct HealthTests {
    @Test func reportsInOrder() {
        let health = HealthRegistry()
        #expect(health.reports().isEmpty)
        health.set("b", .init("b: bad"))
        health.register("a") { .init("a: note", degrades: false) }
        health.register("c") { nil }
        #expect(health.reports() == [.init("a: note", degrades: false), .init("b: bad")])
        health.set("b", nil)
        #expect(health.reports().count == 1)
    }
}
