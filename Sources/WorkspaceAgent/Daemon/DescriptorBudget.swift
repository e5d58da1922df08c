import AgentHTTP
import AgentSocket
import BoundaryLog
import Glibc
import LocalAgent
import NIOCore

/// How many connections the limit of open files (`ulimit -n`) allows: clients of one kind leave enough for those of the
/// others, for processes and files, and for what the daemon needs itself.
struct DescriptorBudget: Equatable {
    /// Below this limit the daemon does not start.
    static let least = 64
    /// What the daemon holds or may open itself: event loops, listeners, logs, SQLite, the control plane, relays, workers.
    static let own = 40

    /// How long one that takes the last place keeps it without a request, where the limit of open files allows few.
    static let grace = TimeAmount.milliseconds(50)

    /// Connections of all unix sockets of the HTTP API, and as many over TCP.
    var http: Int
    var agentSocket: Int
    var boundary: Int

    /// - Parameter limit: descriptors that this process may have; from ``least`` on.
    init(limit: Int = Self.limit) {
        let rest = max(limit, Self.least) - Self.own
        http = min(HTTPLimits.connections, rest / 4)
        agentSocket = min(AgentSocketLimits.connections, rest / 8)
        boundary = min(BoundaryLimits.connections, rest / 8)
    }

    /// The limit that holds now.
    static var limit: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return least }
        return Int(clamping: limit.rlim_cur)
    }

    /// - Throws: ``CommandFailure`` when the limit is too low to work with.
    static func check() throws {
        guard limit < least else { return }
        throw CommandFailure(
            message: "this process may have \(limit) open files, and needs \(least) at least; raise the limit "
                + "(ulimit -n, or LimitNOFILE= of a systemd unit)")
    }
}
