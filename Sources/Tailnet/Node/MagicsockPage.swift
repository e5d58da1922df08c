/// `/debug/magicsock`: relays, peers and paths for those who look for a fault. Plain HTML, without a script.
enum MagicsockPage {
    static func html(_ report: TailnetReport) -> String {
        var page = """
            <!doctype html><html lang="en"><meta charset="utf-8"><title>magicsock</title>
            <h1>Tailnet node \(escaped(report.key))</h1>
            <p>Addresses: \(escaped(report.addresses.joined(separator: ", ")))<br>
            Coordination: \(report.coordination.is_open ? "open" : "not open")\(because(report.coordination.error))<br>
            TCP connections: \(report.connections), UDP flows: \(report.udp_flows)</p>
            <h2>Direct paths</h2>
            <p>\(direct(report.direct))</p>
            <h2>Relays</h2>
            <ul>

            """
        for relay in report.relays { page += "<li>\(self.relay(relay))</li>\n" }
        page += "</ul>\n<h2>Peers</h2>\n"
        if report.peers.isEmpty { page += "<p>None.</p>\n" }
        for peer in report.peers { page += self.peer(peer) }
        page += "<h2>Dropped</h2>\n<ul>\n"
        for (cause, count) in report.drops.sorted(by: { $0.key < $1.key }) {
            page += "<li>\(escaped(cause)): \(count)</li>\n"
        }
        return page + "</ul>\n</html>\n"
    }

    private static func direct(_ direct: TailnetReport.Direct) -> String {
        guard direct.is_enabled else { return "disabled by the control plane" }
        let port = direct.port.map { "UDP port \($0)" } ?? "no socket"
        let endpoints = direct.endpoints.isEmpty ? "none" : direct.endpoints.joined(separator: ", ")
        return escaped("\(port); endpoints: \(endpoints)") + because(direct.problem)
    }

    private static func relay(_ relay: TailnetReport.Relay) -> String {
        var parts = ["region \(relay.region_id) (\(relay.region_code.isEmpty ? "no code" : relay.region_code))"]
        if relay.is_home { parts.append("home") }
        if relay.url == nil {
            parts.append("STUN only")
        } else {
            parts.append(relay.is_connected ? "connected" : "not connected")
        }
        if let age = relay.connected_seconds { parts.append("for \(age) s") }
        if let age = relay.last_write_seconds { parts.append("last write \(age) s ago") }
        if let latency = relay.latency_ms { parts.append("\(latency) ms") }
        if let reason = relay.websocket_reason { parts.append("by WebSocket: \(reason)") }
        if relay.queued_packets > 0 { parts.append("\(relay.queued_packets) packets queued") }
        return escaped(parts.joined(separator: ", ")) + because(relay.problem)
    }

    private static func peer(_ peer: TailnetReport.Peer) -> String {
        let handshake = peer.last_handshake_seconds.map { "\($0) s ago" } ?? "never"
        let best = peer.endpoint.map { "\($0) (\(peer.path.rawValue))" } ?? "relay \(peer.home_region)"
        var text = """
            <h3>\(escaped(peer.key)) \(escaped(peer.id))</h3>
            <p>Addresses: \(escaped(peer.addresses.joined(separator: ", ")))<br>
            Session: \(escaped(peer.session)), last handshake \(handshake), \(peer.is_active ? "active" : "idle")<br>
            Path: \(escaped(best))\(peer.latency_ms.map { ", \($0) ms" } ?? "")<br>
            Received \(peer.received_bytes) bytes, sent \(peer.sent_bytes), \(peer.staged_packets) packets staged, \
            \(peer.connections) connections</p>
            <ul>

            """
        for candidate in peer.candidates {
            let ping = candidate.last_ping_seconds.map { "pinged \($0) s ago" } ?? "not pinged"
            let pong = candidate.last_pong_seconds.map { "answered \($0) s ago" } ?? "no answer"
            text += "<li>\(escaped(candidate.endpoint)): \(ping), \(pong)"
            text += (candidate.latency_ms.map { ", \($0) ms" } ?? "") + "</li>\n"
        }
        return text + "</ul>\n"
    }

    private static func because(_ reason: String?) -> String { reason.map { ": " + escaped($0) } ?? "" }

    static func escaped(_ text: String) -> String {
        var result = ""
        for character in text.unicodeScalars {
            switch character {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "'": result += "&#39;"
            default: result.unicodeScalars.append(character)
            }
        }
        return result
    }
}
