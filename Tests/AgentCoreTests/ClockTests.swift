import AgentCore
import AgentTestSupport
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

    /// On the loop that asks, so that no other one is woken.
    @Test func aTimerIsOfTheCallersLoop() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 3)
        let clock = AgentClock(EventLoopClock(group: group))
        for loop in group.makeIterator() {
            let fired = loop.makePromise(of: Bool.self)
            loop.execute { _ = clock.after(.milliseconds(1)) { fired.succeed(loop.inEventLoop) } }
            #expect(try await fired.futureResult.get())
        }
        try await group.shutdownGracefully()
    }

    @Test func aTimerThatIsTakenBackNeverFires() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let manual = ManualClock()
        for clock in [AgentClock(EventLoopClock(group: group)), AgentClock(manual)] {
            let cancel = clock.after(.milliseconds(5)) { Issue.record("it fired") }
            cancel()
            cancel()
        }
        manual.advance(by: .seconds(1))
        try await clock.sleep(for: .milliseconds(30))
        let over = Promise<Void>()
        _ = AgentClock(manual).after(.zero) { over.fulfill() }
        await over.valueIgnoringCancellation
        try await group.shutdownGracefully()
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
