import AgentProto
import ControlPlaneAPI
import FoundationEssentials
import Glibc
import SwiftProtobuf

/// Turns what a ``Recorder`` records into lines for a person or a program.
package struct EventLines: Sendable {
    package enum Style: Sendable, Equatable {
        /// One or more short lines; nothing for calls that only ask.
        case text(colours: Bool)
        /// One JSON object for each event.
        case json
    }

    private enum Colour: String {
        case dim = "2"
        case red = "31"
        case green = "32"
        case yellow = "33"
        case blue = "34"
        case cyan = "36"
    }

    /// UTF-8 bytes of one text line; longer text is cut.
    static let lineBytes = 500

    private let style: Style
    private let scripts: [Data: String]
    private let sources: [Data: String]
    private let apps: [Data: String]

    /// - Parameter manifest: for the names of scripts and apps.
    package init(style: Style, manifest: Coder_Agent_V2_Manifest) {
        self.style = style
        func name(_ script: Coder_Agent_V2_WorkspaceAgentScript) -> String {
            script.displayName.isEmpty ? "script" : script.displayName
        }
        scripts = Dictionary(manifest.scripts.map { ($0.id, name($0)) }) { first, _ in first }
        sources = Dictionary(manifest.scripts.map { ($0.logSourceID, name($0)) }) { first, _ in first }
        apps = Dictionary(manifest.apps.map { ($0.id, $0.slug) }) { first, _ in first }
    }

    /// The lines for one event, without line ends.
    package func lines(_ event: RecordedEvent) -> [String] {
        if style == .json { return [json(event)] }
        switch event {
        case .connection(let event):
            let (colour, text): (Colour, String) =
                switch event.change {
                case .opened(let version, let role):
                    (.green, "#\(event.connection) opened, version \(version), role \(role)")
                case .closed(let reason): (.yellow, "#\(event.connection) ended: \(reason)")
                case .answered(let method, let path, let status): (.dim, "\(method) \(path): \(status)")
                }
            return [line(event.at, "connection", text, colour)]
        case .call(let call):
            switch call.outcome {
            case .refused(let text): return [line(call.at, "refused", "\(call.rpc): \(text)", .red)]
            case .faulted: return [line(call.at, "fault", call.rpc, .red)]
            case .answered: return describe(call.request, call.rpc).map { line(call.at, $0.kind, $0.text, $0.colour) }
            }
        }
    }

    private struct Item {
        var kind: String
        var text: String
        var colour: Colour?

        init(_ kind: String, _ text: String, _ colour: Colour? = nil) {
            (self.kind, self.text, self.colour) = (kind, text, colour)
        }
    }

    private func describe(_ request: any Message, _ rpc: String) -> [Item] {
        switch request {
        case is Coder_Agent_V2_GetManifestRequest: [Item("manifest", "sent", .dim)]
        case let request as Coder_Agent_V2_UpdateLifecycleRequest:
            [Item("lifecycle", ControlPlaneState.name(request.lifecycle.state), .cyan)]
        case let request as Coder_Agent_V2_UpdateStartupRequest:
            [Item("startup", "version \(request.startup.version), directory \(request.startup.expandedDirectory)")]
        case let request as Coder_Agent_V2_BatchCreateLogsRequest: logs(request)
        case let request as Coder_Agent_V2_WorkspaceAgentScriptCompletedRequest: [completion(request.timing)]
        case let request as Coder_Agent_V2_BatchUpdateMetadataRequest:
            request.metadata.map { item in
                item.result.error.isEmpty
                    ? Item("metadata", "\(item.key) = \(item.result.value)", .blue)
                    : Item("metadata", "\(item.key): \(item.result.error)", .yellow)
            }
        case let request as Coder_Agent_V2_BatchUpdateAppHealthRequest:
            request.updates.map { update in
                let isWell = update.health == .healthy
                return Item(
                    "app health", "\(apps[update.id] ?? "?") \(health(update.health))", isWell ? .green : .yellow)
            }
        case let request as Coder_Agent_V2_UpdateAppStatusRequest: [status(request)]
        case let request as Coder_Agent_V2_ReportConnectionRequest: [report(request.connection)]
        case let request as Coder_Agent_V2_ReportBoundaryLogsRequest:
            request.logs.map { log in
                let http = log.httpRequest
                let rule = http.matchedRule.isEmpty ? "" : " (rule \(http.matchedRule))"
                return Item(
                    "boundary", "\(log.allowed ? "allowed" : "denied") \(http.method) \(http.url)\(rule)",
                    log.allowed ? .green : .red)
            }
        case let request as Coder_Agent_V2_UpdateStatsRequest:
            request.hasStats
                ? [
                    Item(
                        "stats", "\(request.stats.connectionCount) connections, \(request.stats.metrics.count) metrics",
                        .dim)
                ]
                : [Item("stats", "interval asked", .dim)]
        case let request as Coder_Agent_V2_PushResourcesMonitoringUsageRequest: [usage(request)]
        case let request as Coder_Agent_V2_CreateSubAgentRequest: [Item("sub-agent", "created \(request.name)")]
        case is Coder_Agent_V2_DeleteSubAgentRequest: [Item("sub-agent", "deleted")]
        default: []
        }
    }

    private func logs(_ request: Coder_Agent_V2_BatchCreateLogsRequest) -> [Item] {
        let name = sources[request.logSourceID] ?? "?"
        return request.logs.map { log in
            let isError = log.level == .error || log.level == .warn
            return Item(isError ? "log stderr" : "log", "[\(name)] \(log.output)", isError ? .yellow : nil)
        }
    }

    private func completion(_ timing: Coder_Agent_V2_Timing) -> Item {
        let stage =
            switch timing.stage {
            case .start: "start"
            case .stop: "stop"
            case .cron: "cron"
            case .UNRECOGNIZED(let number): "stage \(number)"
            }
        let status =
            switch timing.status {
            case .ok: "OK"
            case .exitFailure: "EXIT_FAILURE"
            case .timedOut: "TIMED_OUT"
            case .pipesLeftOpen: "PIPES_LEFT_OPEN"
            case .UNRECOGNIZED(let number): "status \(number)"
            }
        // From outside, so no arithmetic that could trap.
        let seconds =
            Double(timing.end.seconds) - Double(timing.start.seconds)
            + (Double(timing.end.nanos) - Double(timing.start.nanos)) / 1e9
        return Item(
            "script",
            "[\(scripts[timing.scriptID] ?? "?")] \(status), exit code \(timing.exitCode), "
                + "\(decimal(seconds, 2)) s (\(stage))",
            timing.status == .ok ? .green : .red)
    }

    private func status(_ request: Coder_Agent_V2_UpdateAppStatusRequest) -> Item {
        let state =
            switch request.state {
            case .working: "WORKING"
            case .idle: "IDLE"
            case .complete: "COMPLETE"
            case .failure: "FAILURE"
            case .UNRECOGNIZED(let number): "\(number)"
            }
        let rest = [request.message, request.uri].filter { !$0.isEmpty }.joined(separator: " ")
        return Item("app status", "\(request.slug) \(state)\(rest.isEmpty ? "" : ": \(rest)")", .blue)
    }

    private func health(_ health: Coder_Agent_V2_AppHealth) -> String {
        switch health {
        case .unspecified: "UNSPECIFIED"
        case .disabled: "DISABLED"
        case .initializing: "INITIALIZING"
        case .healthy: "HEALTHY"
        case .unhealthy: "UNHEALTHY"
        case .UNRECOGNIZED(let number): "\(number)"
        }
    }

    private func report(_ connection: Coder_Agent_V2_Connection) -> Item {
        let kind =
            switch connection.type {
            case .unspecified: "unspecified"
            case .ssh: "SSH"
            case .vscode: "VS Code"
            case .jetbrains: "JetBrains"
            case .reconnectingPty: "terminal"
            case .UNRECOGNIZED(let number): "type \(number)"
            }
        let end = connection.action == .disconnect ? ", status \(connection.statusCode) \(connection.reason)" : ""
        return Item(
            "client",
            "\(connection.action == .disconnect ? "disconnected" : "connected"): \(kind) "
                + "from \(connection.ip.isEmpty ? "unknown" : connection.ip)\(end)")
    }

    private func usage(_ request: Coder_Agent_V2_PushResourcesMonitoringUsageRequest) -> Item {
        guard let point = request.datapoints.last else { return Item("resources", "nothing", .dim) }
        var parts: [String] = []
        func gibibytes(_ used: Int64, _ total: Int64) -> String {
            "\(decimal(Double(used) / 1_073_741_824, 1)) of \(decimal(Double(total) / 1_073_741_824, 1)) GiB"
        }
        if point.hasMemory { parts.append("memory \(gibibytes(point.memory.used, point.memory.total))") }
        for volume in point.volumes { parts.append("\(volume.volume) \(gibibytes(volume.used, volume.total))") }
        return Item("resources", parts.joined(separator: ", "), .dim)
    }

    // MARK: Lines

    private func line(_ at: Duration, _ kind: String, _ text: String, _ colour: Colour?) -> String {
        let kind = kind + String(repeating: " ", count: max(0, 11 - kind.count))
        let text = Self.printable(text)
        guard style == .text(colours: true) else { return "\(Self.timeOfDay(at))  \(kind) \(text)" }
        let coloured = colour.map { "\u{1b}[\($0.rawValue)m\(kind) \(text)\u{1b}[0m" } ?? "\(kind) \(text)"
        return "\u{1b}[2m\(Self.timeOfDay(at))\u{1b}[0m  \(coloured)"
    }

    /// One line that can do nothing to a terminal, of at most ``lineBytes``.
    static func printable(_ text: String) -> String {
        var line = ""
        for scalar in text.unicodeScalars {
            guard line.utf8.count < lineBytes else { return line + "…" }
            switch scalar.properties.generalCategory {
            case .control where scalar == "\t": line.append(" ")
            case .control, .format, .lineSeparator, .paragraphSeparator: line.append("\u{fffd}")
            default: line.unicodeScalars.append(scalar)
            }
        }
        return line
    }

    /// `12:34:56.789`, in this machine's zone.
    private static func timeOfDay(_ at: Duration) -> String {
        let (seconds, attoseconds) = at.components
        var time = time_t(seconds)
        var parts = tm()
        localtime_r(&time, &parts)
        let milliseconds = Int(attoseconds / 1_000_000_000_000_000)
        return [Int(parts.tm_hour), Int(parts.tm_min), Int(parts.tm_sec)].map { padded($0, 2) }.joined(separator: ":")
            + "." + padded(milliseconds, 3)
    }

    private static func padded(_ number: Int, _ digits: Int) -> String {
        let text = "\(number)"
        return String(repeating: "0", count: max(0, digits - text.count)) + text
    }

    /// With so many digits after the point.
    private func decimal(_ value: Double, _ digits: Int) -> String {
        let scale = digits == 1 ? 10.0 : 100.0
        guard let scaled = Int64(exactly: (abs(value) * scale).rounded()) else { return "\(value)" }
        let whole = scaled / Int64(scale)
        return (value < 0 ? "-" : "") + "\(whole)." + Self.padded(Int(scaled % Int64(scale)), digits)
    }

    // MARK: JSON

    private struct Fields: Encodable {
        var time: String
        var event: String
        var connection: Int
        var rpc: String?
        var refused: String?
        var version: String?
        var role: String?
        var reason: String?
        var method: String?
        var path: String?
        var status: Int?
    }

    private func json(_ event: RecordedEvent) -> String {
        var fields: Fields
        var request: String?
        switch event {
        case .call(let call):
            fields = Fields(time: Self.timestamp(call.at), event: "call", connection: call.connection, rpc: call.rpc)
            if case .refused(let text) = call.outcome { fields.refused = text }
            if call.outcome == .faulted { fields.event = "fault" }
            request = try? call.request.jsonString()
        case .connection(let event):
            fields = Fields(time: Self.timestamp(event.at), event: "", connection: event.connection)
            switch event.change {
            case .opened(let version, let role): (fields.event, fields.version, fields.role) = ("opened", version, role)
            case .closed(let reason): (fields.event, fields.reason) = ("closed", reason)
            case .answered(let method, let path, let status):
                (fields.event, fields.method, fields.path, fields.status) = ("answered", method, path, status)
            }
        }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let text = String(decoding: (try? encoder.encode(fields)) ?? Data("{}".utf8), as: UTF8.self)
        guard let request else { return text }
        return "\(text.dropLast()),\"request\":\(request)}"
    }

    private static func timestamp(_ at: Duration) -> String {
        let (seconds, attoseconds) = at.components
        let time = Google_Protobuf_Timestamp(
            seconds: seconds, nanos: Int32(truncatingIfNeeded: attoseconds / 1_000_000_000_000_000) * 1_000_000)
        let text = (try? time.jsonString()) ?? ""
        return String(text.filter { $0 != "\"" })
    }
}
