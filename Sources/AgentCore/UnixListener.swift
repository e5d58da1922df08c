import CPlatform
import Glibc

/// A listening unix socket whose file belongs to this daemon.
///
/// Rules (docs/contracts/unix-sockets.md#the-file): the file has its mode from its first moment; a live
/// socket in the way is an error that says so; a stale one is replaced; a file that is not a socket
/// is never deleted; on ``remove()`` the file goes only if it is still ours.
public struct UnixListener: Sendable {
    public let path: String
    /// The listening descriptor, blocking and close-on-exec. The server that gets it closes it.
    public let descriptor: CInt
    private let backlog: CInt
    private let file: FileIdentity

    /// Creates the socket.
    /// - Parameters:
    ///   - path: absolute; at most 107 bytes. A missing parent is created with mode 0700.
    ///   - mode: permission bits of the file.
    ///   - backlog: connections that may wait to be accepted.
    public static func bind(path: String, mode: mode_t = 0o600, backlog: CInt = 256) throws -> UnixListener {
        guard path.hasPrefix("/"), !path.utf8.contains(0) else {
            throw CoreError(.invalid, "socket path \"\(path)\" must be absolute")
        }
        guard path.utf8.count <= wa_unix_path_max() else {
            throw CoreError(
                .invalid,
                "socket path \"\(path)\" has \(path.utf8.count) bytes; unix sockets allow \(wa_unix_path_max())")
        }
        let parent = parentDirectory(of: path)
        try createDirectories(parent, mode: 0o700)

        let lock = lockDirectory(parent)
        defer { if lock >= 0 { close(lock) } }
        try clear(path)
        let descriptor = wa_unix_listen(path, mode, backlog)
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot listen on \(path)") }
        var info = stat()
        guard lstat(path, &info) == 0 else {
            let number = errno
            close(descriptor)
            throw CoreError.system(number, "cannot inspect \(path)")
        }
        return UnixListener(path: path, descriptor: descriptor, backlog: backlog, file: FileIdentity(info))
    }

    /// Sets the backlog once more. NIO listens again on a descriptor that it is given, with 128
    /// whatever its option says, so call this after it has.
    public func restoreBacklog() { listen(descriptor, backlog) }

    /// Removes the socket file unless another file has taken its place.
    public func remove() {
        let lock = Self.lockDirectory(parentDirectory(of: path))
        defer { if lock >= 0 { close(lock) } }
        var info = stat()
        guard lstat(path, &info) == 0, FileIdentity(info) == file else { return }
        unlink(path)
    }

    /// Keeps two daemons that start or stop at once from removing each other's socket between a look
    /// and a bind. On the directory, so that no lock file is left behind; given up after a moment,
    /// because in /tmp any user may hold it.
    /// - Returns: a descriptor to close, or -1.
    private static func lockDirectory(_ path: String) -> CInt {
        let descriptor = wa_open(path, O_RDONLY | O_DIRECTORY, 0)
        guard descriptor >= 0 else { return -1 }
        for _ in 0..<50 {
            if flock(descriptor, LOCK_EX | LOCK_NB) == 0 { break }
            poll(nil, 0, 5)
        }
        return descriptor
    }

    private static func clear(_ path: String) throws {
        var info = stat()
        guard lstat(path, &info) == 0 else { return }
        guard info.st_mode & S_IFMT == S_IFSOCK else {
            throw CoreError(.pathOccupied, "\(path) exists and is not a socket; move it away or choose another path")
        }
        var (pid, uid) = (pid_t(), uid_t())
        switch wa_unix_server(path, &pid, &uid) {
        case 0:
            let who = pid > 0 ? "process \(pid) of uid \(uid)" : "another process"
            throw CoreError(.socketInUse, "\(who) already listens on \(path); stop it or choose another path")
        case -ECONNREFUSED:
            guard unlink(path) == 0 else { throw CoreError.system(errno, "cannot remove stale socket \(path)") }
        case -ENOENT:
            return
        case let failure:
            throw CoreError(.pathOccupied, "cannot tell whether \(path) is in use: \(errnoText(-failure))")
        }
    }
}

/// Tells a file from a later one at its path. The inode alone does not: file systems give the number
/// of a removed file to the next one. A socket's modification time is that of its creation.
private struct FileIdentity: Sendable, Equatable {
    let device: dev_t
    let inode: ino_t
    let seconds: Int
    let nanoseconds: Int

    init(_ info: stat) {
        device = info.st_dev
        inode = info.st_ino
        seconds = info.st_mtim.tv_sec
        nanoseconds = info.st_mtim.tv_nsec
    }
}

/// The directory part of an absolute path (`/` for `/a`).
public func parentDirectory(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/"), slash != path.startIndex else { return "/" }
    return String(path[..<slash])
}

/// Creates a directory and its missing parents with the mode; existing ones keep theirs.
public func createDirectories(_ path: String, mode: mode_t) throws {
    var info = stat()
    if stat(path, &info) == 0 {
        guard info.st_mode & S_IFMT == S_IFDIR else {
            throw CoreError(.pathOccupied, "\(path) exists and is not a directory")
        }
        return
    }
    if path != "/" { try createDirectories(parentDirectory(of: path), mode: mode) }
    guard mkdir(path, mode) == 0 || errno == EEXIST else {
        throw CoreError.system(errno, "cannot create directory \(path)")
    }
}

/// What lets other users put something of theirs in the place of a file in the directory, as the end of a
/// sentence; nil when nothing does. In a directory with the sticky bit, such as /tmp, they cannot.
public func sharingProblem(ofDirectory path: String) -> String? {
    var info = stat()
    guard stat(path, &info) == 0 else { return nil }
    if info.st_uid != geteuid(), info.st_uid != 0 { return "belongs to uid \(info.st_uid)" }
    return info.st_mode & 0o022 != 0 && info.st_mode & S_ISVTX == 0 ? "is writable by other users" : nil
}

/// Refuses a directory that another user could use against us: it must be a real directory, owned
/// by this user (or root), and writable by no other. For default places below `/tmp`, whose
/// names another user can guess and take first.
public func requirePrivateDirectory(_ path: String) throws {
    var info = stat()
    guard lstat(path, &info) == 0 else { throw CoreError.system(errno, "cannot inspect \(path)") }
    guard info.st_mode & S_IFMT == S_IFDIR else {
        throw CoreError(.pathOccupied, "\(path) is not a directory")
    }
    guard info.st_uid == geteuid() || info.st_uid == 0 else {
        throw CoreError(.pathOccupied, "\(path) belongs to uid \(info.st_uid), not to uid \(geteuid())")
    }
    guard info.st_mode & 0o022 == 0 else {
        throw CoreError(.pathOccupied, "\(path) is writable by other users; run chmod go-w on it")
    }
}
