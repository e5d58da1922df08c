import AgentCore
import CoreMetrics
import Testing

@Suite struct MetricsTests {
    @Test func exposition() {
        let registry = MetricsRegistry()
        registry.counter("b_total", help: "B.", labels: ["x"]).with("1\"\\\n").increment(by: 2)
        registry.gauge("a", help: "A.").set(1.5)
        registry.gauge("c", help: "C.") { 7 }
        registry.gauge("gone", help: "Left out.") { nil }
        let histogram = registry.histogram("d_seconds", help: "D.", buckets: [1, 0.5]).with()
        for value in [0.25, 0.5, 0.75, 2] { histogram.observe(value) }
        #expect(
            registry.render() == """
                # HELP a A.
                # TYPE a gauge
                a 1.5
                # HELP b_total B.
                # TYPE b_total counter
                b_total{x="1\\"\\\\\\n"} 2
                # HELP c C.
                # TYPE c gauge
                c 7
                # HELP d_seconds D.
                # TYPE d_seconds histogram
                d_seconds_bucket{le="0.5"} 2
                d_seconds_bucket{le="1"} 3
                d_seconds_bucket{le="+Inf"} 4
                d_seconds_sum 3.5
                d_seconds_count 4

                """)
    }

    @Test func seriesAreBounded() {
        let registry = MetricsRegistry()
        let family = registry.counter("n_total", help: "N.", labels: ["x"])
        for index in 0..<(MetricsRegistry.maximumSeries + 100) { family.with("\(index)").increment() }
        let lines = registry.render().split(separator: "\n").filter { !$0.hasPrefix("#") }
        #expect(lines.count == MetricsRegistry.maximumSeries + 1)
        #expect(lines.contains("n_total{x=\"other\"} 100"))
    }

    @Test func countersNeverFall() {
        let counter = MetricsRegistry().counter("x_total", help: "X.").with()
        counter.increment(by: 3)
        counter.increment(by: -5)
        #expect(counter.current == 3)
        // Amounts come from outside, too: boundary names how many logs it dropped.
        for _ in 0..<3 { counter.increment(by: .max - 1) }
        #expect(counter.current == .max)
        counter.increment()
        #expect(counter.current == .max)
    }

    @Test func swiftMetricsArriveInTheSameRegistry() {
        let registry = MetricsRegistry()
        let factory = SwiftMetricsBridge(registry: registry)
        Counter(label: "lib.calls", dimensions: [("kind", "a")], factory: factory).increment(by: 2)
        Timer(label: "lib.time", dimensions: [], factory: factory).recordNanoseconds(2_000_000)
        Gauge(label: "lib.level", dimensions: [], factory: factory).record(4)
        let text = registry.render()
        #expect(text.contains("lib_calls{kind=\"a\"} 2\n"))
        #expect(text.contains("lib_time_seconds_sum 0.002\n"))
        #expect(text.contains("lib_level 4\n"))
    }

    @Test func selfMetricsAreReal() throws {
        let registry = MetricsRegistry()
        registry.addSelfMetrics()
        let text = registry.render()
        for name in ["process_resident_memory_bytes", "process_open_fds", "process_threads"] {
            let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("\(name) ") })
            let value = try #require(Double(line.dropFirst(name.count + 1)))
            #expect(value > 0)
        }
    }
}
