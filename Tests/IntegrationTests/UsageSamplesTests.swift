import AgentCore
import AgentTestSupport
import Testing

@testable import WorkspaceAgent

@Suite struct UsageSamplesTests {
    private let clock = ManualClock()

    private func samples() -> UsageSamples {
        let clock = clock
        return UsageSamples(
            clock: AgentClock(clock, wallSeconds: { 1_000_000 + clock.now.offset.components.seconds }),
            connections: { 7 })
    }

    @Test func oneInFiveSeconds() throws {
        let usage = samples()
        let first = usage.current()
        #expect(first.count == 1 && first[0].time == 1_000_000 && first[0].connections == 7)
        #expect(first[0].rss_bytes > 1 << 20 && first[0].cpu_percent == 0)
        clock.advance(by: .milliseconds(4_499))
        #expect(usage.current().count == 1)
        clock.advance(by: .milliseconds(1))
        let second = usage.current()
        #expect(second.count == 2 && second[1].cpu_percent >= 0)
    }

    @Test func fifteenMinutesAreKept() {
        let usage = samples()
        for _ in 0..<UsageSamples.kept + 5 {
            _ = usage.current()
            clock.advance(by: .seconds(UsageSamples.interval))
        }
        let all = usage.current()
        #expect(all.count == UsageSamples.kept)
        #expect(all.last.map { $0.time - all[0].time } == Int64((UsageSamples.kept - 1) * UsageSamples.interval))
        // Of a page that was closed for long, the old ones tell nothing.
        clock.advance(by: .seconds(UsageSamples.kept * UsageSamples.interval + 1))
        #expect(usage.current().count == 1)
    }
}
