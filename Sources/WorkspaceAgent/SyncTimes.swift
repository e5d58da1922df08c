import AgentCore
import AgentSocket

/// Moments as the command prints them: RFC 3339, UTC, milliseconds.
enum SyncTime {
    static func text(_ instant: UnitInstant) -> String {
        timestampText(seconds: instant.seconds, nanoseconds: instant.nanoseconds)
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
        return TextTable.lines(
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
