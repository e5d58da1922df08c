import CPlatform
import Glibc

/// Files that belong to this daemon, in directories where other users may have put something else under
/// their names: a FIFO that would hold the thread, a link to another file, a device, a file of their own.
///
/// Nothing is followed or waited for: the file must be regular, owned by this user and have one name, and
/// it is looked at again once it is open. Everything here blocks on the disk.
public enum OwnFile {
    /// Opens a file of ours.
    /// - Parameters:
    ///   - flags: access mode, `O_CREAT`, `O_EXCL`, `O_APPEND`; `O_TRUNC` would act before the look, and
    ///     is left out.
    ///   - mode: of a file that is created.
    /// - Returns: a close-on-exec descriptor that the caller closes.
    /// - Throws: ``CoreError`` that names the path: `.pathOccupied` where something else lies there.
    public static func open(_ path: String, _ flags: CInt, mode: mode_t = 0o600) throws(CoreError) -> CInt {
        var info = stat()
        // A device may act when it is opened, so it is not.
        if lstat(path, &info) == 0, let problem = problem(info) {
            throw CoreError(.pathOccupied, "\(path) \(problem); remove it or choose another path")
        }
        let safe = flags & ~O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
        let descriptor = wa_open(path, safe, UInt32(mode))
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot open \(path)") }
        guard fstat(descriptor, &info) == 0, let problem = problem(info) else { return descriptor }
        close(descriptor)
        throw CoreError(.pathOccupied, "\(path) \(problem); remove it or choose another path")
    }

    /// The bytes of a file of ours.
    /// - Parameter limit: bytes; a larger file is an error.
    public static func read(_ path: String, limit: Int) throws(CoreError) -> [UInt8] {
        let descriptor = try open(path, O_RDONLY)
        defer { close(descriptor) }
        return try readAll(descriptor, path, limit)
    }

    /// The end of a file of ours, from the beginning of a line.
    /// - Parameter bytes: the most that are read.
    public static func tail(_ path: String, bytes: Int) throws(CoreError) -> [UInt8] {
        let descriptor = try open(path, O_RDONLY)
        defer { close(descriptor) }
        let start = max(0, Int(lseek(descriptor, 0, SEEK_END)) - bytes)
        guard lseek(descriptor, off_t(start), SEEK_SET) >= 0 else {
            throw CoreError.system(errno, "cannot read \(path)")
        }
        var area = [UInt8](repeating: 0, count: bytes)
        var count = 0
        while count < bytes {
            let step = area.withUnsafeMutableBytes { area in
                wa_read(descriptor, area.baseAddress.map { $0 + count }, bytes - count)
            }
            guard step >= 0 else { throw CoreError.system(Int32(step), "cannot read \(path)") }
            if step == 0 { break }
            count += Int(step)
        }
        let read = area[..<count]
        guard start > 0, let newline = read.firstIndex(of: UInt8(ascii: "\n")) else { return Array(read) }
        return Array(read[(newline + 1)...])
    }

    /// Puts a file with these bytes in the place, whatever file or link is there: readers see the old or the
    /// new one, never half of one.
    /// - Parameters:
    ///   - mode: of the new file, whatever the umask.
    ///   - flush: return only once the disk has the bytes.
    public static func replace(
        _ path: String, with bytes: [UInt8], mode: mode_t = 0o600, flush: Bool = false
    ) throws(CoreError) {
        let temporary = "\(path).\(UInt64.random(in: 0 ... .max)).tmp"
        let descriptor = try open(temporary, O_WRONLY | O_CREAT | O_EXCL)
        do throws(CoreError) {
            defer { close(descriptor) }
            let failure = bytes.withUnsafeBytes { writeAll($0, to: descriptor) }
            guard failure == 0 else { throw CoreError.system(failure, "cannot write \(path)") }
            guard fchmod(descriptor, mode) == 0 else { throw CoreError.system(errno, "cannot set the mode of \(path)") }
            if flush, fsync(descriptor) != 0 { throw CoreError.system(errno, "cannot flush \(path) to disk") }
            guard rename(temporary, path) == 0 else { throw CoreError.system(errno, "cannot replace \(path)") }
        } catch {
            unlink(temporary)
            throw error
        }
    }

    /// Reads a file that a person named (a token, a manifest). It may be a link or belong to root, as a
    /// mounted secret does; other users' files and links are refused, and what is not a regular file.
    /// - Parameter limit: bytes; a larger file is an error.
    /// - Returns: the bytes, and whether the file's mode lets other users read or change it.
    public static func readNamed(
        _ path: String, limit: Int
    ) throws(CoreError) -> (bytes: [UInt8], isOpenToOthers: Bool) {
        var info = stat()
        guard lstat(path, &info) == 0 else { throw CoreError.system(errno, "cannot read \(path)") }
        try trust(info.st_uid, path)
        guard stat(path, &info) == 0 else { throw CoreError.system(errno, "cannot read \(path)") }
        try requireRegular(info, path)
        let descriptor = wa_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0)
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot read \(path)") }
        defer { close(descriptor) }
        guard fstat(descriptor, &info) == 0 else { throw CoreError.system(errno, "cannot read \(path)") }
        try requireRegular(info, path)
        try trust(info.st_uid, path)
        let bytes = try readAll(descriptor, path, limit)
        return (bytes, info.st_mode & 0o077 != 0)
    }

    /// Whether the place is free for a file of ours, or has one.
    public static func isFree(_ path: String) -> Bool {
        var info = stat()
        guard lstat(path, &info) == 0 else { return errno == ENOENT }
        return problem(info) == nil
    }

    /// What keeps this from being a file of ours, as the end of a sentence; nil when nothing does.
    private static func problem(_ info: stat) -> String? {
        if let kind = kind(info) { return "is \(kind), not a file of this daemon" }
        guard info.st_uid == geteuid() else {
            return "belongs to uid \(info.st_uid), not to uid \(geteuid())"
        }
        // Another name may lie where others can read or replace it.
        return info.st_nlink > 1 ? "has \(info.st_nlink) names (hard links)" : nil
    }

    /// What the file is, unless it is a regular one.
    private static func kind(_ info: stat) -> String? {
        switch info.st_mode & S_IFMT {
        case S_IFREG: nil
        case S_IFDIR: "a directory"
        case S_IFLNK: "a symbolic link"
        case S_IFIFO: "a named pipe"
        case S_IFSOCK: "a socket"
        default: "a device"
        }
    }

    private static func requireRegular(_ info: stat, _ path: String) throws(CoreError) {
        if let kind = kind(info) { throw CoreError(.pathOccupied, "\(path) is \(kind), not a regular file") }
    }

    private static func trust(_ owner: uid_t, _ path: String) throws(CoreError) {
        guard owner == geteuid() || owner == 0 else {
            throw CoreError(.pathOccupied, "\(path) belongs to uid \(owner), who is neither root nor uid \(geteuid())")
        }
    }

    private static func readAll(_ descriptor: CInt, _ path: String, _ limit: Int) throws(CoreError) -> [UInt8] {
        var bytes: [UInt8] = []
        var area = [UInt8](repeating: 0, count: min(limit + 1, 64 << 10))
        while case let count = wa_read(descriptor, &area, area.count), count != 0 {
            guard count > 0 else { throw CoreError.system(Int32(count), "cannot read \(path)") }
            bytes += area[..<count]
            guard bytes.count <= limit else { throw CoreError(.invalid, "\(path) is larger than \(limit) bytes") }
        }
        return bytes
    }
}
