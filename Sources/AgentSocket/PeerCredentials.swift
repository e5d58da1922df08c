import Glibc
import NIOCore

/// Who is at the other end of a unix socket, as the kernel saw it when it connected.
public struct PeerCredentials: Sendable, Equatable {
    public var pid: pid_t
    public var uid: uid_t
    public var gid: gid_t

    public init(pid: pid_t, uid: uid_t, gid: gid_t) {
        self.pid = pid
        self.uid = uid
        self.gid = gid
    }

    /// Whether this peer may use the socket of a daemon with the uid: its own user and root may.
    public func mayUse(socketOf owner: uid_t) -> Bool { uid == owner || uid == 0 }

    /// The layout of the kernel's `struct ucred`, which Glibc's module leaves out.
    private struct Raw {
        var pid: pid_t = 0
        var uid: uid_t = 0
        var gid: gid_t = 0
    }

    /// Asks the kernel; for a channel that is no unix socket it fails.
    static func of(_ channel: any Channel) -> EventLoopFuture<PeerCredentials> {
        guard let provider = channel as? any SocketOptionProvider else {
            return channel.eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
        }
        let raw: EventLoopFuture<Raw> = provider.unsafeGetSocketOption(
            level: .socket, name: .init(rawValue: SO_PEERCRED))
        return raw.map { PeerCredentials(pid: $0.pid, uid: $0.uid, gid: $0.gid) }
    }
}
