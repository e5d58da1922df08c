import AgentCore
import CPlatform
import Glibc

/// Finds the files that a pattern matches, in the order of the bytes of their paths. Linked directories are not
/// entered; directories that cannot be read have no files. Used by one thread at a time.
struct GlobWalk {
    private struct Entry {
        var name: [UInt8]
        var isDirectory: Bool
    }

    private struct Level {
        var path: [UInt8]
        var place: GlobPattern.Place
        /// In reverse order.
        var entries: [Entry]
    }

    enum Step {
        case match([UInt8])
        /// It needs another step.
        case nothing
    }

    private let pattern: GlobPattern
    private var levels: [Level] = []

    /// - Parameter pattern: of absolute paths.
    init(_ pattern: GlobPattern) {
        self.pattern = pattern
        let directory = pattern.directory == [UInt8(ascii: "/")] ? [] : pattern.directory
        if let place = directory.withUnsafeBytes({ pattern.entering($0, in: pattern.start) }) {
            enter(directory, place, follows: true)
        }
    }

    /// - Returns: nil at the end.
    mutating func step() -> Step? {
        guard let last = levels.indices.last else { return nil }
        guard let entry = levels[last].entries.popLast() else {
            levels.removeLast()
            return .nothing
        }
        let (directory, place) = (levels[last].path, levels[last].place)
        let path = directory + [UInt8(ascii: "/")] + entry.name
        if !entry.isDirectory {
            return entry.name.withUnsafeBytes { pattern.matches($0, in: place) } ? .match(path) : .nothing
        }
        if let inside = entry.name.withUnsafeBytes({ pattern.entering($0, in: place) }) { enter(path, inside) }
        return .nothing
    }

    private mutating func enter(_ path: [UInt8], _ place: GlobPattern.Place, follows: Bool = false) {
        let flags = O_RDONLY | O_DIRECTORY | (follows ? 0 : O_NOFOLLOW)
        let opened = withName(path.isEmpty ? [UInt8(ascii: "/")] : path) { wa_open($0, flags, 0) }
        guard opened >= 0 else { return }
        guard let stream = try? DirectoryStream(opened, "") else { return }
        var entries: [Entry] = []
        while let name = try? stream.next("") {
            if let entry = Self.entry(name, in: opened) { entries.append(entry) }
        }
        // By whole paths: those in a directory have a slash behind its name.
        entries.sort { Self.key($1).lexicographicallyPrecedes(Self.key($0)) }
        levels.append(Level(path: path, place: place, entries: entries))
    }

    private static func key(_ entry: Entry) -> [UInt8] {
        entry.isDirectory ? entry.name + [UInt8(ascii: "/")] : entry.name
    }

    /// - Returns: nil for a link to a directory.
    private static func entry(_ name: [UInt8], in directory: CInt) -> Entry? {
        var info = stat()
        guard withName(name, { fstatat(directory, $0, &info, AT_SYMLINK_NOFOLLOW) }) == 0 else { return nil }
        let isDirectory = info.st_mode & S_IFMT == S_IFDIR
        if info.st_mode & S_IFMT == S_IFLNK, withName(name, { fstatat(directory, $0, &info, 0) }) == 0,
            info.st_mode & S_IFMT == S_IFDIR
        {
            return nil
        }
        return Entry(name: name, isDirectory: isDirectory)
    }
}
