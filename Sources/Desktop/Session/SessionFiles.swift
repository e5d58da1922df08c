import AgentCore
import CPlatform
import FoundationEssentials
import Glibc

/// What a desktop leaves on disk: where it is, what is written there, and how it is removed. Everything here
/// blocks.
struct SessionFiles: Sendable {
    /// Of our own, 0700, in the state directory.
    let directory: String
    /// The unix socket of the VNC server.
    let socket: String
    /// Where the program keeps its state; private, so that a desktop of the user's own is never touched.
    let state: String
    /// What we remember of the desktop for our next life.
    let record: String

    init(stateDirectory: String) {
        directory = "\(stateDirectory)/desktop"
        state = "\(directory)/state.json"
        record = "\(directory)/session.json"
        let socket = "\(directory)/rfb.sock"
        // A path that a socket's address cannot hold, or that would end at a comma in a list of arguments,
        // gets a short name elsewhere, the same in each life.
        self.socket =
            socket.utf8.count <= wa_unix_path_max() && !socket.contains(",")
            ? socket : "/tmp/workspace-agent-\(geteuid())/desktop-\(String(Self.hash(stateDirectory), radix: 36)).sock"
    }

    // FNV-1a: Swift's own hash is another one in each life.
    private static func hash(_ text: String) -> UInt64 {
        text.utf8.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    }

    /// Creates the directories.
    func prepare() throws {
        for path in Set([directory, parentDirectory(of: socket)]) {
            try createDirectories(path, mode: 0o700)
            try requirePrivateDirectory(path)
        }
    }

    var hasSocket: Bool {
        var info = stat()
        return lstat(socket, &info) == 0 && info.st_mode & S_IFMT == S_IFSOCK
    }

    // MARK: The record

    struct Record: Codable, Equatable {
        /// Another boot makes every process a stranger.
        var boot: String
        /// Seconds since 1970 when the program was started.
        var began: Int64
        /// nil until the program has told.
        var desktop: Desktop?
    }

    struct Desktop: Codable, Equatable {
        var xvnc: ProcessIdentity
        var openbox: ProcessIdentity?
        var display: String
        var vncPort: Int
        var since: Int64
        var sessionDirectory: SessionDirectory?
    }

    /// The program's own directory, by what cannot be somebody else's by accident.
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
        let temporary = "\(record).new"
        unlink(temporary)
        let descriptor = wa_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot create \(temporary)") }
        let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
        close(descriptor)
        guard count == bytes.count, rename(temporary, record) == 0 else {
            let number = errno
            unlink(temporary)
            throw CoreError.system(number, "cannot write \(record)")
        }
    }

    func readRecord() -> Record? {
        readFile(record).flatMap { try? JSONDecoder().decode(Record.self, from: Data($0)) }
    }

    /// What the program itself wrote down, when it did.
    func readState() -> UpReport? { readFile(state).flatMap { try? UpReport.find(in: $0) } }

    // MARK: Removing

    /// Removes our files, the program's state among them.
    func removeAll() {
        for path in [socket, state, record, "\(record).new"] { unlink(path) }
        // What else the program put beside its state file.
        for entry in directoryEntries(directory) where entry.hasPrefix("state.json") { unlink("\(directory)/\(entry)") }
        rmdir(directory)
    }

    /// Removes lock and socket of the display that the ended process had.
    static func removeDisplay(of pid: Int32) {
        // By now the number may be that of another server, whose lock would look the same.
        guard !ProcessHandle.isRunning(pid) else { return }
        for entry in directoryEntries("/tmp") where entry.hasPrefix(".X") && entry.hasSuffix("-lock") {
            guard let number = Int(entry.dropFirst(2).dropLast(5)), let text = readTextFile("/tmp/\(entry)"),
                Int32(text.filter { !$0.isWhitespace }) == pid
            else { continue }
            // The lock last: while it is there, nobody else takes the number.
            unlink("/tmp/.X11-unix/X\(number)")
            unlink("/tmp/\(entry)")
        }
    }

    /// Removes the socket of a display that has no server any more. Beside ``removeDisplay(of:)``: a server that
    /// chose its number itself (`-displayfd`) has no lock.
    static func removeSocket(ofDisplay display: String) {
        let number = display.dropFirst().prefix { $0 != "." }
        let path = "/tmp/.X11-unix/X\(number)"
        guard UInt16(number) != nil, access("/tmp/.X\(number)-lock", F_OK) != 0,
            !unixSockets().contains(where: { $0.path == path || $0.path == "@\(path)" })
        else { return }
        unlink(path)
    }

    /// The display that a running server keeps, by the socket on which it listens; nil when there is none.
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

    /// The directory that the program tells of, if it is one that may be removed: ours, no link, and made
    /// by the very start that tells of it. A program that names a directory of the user's must not lead to
    /// its loss.
    /// - Parameter started: seconds since 1970 when the program was started.
    func sessionDirectory(_ path: String?, started: Int64) -> SessionDirectory? {
        guard let path, path.hasPrefix("/"), path.split(separator: "/").count > 1,
            !path.split(separator: "/").contains(".."), !"\(directory)/".hasPrefix("\(path)/")
        else { return nil }
        var info = stat()
        guard lstat(path, &info) == 0, info.st_mode & S_IFMT == S_IFDIR, info.st_uid == geteuid() else { return nil }
        let birth = wa_birth_time(path)
        // A file system without birth times: then only where temporary directories are made, and only if the
        // last change of the inode is no older either.
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
        removeTree(directory.path, device: info.st_dev, depth: 0)
    }

    /// Follows no link and leaves the file system never.
    private static func removeTree(_ path: String, device: dev_t, depth: Int) {
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
}
