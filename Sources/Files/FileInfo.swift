import AgentCore
import FoundationEssentials
import Glibc

/// What a path is; of a symbolic link, the link itself. Blocks on the disk.
struct FileInfo: Encodable {
    struct Owner: Encodable {
        var uid: UInt32
        var gid: UInt32
        /// nil where the machine has no name for the number.
        var user: String?
        var group: String?
    }

    var path: String
    /// file, directory, symlink, fifo, socket, block_device or char_device.
    var type: String
    /// In bytes.
    var size: Int64
    /// Octal.
    var mode: String
    var owner: Owner
    /// RFC 3339, in UTC, with nanoseconds.
    var modified_at: String
    /// Of a regular file.
    var etag: String?
    /// Of a symbolic link, what it says.
    var target: String?
    /// Of a regular file, by its name.
    var mime: String?
    /// Of a regular file that can be read: whether its first 8 KiB have a NUL.
    var binary: Bool?

    init(_ path: String) throws(FilesError) {
        var info = stat()
        let result = withPath(path) { lstat($0, &info) }
        guard result == 0 else { throw FilesError.system(result, "stat", path) }
        self.path = path
        type = Self.type(info.st_mode)
        size = Int64(info.st_size)
        mode = FileMode.text(info.st_mode)
        owner = Owner(
            uid: info.st_uid, gid: info.st_gid, user: UserAccount.find(info.st_uid)?.name,
            group: Self.groupName(info.st_gid))
        modified_at = Self.time(info.st_mtim)
        switch info.st_mode & S_IFMT {
        case S_IFLNK: target = try readLink(path)
        case S_IFREG:
            etag = EntityTag.of(info)
            mime = MediaType.of(path)
            binary = Self.isBinary(path)
        default: break
        }
    }

    private static func isBinary(_ path: String) -> Bool? {
        guard let file = try? RegularFile(path), let head = try? file.read(at: 0, count: 8 << 10, path) else {
            return nil
        }
        return head.readableBytesView.contains(0)
    }

    private static func type(_ mode: mode_t) -> String {
        switch mode & S_IFMT {
        case S_IFREG: "file"
        case S_IFDIR: "directory"
        case S_IFLNK: "symlink"
        case S_IFIFO: "fifo"
        case S_IFSOCK: "socket"
        case S_IFBLK: "block_device"
        default: "char_device"
        }
    }

    private static func time(_ time: timespec) -> String {
        let seconds = Date(timeIntervalSince1970: Double(time.tv_sec)).ISO8601Format().dropLast()
        let nanoseconds = String(time.tv_nsec)
        return "\(seconds).\(String(repeating: "0", count: max(0, 9 - nanoseconds.utf8.count)))\(nanoseconds)Z"
    }

    private static func groupName(_ id: gid_t) -> String? {
        var (entry, found) = (Glibc.group(), UnsafeMutablePointer<Glibc.group>?.none)
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16 << 10) { area in
            guard let base = area.baseAddress, getgrgid_r(id, &entry, base, area.count, &found) == 0 else { return nil }
            return found?.pointee.gr_name.map { String(cString: $0) }
        }
    }
}
