import FoundationEssentials
import LocalAgent
import Sodium
import Tailnet

/// Whether clients of the control plane reach the daemon that runs; nothing where they are not to.
enum TailnetCheck {
    static func all(_ settings: AgentConfiguration) -> [DoctorCheck] {
        guard settings.link != nil, settings.isTailnetEnabled else { return [] }
        if let problem = Sodium.problem {
            return [
                .warning(
                    "tailnet", "\(problem)",
                    fix: "install libsodium (Debian: apt install libsodium23) and restart the daemon")
            ]
        }
        // Without a daemon other checks say so.
        guard let socket = settings.httpSocket,
            let answer = try? LocalClient(socket: socket).request(
                "GET", "/api/v0/tailnet", allowing: [503], limit: .seconds(3)), answer.status == 200,
            let report = try? JSONDecoder().decode(TailnetReport.self, from: Data(answer.body))
        else { return [] }
        return [check(report)]
    }

    static func check(_ report: TailnetReport) -> DoctorCheck {
        if let error = report.coordination.error {
            return .error(
                "tailnet", "the control plane refuses the node: \(error)",
                fix: "if another agent runs with the same token, stop one of them")
        }
        if let problem = report.problem {
            return .error(
                "tailnet", problem,
                fix: "see that the relay's URL can be reached from here, and that proxies on the way pass its Upgrade: "
                    + report.relays.compactMap(\.url).joined(separator: ", "))
        }
        if report.relays.isEmpty {
            return .warning(
                "tailnet", "the control plane has announced no relay", fix: "see its settings about DERP")
        }
        let direct = report.direct
        let paths =
            direct.is_enabled ? "\(direct.endpoints.count) endpoints for direct paths" : "direct paths are disabled"
        if let problem = direct.problem {
            return .warning(
                "tailnet", problem, fix: "clients still reach the agent by relay; see the limits of sockets")
        }
        return .ok("tailnet", "relay \(report.home_region) is connected, \(report.peers.count) peers, \(paths)")
    }
}
