import Synchronization

/// All metrics of the daemon, rendered in Prometheus' text exposition format.
///
/// Metrics are created once at start and updated without allocation; names and label names are
/// fixed in code, so a registration that contradicts an earlier one is a programming error that
/// keeps the first.
public final class MetricsRegistry: Sendable {
    /// Label combinations kept of one family; further ones are counted under the value `other`,
    /// so that hostile input (paths, methods) cannot grow the registry.
    public static let maximumSeries = 500

    private let families = Mutex<[String: any MetricFamily]>([:])

    public init() {}

    /// A value that only rises.
    public func counter(_ name: String, help: String, labels: [String] = []) -> CounterFamily {
        family(name) { CounterFamily(name: name, help: help, labels: labels) }
    }

    /// A value that rises and falls.
    public func gauge(_ name: String, help: String, labels: [String] = []) -> GaugeFamily {
        family(name) { GaugeFamily(name: name, help: help, labels: labels) }
    }

    /// A value that is read at each scrape. `read` must not block; nil leaves it out. A later one of
    /// the same name takes its place: what it reads may have been made anew.
    public func gauge(_ name: String, help: String, read: @escaping @Sendable () -> Double?) {
        gauge(name, help: help, labels: []) { read().map { [([], $0)] } ?? [] }
    }

    /// As ``gauge(_:help:read:)``, with a value for each combination of labels; none leaves it out.
    public func gauge(
        _ name: String, help: String, labels: [String],
        read: @escaping @Sendable () -> [(labels: [String], value: Double)]
    ) {
        families.withLock { known in
            guard known[name] == nil || known[name] is ComputedGauge else { return }
            known[name] = ComputedGauge(name: name, help: help, labels: labels, read: read)
        }
    }

    /// A distribution over buckets with the given upper bounds, in the unit of the name.
    public func histogram(
        _ name: String, help: String, labels: [String] = [], buckets: [Double] = HistogramFamily.latencyBuckets
    ) -> HistogramFamily {
        family(name) { HistogramFamily(name: name, help: help, labels: labels, buckets: buckets) }
    }

    /// The text exposition of every family, ordered by name.
    public func render() -> String {
        let all = families.withLock { $0 }.sorted { $0.key < $1.key }
        var text = ""
        for (_, family) in all { family.render(into: &text) }
        return text
    }

    /// The current values, ordered by name; of a distribution its `_count` and `_sum`.
    ///
    /// - Parameter limit: further ones are left out.
    public func samples(limit: Int) -> [MetricSample] {
        let all = families.withLock { $0 }.sorted { $0.key < $1.key }
        var samples: [MetricSample] = []
        for (_, family) in all where samples.count < limit { family.collect(into: &samples) }
        return Array(samples.prefix(limit))
    }

    private func family<F: MetricFamily>(_ name: String, _ make: () -> F) -> F {
        families.withLock { known in
            if let existing = known[name] as? F { return existing }
            let fresh = make()
            if known[name] == nil { known[name] = fresh }
            return fresh
        }
    }
}

/// One value of one series.
public struct MetricSample: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        /// Only rises.
        case counter
        case gauge
    }

    public struct Label: Sendable, Equatable {
        public var name: String
        public var value: String
    }

    public var name: String
    public var kind: Kind
    public var labels: [Label]
    public var value: Double

    init(_ name: String, _ kind: Kind, _ names: [String], _ values: [String], _ value: Double) {
        (self.name, self.kind, self.value) = (name, kind, value)
        labels = zip(names, values).map { Label(name: $0, value: $1) }
    }
}

protocol MetricFamily: Sendable {
    func render(into text: inout String)
    func collect(into samples: inout [MetricSample])
}

enum Exposition {
    static func header(_ name: String, _ help: String, _ type: String, into text: inout String) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
    }

    /// `{a="1",b="2"}`, or nothing without labels.
    static func labels(_ names: [String], _ values: [String], extra: String? = nil) -> String {
        var parts = zip(names, values).map { "\($0)=\"\(escape($1))\"" }
        if let extra { parts.append(extra) }
        return parts.isEmpty ? "" : "{\(parts.joined(separator: ","))}"
    }

    static func number(_ value: Double) -> String {
        if value == value.rounded(), abs(value) < 9_007_199_254_740_992 { return String(Int64(value)) }
        return "\(value)"
    }

    private static func escape(_ value: String) -> String {
        var out = ""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\\": out += "\\\\"
            case "\"": out += "\\\""
            case "\n": out += "\\n"
            default: out.unicodeScalars.append(scalar)
            }
        }
        return out
    }
}

/// The series of one family by their label values, bounded by ``MetricsRegistry/maximumSeries``.
final class SeriesTable<Series: Sendable>: Sendable {
    private let labels: [String]
    private let make: @Sendable () -> Series
    private let series: Mutex<[[String]: Series]>

    init(labels: [String], make: @escaping @Sendable () -> Series) {
        self.labels = labels
        self.make = make
        series = Mutex(labels.isEmpty ? [[]: make()] : [:])
    }

    func find(_ values: [String]) -> Series {
        series.withLock { table in
            if let known = table[values] { return known }
            var key = values
            if table.count >= MetricsRegistry.maximumSeries || values.count != labels.count {
                key = labels.map { _ in "other" }
                if let known = table[key] { return known }
            }
            let fresh = make()
            table[key] = fresh
            return fresh
        }
    }

    func sorted() -> [(values: [String], series: Series)] {
        series.withLock { $0 }.map { ($0.key, $0.value) }.sorted { $0.0.lexicographicallyPrecedes($1.0) }
    }
}
