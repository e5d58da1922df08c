import CPlatform
import Glibc

/// What systemd asks of a service: notifications, and sockets that it opened for us.
struct Systemd: Sendable {
    private let notifySocket: String?
    /// Listening descriptors passed by socket activation.
    let activated: [CInt]

    init(environment: [String: String]) {
        notifySocket = environment["NOTIFY_SOCKET"]
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

    func ready(_ status: String) { notify("READY=1\nSTATUS=\(status)") }
    func stopping() { notify("STOPPING=1\nSTATUS=Shutting down") }

    private func notify(_ message: String) {
        guard let notifySocket else { return }
        _ = wa_notify(notifySocket, message)
    }
}
