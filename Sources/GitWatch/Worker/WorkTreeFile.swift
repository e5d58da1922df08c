import AgentCore
import CPlatform
import Glibc

/// Reads of the work tree that cannot hang or grow: no devices, no pipes, a limit on bytes.
enum WorkTreeFile {
    /// Opens a regular file; nil when there is none. The caller closes the descriptor.
    /// - Parameter follow: symbolic links.
    static func open(_ path: [CChar], follow: Bool = false) -> (descriptor: CInt, info: stat)? {
        var info = stat()
        // A device may act when it is opened, so it is not.
        guard (follow ? stat(path, &info) : lstat(path, &info)) == 0, info.st_mode & S_IFMT == S_IFREG else {
            return nil
        }
        let fd = wa_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW), 0)
        guard fd >= 0 else { return nil }
        guard fstat(fd, &info) == 0, info.st_mode & S_IFMT == S_IFREG else {
            close(fd)
            return nil
        }
        return (fd, info)
    }

    /// nil when there is no regular file any more.
    static func content(_ path: [CChar], limit: Int, follow: Bool = false) -> DiffText.Side.Content? {
        guard let (fd, info) = open(path, follow: follow) else { return nil }
        defer { close(fd) }
        if info.st_size > limit { return .tooLarge(Int(info.st_size)) }
        var bytes = [UInt8](unsafeUninitializedCapacity: Int(info.st_size) + 1) { area, count in
            count = max(0, wa_read(fd, area.baseAddress, area.count))
        }
        // It may grow while it is read, and short reads are allowed.
        var more = [UInt8](repeating: 0, count: 64 << 10)
        while bytes.count <= limit {
            let count = wa_read(fd, &more, more.count)
            if count <= 0 { break }
            bytes += more.prefix(count)
        }
        return bytes.count > limit ? .tooLarge(bytes.count) : .bytes(bytes)
    }

    static func link(_ path: [CChar]) -> [UInt8]? {
        var target = [CChar](repeating: 0, count: 4096)
        let count = readlink(path, &target, target.count)
        return count < 0 ? nil : target.prefix(count).map { UInt8(bitPattern: $0) }
    }
}

/// The files that git and libgit2 open by themselves, and would wait at when they are FIFOs or devices.
enum GitFiles {
    /// In the git directory of a work tree.
    static let own = ["commondir", "index", "config.worktree", "info/sparse-checkout"]
    /// In the directory that linked work trees share.
    private static let common = [
        "config", "packed-refs", "shallow", "info/exclude", "info/attributes", "info/grafts", "objects/info/alternates",
    ]
    private static let tree = [".gitignore", ".gitattributes"]
    /// Replacements that are looked at; git reads them all.
    private static let replacements = 1_000

    static func all(_ work: WorkTree, branch: String) -> [String] {
        let replace = "\(work.commonDirectory)/refs/replace"
        var all = common.map { "\(work.commonDirectory)/\($0)" } + tree.map { "\(work.root)/\($0)" }
        all += directoryEntries(replace).prefix(replacements).map { "\(replace)/\($0)" }
        if !branch.isEmpty { all.append("\(work.commonDirectory)/refs/heads/\(branch)") }
        return all
    }

    /// - Throws: `.failed` with the path of the first that is there and would be waited at.
    static func check(_ paths: [String]) throws(ScanError) {
        for path in paths {
            var info = stat()
            guard stat(path, &info) == 0 else { continue }
            let what: String
            switch info.st_mode & S_IFMT {
            case S_IFIFO: what = "a named pipe"
            case S_IFCHR, S_IFBLK: what = "a device"
            default: continue
            }
            throw ScanError(.failed, "\(path) is \(what), which git would wait at; remove it")
        }
    }
}
