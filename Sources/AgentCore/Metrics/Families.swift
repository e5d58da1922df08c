import Synchronization

/// One value that only rises.
public final class CounterSeries: Sendable {
    private let value = Atomic<Int>(0)

    /// Adds to the value, which stays at the greatest `Int` once it is there; a negative amount is ignored.
    public func increment(by amount: Int = 1) {
        guard amount > 0 else { return }
        var old = value.load(ordering: .relaxed)
        while true {
            let (sum, isOver) = old.addingReportingOverflow(amount)
            let (isDone, now) = value.weakCompareExchange(
                expected: old, desired: isOver ? .max : sum, ordering: .relaxed)
            if isDone { return }
            old = now
        }
    }

    public var current: Int { value.load(ordering: .relaxed) }
}

/// Counters of one name.
public final class CounterFamily: MetricFamily {
    let name: String, help: String, labels: [String]
    private let table: SeriesTable<CounterSeries>

    init(name: String, help: String, labels: [String]) {
        (self.name, self.help, self.labels) = (name, help, labels)
        table = SeriesTable(labels: labels) { CounterSeries() }
    }

    /// The series with these label values, in the order of the label names.
    public func with(_ values: String...) -> CounterSeries { table.find(values) }
    public func with(_ values: [String]) -> CounterSeries { table.find(values) }
    public func increment(by amount: Int = 1) { table.find([]).increment(by: amount) }

    func render(into text: inout String) {
        Exposition.header(name, help, "counter", into: &text)
        for (values, series) in table.sorted() {
            text += "\(name)\(Exposition.labels(labels, values)) \(series.current)\n"
        }
    }

    func collect(into samples: inout [MetricSample]) {
        for (values, series) in table.sorted() {
            samples.append(MetricSample(name, .counter, labels, values, Double(series.current)))
        }
    }
}

/// One value that rises and falls.
public final class GaugeSeries: Sendable {
    private let bits = Atomic<UInt64>(0)

    public func set(_ value: Double) { bits.store(value.bitPattern, ordering: .relaxed) }

    public func add(_ amount: Double) {
        var seen = bits.load(ordering: .relaxed)
        while true {
            let next = (Double(bitPattern: seen) + amount).bitPattern
            let (done, original) = bits.compareExchange(expected: seen, desired: next, ordering: .relaxed)
            if done { return }
            seen = original
        }
    }

    public var current: Double { Double(bitPattern: bits.load(ordering: .relaxed)) }
}

/// Gauges of one name.
public final class GaugeFamily: MetricFamily {
    let name: String, help: String, labels: [String]
    private let table: SeriesTable<GaugeSeries>

    init(name: String, help: String, labels: [String]) {
        (self.name, self.help, self.labels) = (name, help, labels)
        table = SeriesTable(labels: labels) { GaugeSeries() }
    }

    public func with(_ values: String...) -> GaugeSeries { table.find(values) }
    public func with(_ values: [String]) -> GaugeSeries { table.find(values) }
    public func set(_ value: Double) { table.find([]).set(value) }
    public func add(_ amount: Double) { table.find([]).add(amount) }

    func render(into text: inout String) {
        Exposition.header(name, help, "gauge", into: &text)
        for (values, series) in table.sorted() {
            text += "\(name)\(Exposition.labels(labels, values)) \(Exposition.number(series.current))\n"
        }
    }

    func collect(into samples: inout [MetricSample]) {
        for (values, series) in table.sorted() {
            samples.append(MetricSample(name, .gauge, labels, values, series.current))
        }
    }
}

/// A gauge whose values are read at each look.
final class ComputedGauge: MetricFamily {
    let name: String, help: String
    let labels: [String]
    let read: @Sendable () -> [(labels: [String], value: Double)]

    init(
        name: String, help: String, labels: [String],
        read: @escaping @Sendable () -> [(labels: [String], value: Double)]
    ) { (self.name, self.help, self.labels, self.read) = (name, help, labels, read) }

    func render(into text: inout String) {
        let values = read().prefix(MetricsRegistry.maximumSeries)
        if values.isEmpty { return }
        Exposition.header(name, help, "gauge", into: &text)
        for (values, value) in values {
            text += "\(name)\(Exposition.labels(labels, values)) \(Exposition.number(value))\n"
        }
    }

    func collect(into samples: inout [MetricSample]) {
        for (values, value) in read().prefix(MetricsRegistry.maximumSeries) {
            samples.append(MetricSample(name, .gauge, labels, values, value))
        }
    }
}

/// One distribution.
public final class HistogramSeries: Sendable {
    struct State {
        var counts: [Int]
        var sum = 0.0
        var total = 0
    }

    private let bounds: [Double]
    private let state: Mutex<State>

    init(bounds: [Double]) {
        self.bounds = bounds
        state = Mutex(State(counts: Array(repeating: 0, count: bounds.count)))
    }

    public func observe(_ value: Double) {
        let bucket = bounds.firstIndex { value <= $0 }
        state.withLock {
            if let bucket { $0.counts[bucket] += 1 }
            $0.sum += value
            $0.total += 1
        }
    }

    func snapshot() -> State { state.withLock { $0 } }
}

/// Distributions of one name.
public final class HistogramFamily: MetricFamily {
    /// Seconds, from 100 µs to 5 minutes (the longest wait of the process API).
    public static let latencyBuckets: [Double] = [
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300,
    ]

    let name: String, help: String, labels: [String]
    private let buckets: [Double]
    private let table: SeriesTable<HistogramSeries>

    init(name: String, help: String, labels: [String], buckets: [Double]) {
        let bounds = buckets.sorted()
        (self.name, self.help, self.labels, self.buckets) = (name, help, labels, bounds)
        table = SeriesTable(labels: labels) { HistogramSeries(bounds: bounds) }
    }

    public func with(_ values: String...) -> HistogramSeries { table.find(values) }
    public func with(_ values: [String]) -> HistogramSeries { table.find(values) }

    func render(into text: inout String) {
        Exposition.header(name, help, "histogram", into: &text)
        for (values, series) in table.sorted() {
            let state = series.snapshot()
            var cumulative = 0
            for (bound, count) in zip(buckets, state.counts) {
                cumulative += count
                let labels = Exposition.labels(labels, values, extra: "le=\"\(Exposition.number(bound))\"")
                text += "\(name)_bucket\(labels) \(cumulative)\n"
            }
            text += "\(name)_bucket\(Exposition.labels(labels, values, extra: "le=\"+Inf\"")) \(state.total)\n"
            text += "\(name)_sum\(Exposition.labels(labels, values)) \(state.sum)\n"
            text += "\(name)_count\(Exposition.labels(labels, values)) \(state.total)\n"
        }
    }

    func collect(into samples: inout [MetricSample]) {
        for (values, series) in table.sorted() {
            let state = series.snapshot()
            samples.append(MetricSample("\(name)_count", .counter, labels, values, Double(state.total)))
            samples.append(MetricSample("\(name)_sum", .counter, labels, values, state.sum))
        }
    }
}
