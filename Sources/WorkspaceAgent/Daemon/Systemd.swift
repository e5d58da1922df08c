import CPlatform
import Glibc

/// What systemd asks of a service: notifications, and sockets that it opened for us.
struct Systemd: Sendable {
    private let notifySocket: String?
    /// Listening descriptors passed by socket activation.
    let activated: [CInt]
    /// Within what time systemd wants a sign of life, in microseconds; nil where it wants none of this process.
    let watchdogMicroseconds: Int64?

    init(environment: [String: String]) {
        notifySocket = environment["NOTIFY_SOCKET"]
        watchdogMicroseconds = Self.watchdog(environment)
        guard environment["LISTEN_PID"].flatMap({ Int32($0) }) == getpid(),
            let count = environment["LISTEN_FDS"].flatMap({ Int32($0) }), count > 0, count <= 64
        else {
            activated = []
            return
        }
        // sd_listen_fds(3): they start at 3.
        activated = (3..<(3 + count)).filter { wa_socket_family($0) >= 0 }
        for descriptor in activated { _ = wa_set_cloexec(descriptor) }
    }

    /// sd_watchdog_enabled(3).
    private static func watchdog(_ environment: [String: String]) -> Int64? {
        guard environment["NOTIFY_SOCKET"] != nil, let time = environment["WATCHDOG_USEC"].flatMap({ Int64($0) }),
            time > 0
        else { return nil }
        // A variable that was inherited means another process.
        if let pid = environment["WATCHDOG_PID"], Int32(pid) != getpid() { return nil }
        return time
    }

    func ready(_ status: String) { notify("READY=1\nSTATUS=\(status)") }
    func stopping() { notify("STOPPING=1\nSTATUS=Shutting down") }

    /// Does not wait for systemd.
    func alive() { notify("WATCHDOG=1", mayWait: false) }

    private func notify(_ message: String, mayWait: Bool = true) {
        guard let notifySocket else { return }
        _ = wa_notify(notifySocket, message, mayWait)
    }
}
