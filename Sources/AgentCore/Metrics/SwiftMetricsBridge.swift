import CoreMetrics

/// Lets libraries that report through swift-metrics appear in the same registry.
///
/// A label such as `http.server.request` becomes `http_server_request`; timers are reported in
/// seconds. The label names of the first use of a name are kept.
public struct SwiftMetricsBridge: MetricsFactory {
    private let registry: MetricsRegistry

    public init(registry: MetricsRegistry) { self.registry = registry }

    public func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        let family = registry.counter(name(label), help: label, labels: dimensions.map(\.0))
        return BridgedCounter(series: family.with(dimensions.map(\.1)))
    }

    public func makeRecorder(
        label: String, dimensions: [(String, String)], aggregate: Bool
    ) -> any RecorderHandler {
        if aggregate {
            let family = registry.histogram(name(label), help: label, labels: dimensions.map(\.0))
            return BridgedHistogram(series: family.with(dimensions.map(\.1)))
        }
        let family = registry.gauge(name(label), help: label, labels: dimensions.map(\.0))
        return BridgedGauge(series: family.with(dimensions.map(\.1)))
    }

    public func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        let family = registry.gauge(name(label), help: label, labels: dimensions.map(\.0))
        return BridgedGauge(series: family.with(dimensions.map(\.1)))
    }

    public func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        let family = registry.histogram("\(name(label))_seconds", help: label, labels: dimensions.map(\.0))
        return BridgedTimer(series: family.with(dimensions.map(\.1)))
    }

    public func destroyCounter(_ handler: any CounterHandler) {}
    public func destroyRecorder(_ handler: any RecorderHandler) {}
    public func destroyMeter(_ handler: any MeterHandler) {}
    public func destroyTimer(_ handler: any TimerHandler) {}

    private func name(_ label: String) -> String {
        String(label.map { $0.isASCII && ($0.isLetter || $0.isNumber) ? $0 : "_" })
    }
}

private final class BridgedCounter: CounterHandler {
    let series: CounterSeries
    init(series: CounterSeries) { self.series = series }
    func increment(by amount: Int64) { series.increment(by: Int(amount)) }
    // A Prometheus counter never falls; clients take a fall for a restart.
    func reset() {}
}

private final class BridgedGauge: RecorderHandler, MeterHandler {
    let series: GaugeSeries
    init(series: GaugeSeries) { self.series = series }
    func record(_ value: Int64) { series.set(Double(value)) }
    func record(_ value: Double) { series.set(value) }
    func set(_ value: Int64) { series.set(Double(value)) }
    func set(_ value: Double) { series.set(value) }
    func increment(by amount: Double) { series.add(amount) }
    func decrement(by amount: Double) { series.add(-amount) }
}

private final class BridgedHistogram: RecorderHandler {
    let series: HistogramSeries
    init(series: HistogramSeries) { self.series = series }
    func record(_ value: Int64) { series.observe(Double(value)) }
    func record(_ value: Double) { series.observe(value) }
}

private final class BridgedTimer: TimerHandler {
    let series: HistogramSeries
    init(series: HistogramSeries) { self.series = series }
    func recordNanoseconds(_ duration: Int64) { series.observe(Double(duration) / 1e9) }
}
