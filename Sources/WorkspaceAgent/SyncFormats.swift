import AgentCore
import AgentSocket
import NIOCore

extension SyncOutput {
    static func table(of units: [UnitReport]) -> [String] {
        TextTable.lines([["UNIT", "STATUS", "READY"]] + units.map { [$0.unit, status($0.status), "\($0.isReady)"] })
    }

    static func table(of report: UnitReport) -> [String] {
        var lines = TextTable.lines([
            ["Unit:", report.unit], ["Status:", status(report.status)], ["Ready:", "\(report.isReady)"],
        ])
        if report.dependencies.isEmpty {
            lines.append("Dependencies: none")
        } else {
            lines += ["", "Dependencies:"]
            lines += TextTable.lines(
                [["DEPENDS ON", "REQUIRED", "CURRENT", "SATISFIED"]]
                    + report.dependencies.map {
                        [$0.dependsOn, $0.requiredStatus, status($0.currentStatus), "\($0.isSatisfied)"]
                    })
        }
        return lines
    }

    static func json(of report: UnitReport) -> SyncJSON {
        .object([
            ("unit_name", .string(report.unit)),
            ("status", .string(report.status)),
            ("is_ready", .bool(report.isReady)),
            (
                "dependencies",
                .array(
                    report.dependencies.map {
                        .object([
                            ("depends_on", .string($0.dependsOn)),
                            ("required_status", .string($0.requiredStatus)),
                            ("current_status", .string($0.currentStatus)),
                            ("is_satisfied", .bool($0.isSatisfied)),
                        ])
                    })
            ),
        ])
    }

    /// The graph for Graphviz; an arrow says "wants".
    static func dot(of reports: [UnitReport]) -> [String] {
        var lines = ["digraph units {", "    rankdir=LR;"]
        let registered = Set(reports.map { UnitName($0.unit) })
        let wanted = Set(reports.flatMap { $0.dependencies.map { UnitName($0.dependsOn) } })
        for report in reports {
            lines.append("    \(dotQuoted(report.unit)) [label=\(dotQuoted("\(report.unit)\n\(report.status)"))];")
        }
        for name in wanted.subtracting(registered).sorted() {
            lines.append(
                "    \(dotQuoted(name.text)) [label=\(dotQuoted("\(name.text)\nnot registered")), style=dashed];")
        }
        for report in reports {
            for dependency in report.dependencies {
                lines.append("    \(dotQuoted(report.unit)) -> \(dotQuoted(dependency.dependsOn));")
            }
        }
        return lines + ["}"]
    }

    private static func status(_ status: String) -> String { status.isEmpty ? "not registered" : status }

    private static func dotQuoted(_ text: String) -> String {
        var out = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": out += "\\\""
            case "\\": out += "\\\\"
            case "\n": out += "\\n"
            default: out.unicodeScalars.append(scalar)
            }
        }
        return out + "\""
    }
}

/// JSON whose keys keep their order, which no encoder here promises.
indirect enum SyncJSON {
    case null
    case bool(Bool)
    case string(String)
    /// A whole number without decimals, as far as a Double has each of them.
    case number(Double)
    case array([SyncJSON])
    case object([(String, SyncJSON)])

    func text(indented: Bool = true, depth: Int = 0) -> String {
        let inner = indented ? "\n" + String(repeating: "  ", count: depth + 1) : ""
        let outer = indented ? "\n" + String(repeating: "  ", count: depth) : ""
        switch self {
        case .null: return "null"
        case .bool(let value): return value ? "true" : "false"
        case .string(let value): return Self.quoted(value)
        case .number(let value): return Int64(exactly: value).map { "\($0)" } ?? "\(value)"
        case .array(let values):
            if values.isEmpty { return "[]" }
            return "["
                + values.map { inner + $0.text(indented: indented, depth: depth + 1) }.joined(separator: ",")
                + outer + "]"
        case .object(let pairs):
            let colon = indented ? ": " : ":"
            return "{"
                + pairs.map { inner + Self.quoted($0) + colon + $1.text(indented: indented, depth: depth + 1) }
                .joined(separator: ",") + outer + "}"
        }
    }

    private static func quoted(_ text: String) -> String {
        var out = ByteBuffer()
        JSONString.write(text, into: &out)
        return String(buffer: out)
    }
}
