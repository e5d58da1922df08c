import Tailnet

/// A node's report for people.
enum TailnetText {
    static func lines(_ report: TailnetReport, width: Int?) -> [String] {
        var lines = [
            "Node          \(report.key)", "Addresses     \(report.addresses.joined(separator: ", "))",
            "Coordination  \(report.coordination.is_open ? "open" : "not open")"
                + (report.coordination.error.map { ": \($0)" } ?? ""),
            "Direct paths  \(direct(report.direct))",
        ]
        if let problem = report.problem { lines.append("Problem       \(problem)") }
        let relays = report.relays.map { relay in
            [
                "\(relay.region_id)", relay.region_code, state(relay),
                relay.latency_ms.map(milliseconds) ?? "-", relay.problem ?? relay.websocket_reason ?? "",
            ]
        }
        lines += [""] + table([["REGION", "CODE", "STATE", "LATENCY", ""]] + relays, width)
        let peers = report.peers.map { peer in
            [
                peer.id, peer.key, peer.session, peer.last_handshake_seconds.map { age($0) } ?? "-",
                peer.endpoint.map { "\($0) (\(peer.path.rawValue))" } ?? "relay \(peer.home_region)",
                peer.latency_ms.map(milliseconds) ?? "-",
            ]
        }
        lines.append("")
        lines +=
            peers.isEmpty
            ? ["No peers"] : table([["PEER", "KEY", "SESSION", "HANDSHAKE", "PATH", "LATENCY"]] + peers, width)
        return lines.map(TextTable.harmless)
    }

    private static func table(_ rows: [[String]], _ width: Int?) -> [String] {
        TextTable.lines(rows.map { $0.map(TextTable.harmless) }, width: width).map { line in
            String(line.reversed().drop { $0 == " " }.reversed())
        }
    }

    private static func state(_ relay: TailnetReport.Relay) -> String {
        if relay.url == nil { return "STUN only" }
        return (relay.is_home ? "home, " : "") + (relay.is_connected ? "connected" : "not connected")
    }

    private static func direct(_ direct: TailnetReport.Direct) -> String {
        guard direct.is_enabled else { return "disabled by the control plane" }
        if let problem = direct.problem { return problem }
        let port = direct.port.map { "UDP port \($0)" } ?? "no socket yet"
        return direct.endpoints.isEmpty ? port : "\(port): \(direct.endpoints.joined(separator: ", "))"
    }

    static func milliseconds(_ value: Double) -> String {
        let hundredths = Int((value * 100).rounded())
        return "\(hundredths / 100).\(hundredths % 100 < 10 ? "0" : "")\(hundredths % 100) ms"
    }

    private static func age(_ seconds: Double) -> String { ProcListCommand.age(Int(seconds)) }
}
