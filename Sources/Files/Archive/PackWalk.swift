import AgentCore
import Glibc

/// Goes through a tree for an archive: a directory before what is in it, names in the order of their bytes. Links are
/// not followed; FIFOs, devices and sockets are passed over. Used by one thread at a time.
struct PackWalk {
    enum Item {
        /// With the name below the root; that of the root is empty. A file's content is at that path.
        case entry(TarEntry)
        /// What may not be read. Of a directory, the entry came before.
        case unreadable([UInt8], errno: CInt)
    }

    private struct Level {
        var path: [UInt8]
        /// In reverse order.
        var entries: [TarEntry]
    }

    private let root: OpenDirectory
    /// For messages.
    private let path: String
    private let limits: ArchiveLimits
    private var levels: [Level] = []
    /// A directory whose entries have yet to be read.
    private var next: [UInt8]?
    private var isBegun = false
    private var entries = 0

    init(_ root: OpenDirectory, path: String, limits: ArchiveLimits) {
        (self.root, self.path, self.limits) = (root, path, limits)
    }

    /// - Returns: nil at the end.
    /// - Throws: ``FilesError`` `.tooLarge` beyond the limit of entries.
    mutating func step() throws(FilesError) -> Item? {
        if !isBegun {
            isBegun = true
            next = []
            entries = 1
            var info = stat()
            guard fstat(root.number, &info) == 0 else { throw FilesError.system(errno, "stat", path) }
            return .entry(Self.entry([], .directory, info))
        }
        if let path = next {
            next = nil
            if let number = try list(path) { return .unreadable(path, errno: number) }
        }
        while let level = levels.indices.last {
            guard var entry = levels[level].entries.popLast() else {
                levels.removeLast()
                continue
            }
            let path = levels[level].path
            if !path.isEmpty { entry.name = path + [UInt8(ascii: "/")] + entry.name }
            if entry.kind == .directory { next = entry.name }
            return .entry(entry)
        }
        return nil
    }

    /// Reads the entries of a directory.
    /// - Returns: an errno when it may not be read. One that has gone is empty.
    private mutating func list(_ path: [UInt8]) throws(FilesError) -> CInt? {
        let opened = root.open(path.isEmpty ? [UInt8(ascii: ".")] : path, O_RDONLY | O_DIRECTORY)
        guard opened >= 0 else {
            switch -opened {
            case ENOENT, ENOTDIR, ELOOP: return nil
            case let number: return number
            }
        }
        let stream = try DirectoryStream(opened, place(path))
        var found: [TarEntry] = []
        while let name = try stream.next(place(path)) {
            guard let entry = Self.entry(name, in: opened) else { continue }
            entries += 1
            guard entries <= limits.entries else { throw limits.tooManyEntries }
            found.append(entry)
        }
        found.sort { $1.name.lexicographicallyPrecedes($0.name) }
        levels.append(Level(path: path, entries: found))
        return nil
    }

    private func place(_ name: [UInt8]) -> String {
        name.isEmpty ? path : LexicalPath.join(path, PathText.text(name))
    }

    /// - Returns: nil for what has gone and what archives do not have.
    private static func entry(_ name: [UInt8], in directory: CInt) -> TarEntry? {
        var info = stat()
        guard withName(name, { fstatat(directory, $0, &info, AT_SYMLINK_NOFOLLOW) }) == 0 else { return nil }
        switch info.st_mode & S_IFMT {
        case S_IFREG: return entry(name, .file, info)
        case S_IFDIR: return entry(name, .directory, info)
        case S_IFLNK:
            var target = [UInt8](repeating: 0, count: Int(PATH_MAX))
            let count = target.withUnsafeMutableBytes { area in
                withName(name) { name in
                    let base = area.baseAddress?.assumingMemoryBound(to: CChar.self)
                    return base.map { CInt(readlinkat(directory, name, $0, area.count)) } ?? -EINVAL
                }
            }
            guard count > 0 else { return nil }
            var link = entry(name, .symbolicLink, info)
            link.target = Array(target.prefix(Int(count)))
            return link
        default: return nil
        }
    }

    static func entry(_ name: [UInt8], _ kind: TarEntry.Kind, _ info: stat) -> TarEntry {
        TarEntry(
            kind: kind, name: name, size: kind == .file ? Int(info.st_size) : 0, mode: info.st_mode & 0o7777,
            seconds: info.st_mtim.tv_sec, user: Int(info.st_uid), group: Int(info.st_gid))
    }
}
