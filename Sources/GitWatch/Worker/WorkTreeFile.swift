import CPlatform
import Glibc

/// Reads of the work tree that cannot hang or grow: no devices, no pipes, a limit on bytes.
enum WorkTreeFile {
    /// nil when there is no regular file any more.
    static func content(_ path: [CChar], limit: Int) -> DiffText.Side.Content? {
        let fd = wa_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0)
        guard fd >= 0 else { return nil }
        defer { close(fd) }
        var info = stat()
        guard fstat(fd, &info) == 0, info.st_mode & S_IFMT == S_IFREG else { return nil }
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

/// Finds the directories to watch.
enum WorkTreeWalk {
    /// All directories below the given ones (all of the work tree when empty), themselves included, except
    /// ignored ones, `.git` and repositories of their own. Stops one past the limit.
    static func directories(
        _ root: String, below tops: [GitPath], limit: Int, isIgnored: (GitPath) throws -> Bool
    ) throws -> [GitPath] {
        var found: [GitPath] = []
        var waiting: [GitPath] = tops.isEmpty ? [[]] : tops
        while let directory = waiting.popLast(), found.count <= limit {
            if !directory.isEmpty {
                var info = stat()
                guard lstat(directory.below(root), &info) == 0, info.st_mode & S_IFMT == S_IFDIR,
                    lstat((directory + Array("/.git".utf8)).below(root), &info) != 0, try !isIgnored(directory)
                else { continue }
            }
            guard let stream = opendir(directory.below(root)) else { continue }
            defer { closedir(stream) }
            found.append(directory)
            while let entry = readdir(stream) {
                let type = entry.pointee.d_type
                guard type == UInt8(DT_DIR) || type == UInt8(DT_UNKNOWN) else { continue }
                let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
                if name == [46] || name == [46, 46] || name == Array(".git".utf8) { continue }
                waiting.append(directory.isEmpty ? name : directory + [UInt8(ascii: "/")] + name)
            }
        }
        return found
    }
}
