import CPlatform
import FoundationEssentials
import Glibc

/// Builds the environment of every program that the daemon starts. There is one builder, so that a
/// variable means the same in a process, a script and a metadata command.
public struct EnvironmentBuilder: Sendable {
    /// Variables that steer the daemon itself and mean nothing, or harm, in a child: the priority
    /// settings (spec: process API) and systemd's descriptors and watchdog, which name our pid.
    public static let daemonOnly: Set<String> = [
        "CODER_PROC_PRIO_MGMT", "CODER_PROC_NICE_SCORE", "CODER_PROC_OOM_SCORE",
        "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID",
        "INVOCATION_ID", "JOURNAL_STREAM",
    ]
    /// Names the chat of the request that started a process.
    public static let chatVariable = "CODER_CHAT_ID"

    private let base: [String: String]

    /// - Parameter base: the daemon's own environment; ``daemonOnly`` names are left out.
    public init(base: [String: String]) {
        self.base = base.filter { !Self.daemonOnly.contains($0.key) }
    }

    /// The environment, lowest to highest: the daemon's own, the request's, `CODER_CHAT_ID`.
    public func build(request: [String: String] = [:], chat: ChatIdentity? = nil) -> [String: String] {
        var result = base
        result.merge(request) { _, new in new }
        if let chat { result[Self.chatVariable] = chat.id.lowercased }
        return result
    }

    /// This process's environment. Entries that are not UTF-8 or have no `=` are left out.
    public static func current() -> [String: String] {
        var result: [String: String] = [:]
        guard var entry = wa_environ() else { return result }
        while let text = entry.pointee {
            if let pair = String(validatingCString: text), let equals = pair.firstIndex(of: "=") {
                result[String(pair[..<equals])] = String(pair[pair.index(after: equals)...])
            }
            entry += 1
        }
        return result
    }
}
