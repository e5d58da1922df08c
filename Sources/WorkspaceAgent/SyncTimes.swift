import AgentSocket
import Glibc

/// Moments as the command prints them: RFC 3339, UTC, milliseconds.
enum SyncTime {
    static func text(_ instant: UnitInstant) -> String {
        var seconds = time_t(instant.seconds)
        var parts = tm()
        gmtime_r(&seconds, &parts)
        let milliseconds = Int(instant.nanoseconds) / 1_000_000
        return "\(padded(Int(parts.tm_year) + 1900, 4))-\(padded(Int(parts.tm_mon) + 1, 2))-"
            + "\(padded(Int(parts.tm_mday), 2))T\(padded(Int(parts.tm_hour), 2)):\(padded(Int(parts.tm_min), 2)):"
            + "\(padded(Int(parts.tm_sec), 2)).\(padded(milliseconds, 3))Z"
    }

    private static func padded(_ number: Int, _ digits: Int) -> String {
        let text = String(number)
        return String(repeating: "0", count: max(0, digits - text.count)) + text
    }
}

/// What the timeline shows of one unit.
struct SyncSpan {
    let unit: String
    var waited: UnitInstant?
    var started: UnitInstant?
    var completed: UnitInstant?

    /// One span a unit, ordered by name. A unit that was started again shows its latest run.
    static func spans(of events: [UnitEvent]) -> [SyncSpan] {
        var spans: [UnitName: SyncSpan] = [:]
        for event in events {
            let name = UnitName(event.unit)
            var span = spans[name] ?? SyncSpan(unit: event.unit)
            switch UnitState(rawValue: event.status) {
            case .pending: span.waited = event.at
            case .started: (span.started, span.completed) = (event.at, nil)
            case .completed: span.completed = event.at
            case nil: break
            }
            spans[name] = span
        }
        return spans.sorted { $0.key < $1.key }.map(\.value)
    }

    static func table(of spans: [SyncSpan]) -> [String] {
        func cell(_ instant: UnitInstant?) -> String { instant.map(SyncTime.text) ?? "-" }
        return SyncOutput.columns(
            [["UNIT", "WAITED", "STARTED", "COMPLETED"]]
                + spans.map { [$0.unit, cell($0.waited), cell($0.started), cell($0.completed)] })
    }

    var json: SyncJSON {
        func value(_ instant: UnitInstant?) -> SyncJSON { instant.map { .string(SyncTime.text($0)) } ?? .null }
        return .object([
            ("unit_name", .string(unit)), ("waited_at", value(waited)), ("started_at", value(started)),
            ("completed_at", value(completed)),
        ])
    }
}
