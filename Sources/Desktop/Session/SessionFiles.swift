import AgentCore
import CPlatform
import FoundationEssentials
import Glibc

/// The files of a desktop: their paths, our record of it, and their removal. Everything here blocks.
struct SessionFiles: Sendable {
    /// Our own directory (0700) in the state directory.
    let directory: String
    /// The unix socket of the VNC server.
    let socket: String
    /// Where the program keeps its state; private, so that a desktop of the user's own is never touched.
    let state: String
    /// Our record of the desktop, for the next run of the agent.
    let record: String
    /// The program's session directory. Without it the program would make one in /tmp, whose name we would not
    /// know after a start that failed half-way.
    let session: String

    init(stateDirectory: String) {
        directory = "\(stateDirectory)/desktop"
        state = "\(directory)/state.json"
        record = "\(directory)/session.json"
        session = "\(directory)/session"
        let socket = "\(directory)/rfb.sock"
        // A path that is too long for a socket's address, or that has a comma (which separates Xvnc's arguments),
        // is replaced by a short one, the same in each run.
        self.socket =
            socket.utf8.count <= wa_unix_path_max() && !socket.contains(",")
            ? socket : "/tmp/workspace-agent-\(geteuid())/desktop-\(String(Self.hash(stateDirectory), radix: 36)).sock"
    }

    // FNV-1a: Swift's own hash differs from run to run.
    private static func hash(_ text: String) -> UInt64 {
        text.utf8.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    }

    /// Creates the directories, and checks that nothing foreign is at the paths of our files.
    /// - Throws: ``CoreError`` that names the path.
    func prepare() throws {
        for path in [directory, parentDirectory(of: socket)] {
            try createDirectories(path, mode: 0o700)
            try requirePrivateDirectory(path)
        }
        for path in [state, record] { try requireFree(path) }
        if try hasSocket() {
            throw CoreError(.pathOccupied, "\(socket) exists and could not be removed; remove it")
        }
        guard mkdir(session, 0o700) == 0 || errno == EEXIST else {
            throw CoreError.system(errno, "cannot create directory \(session)")
        }
        try requirePrivateDirectory(session)
    }

    private func requireFree(_ path: String) throws {
        do {
            close(try OwnFile.open(path, O_RDONLY))
        } catch  where error.code == .system(ENOENT) {}
    }

    /// Whether the VNC server's socket is there.
    /// - Throws: ``CoreError`` when something else is at its path.
    func hasSocket() throws -> Bool {
        var info = stat()
        guard lstat(socket, &info) == 0 else { return false }
        guard Self.isOwnSocket(info) else {
            throw CoreError(.pathOccupied, "\(socket) is not a socket of this daemon; remove it")
        }
        return true
    }

    private static func isOwnSocket(_ info: stat) -> Bool {
        info.st_mode & S_IFMT == S_IFSOCK && info.st_uid == geteuid()
    }

    // MARK: The record

    struct Record: Codable, Equatable {
        /// After a reboot, process numbers and start times of the record mean nothing.
        var boot: String
        /// Seconds since 1970 when the program was started.
        var began: Int64
        /// nil until the program has reported.
        var desktop: Desktop?
    }

    struct Desktop: Codable, Equatable {
        var xvnc: ProcessIdentity
        var openbox: ProcessIdentity?
        /// By which it is started again.
        var openboxArguments: [String]?
        var display: String
        var vncPort: Int
        var since: Int64
        var sessionDirectory: SessionDirectory?
    }

    /// The program's own directory, identified so that a later one at the same path is never removed.
    struct SessionDirectory: Codable, Equatable {
        var path: String
        var device: UInt64
        var inode: UInt64
    }

    static var boot: String {
        let text = readTextFile("/proc/sys/kernel/random/boot_id") ?? ""
        return String(text.prefix { !$0.isNewline })
    }

    func write(_ new: Record) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let bytes = Array(try encoder.encode(new)) + [UInt8(ascii: "\n")]
        try OwnFile.replace(record, with: bytes)
    }

    /// Limit for the record and for the program's state, which have a few hundred bytes.
    private static let fileBytes = 64 << 10

    func readRecord() -> Record? {
        (try? OwnFile.read(record, limit: Self.fileBytes)).flatMap {
            try? JSONDecoder().decode(Record.self, from: Data($0))
        }
    }

    /// The program's own state file; nil without a valid one.
    func readState() -> StateFile? {
        (try? OwnFile.read(state, limit: Self.fileBytes)).flatMap {
            try? JSONDecoder().decode(StateFile.self, from: Data($0))
        }
    }

    // MARK: Removing

    /// Removes our files and the program's. Foreign files at their paths stay.
    func removeAll() {
        guard (try? requirePrivateDirectory(directory)) != nil else { return }
        Self.removeSocket(socket)
        // Also what the program put beside its state file, and the rest of an interrupted write.
        for entry in directoryEntries(directory) where entry.hasPrefix("state.json") || entry.hasPrefix("session.json")
        {
            let path = "\(directory)/\(entry)"
            if OwnFile.isFree(path) { unlink(path) }
        }
        removeOwnTree(session)
        rmdir(directory)
        // Fails where sockets of other agents are in it.
        if parentDirectory(of: socket) != directory { rmdir(parentDirectory(of: socket)) }
    }

    private static func removeSocket(_ path: String) {
        var info = stat()
        if lstat(path, &info) == 0, isOwnSocket(info) { unlink(path) }
    }

    /// Removes the lock and the socket of the display of an ended process.
    static func removeDisplay(of pid: Int32) {
        // The number may belong to another server by now, whose lock would look the same.
        guard !ProcessHandle.isRunning(pid) else { return }
        for entry in directoryEntries("/tmp") where entry.hasPrefix(".X") && entry.hasSuffix("-lock") {
            // Any user can create files there.
            guard let number = UInt16(entry.dropFirst(2).dropLast(5)),
                let text = try? OwnFile.read("/tmp/\(entry)", limit: 64),
                Int32(String(decoding: text, as: UTF8.self).filter { !$0.isWhitespace }) == pid
            else { continue }
            // The lock last: while it exists, no other server takes the display.
            removeSocket("/tmp/.X11-unix/X\(number)")
            unlink("/tmp/\(entry)")
        }
    }

    /// Removes the socket of a display that has no server any more. Needed besides ``removeDisplay(of:)``: a server
    /// that chose its display itself (`-displayfd`) has no lock.
    static func removeSocket(ofDisplay display: String) {
        let number = display.dropFirst().prefix { $0 != "." }
        let path = "/tmp/.X11-unix/X\(number)"
        var lock = stat()
        guard UInt16(number) != nil, lstat("/tmp/.X\(number)-lock", &lock) != 0,
            !unixSockets().contains(where: { $0.path == path || $0.path == "@\(path)" })
        else { return }
        removeSocket(path)
    }

    /// The display of a running server, found by the socket on which it listens; nil when there is none.
    static func display(of pid: Int32) -> String? {
        let own = ListeningSockets.inodes(of: pid)
        let prefix = "/tmp/.X11-unix/X"
        return unixSockets().first { own.contains($0.inode) && $0.path.hasPrefix(prefix) }
            .map { ":\($0.path.dropFirst(prefix.count))" }
    }

    /// The bound unix sockets of this machine, from /proc.
    private static func unixSockets() -> [(inode: UInt64, path: Substring)] {
        // Num, RefCount, Protocol, Flags, Type, St, Inode, Path.
        (readTextFile("/proc/net/unix") ?? "").split(separator: "\n").dropFirst().compactMap { line in
            let fields = line.split(separator: " ", maxSplits: 7, omittingEmptySubsequences: true)
            guard fields.count == 8, let inode = UInt64(fields[6]) else { return nil }
            return (inode, fields[7])
        }
    }

    /// The directory that the program reports, if it may be removed: owned by us, no link, and created during this
    /// start. A program that reports a directory of the user's must not make us delete it.
    /// - Parameter started: seconds since 1970 when the program was started.
    func sessionDirectory(_ path: String?, started: Int64) -> SessionDirectory? {
        guard let path, path.hasPrefix("/"), path.split(separator: "/").count > 1,
            !path.split(separator: "/").contains(".."), !"\(directory)/".hasPrefix("\(path)/")
        else { return nil }
        var info = stat()
        guard lstat(path, &info) == 0, info.st_mode & S_IFMT == S_IFDIR, info.st_uid == geteuid() else { return nil }
        let birth = wa_birth_time(path)
        // On a file system without birth times only a directory in /tmp is accepted, and only if the last change
        // of its inode is not older than the start.
        let isFresh =
            birth >= 0
            ? birth + 1 >= started
            : parentDirectory(of: path) == "/tmp" && Int64(info.st_ctim.tv_sec) + 1 >= started
        guard isFresh else { return nil }
        return SessionDirectory(path: path, device: UInt64(info.st_dev), inode: UInt64(info.st_ino))
    }

    static func remove(_ directory: SessionDirectory) {
        var info = stat()
        guard lstat(directory.path, &info) == 0, info.st_mode & S_IFMT == S_IFDIR,
            UInt64(info.st_dev) == directory.device, UInt64(info.st_ino) == directory.inode
        else { return }
        removeOwnTree(directory.path)
    }
}

/// Removes a directory that we own, recursively. Links are removed, never followed; other file systems are not
/// entered; directories deeper than 32 levels stay. Blocks.
func removeOwnTree(_ path: String) {
    var info = stat()
    guard lstat(path, &info) == 0, info.st_mode & S_IFMT == S_IFDIR, info.st_uid == geteuid() else { return }
    removeTree(path, device: info.st_dev, depth: 0)
}

private func removeTree(_ path: String, device: dev_t, depth: Int) {
    guard depth < 32 else { return }
    for entry in directoryEntries(path) {
        let child = "\(path)/\(entry)"
        var info = stat()
        guard lstat(child, &info) == 0, info.st_dev == device else { continue }
        if info.st_mode & S_IFMT == S_IFDIR {
            removeTree(child, device: device, depth: depth + 1)
        } else {
            unlink(child)
        }
    }
    rmdir(path)
}
