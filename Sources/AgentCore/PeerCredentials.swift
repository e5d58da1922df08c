import CPlatform
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

    /// What a client says that does not trust the server of a socket.
    public static func refusal(of server: PeerCredentials?, at path: String) -> String {
        let uid = server.map { "uid \($0.uid)" } ?? "an unknown user"
        return "\(path) is served by \(uid), neither you nor root; run the command as the agent's user"
    }

    /// The layout of the kernel's `struct ucred`, which Glibc's module leaves out.
    private struct Raw {
        var pid: pid_t = 0
        var uid: uid_t = 0
        var gid: gid_t = 0
    }

    /// Asks the kernel; for a channel that is no unix socket it fails.
    public static func of(_ channel: any Channel) -> EventLoopFuture<PeerCredentials> {
        guard let provider = channel as? any SocketOptionProvider else {
            return channel.eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
        }
        let raw: EventLoopFuture<Raw> = provider.unsafeGetSocketOption(
            level: .socket, name: .init(rawValue: SO_PEERCRED))
        return raw.map { PeerCredentials(pid: $0.pid, uid: $0.uid, gid: $0.gid) }
    }

    /// Asks the kernel; nil for what is no connected unix socket.
    public static func of(_ descriptor: CInt) -> PeerCredentials? {
        var (pid, uid, gid) = (pid_t(), uid_t(), gid_t())
        guard wa_peer_credentials(descriptor, &pid, &uid, &gid) == 0 else { return nil }
        return PeerCredentials(pid: pid, uid: uid, gid: gid)
    }
}

/// Connects to a unix socket that this user or root serves. In a directory like /tmp another user may serve one
/// under the name that a client looks for.
/// - Returns: a blocking, close-on-exec descriptor that the caller closes.
/// - Throws: ``CoreError`` that names the path: `.pathOccupied` where another user serves it.
public func connectToOwnSocket(_ path: String) throws(CoreError) -> CInt {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let bytes = Array(path.utf8)
    guard bytes.count < MemoryLayout.size(ofValue: address.sun_path), !bytes.contains(0) else {
        throw CoreError(.invalid, "\(path): unix socket paths have at most \(wa_unix_path_max()) bytes")
    }
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw CoreError.system(errno, "cannot create a socket") }
    let rc = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    guard rc == 0 else {
        let number = errno
        close(descriptor)
        throw CoreError.system(number, path)
    }
    let peer = PeerCredentials.of(descriptor)
    guard peer?.mayUse(socketOf: geteuid()) == true else {
        close(descriptor)
        throw CoreError(.pathOccupied, PeerCredentials.refusal(of: peer, at: path))
    }
    return descriptor
}
