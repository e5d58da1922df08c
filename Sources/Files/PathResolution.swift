import AgentCore
import Glibc

/// Where a path really leads, also that of a file that is yet to be made (docs/contracts/files.md#resolve-path). Blocks
/// on the disk.
struct PathResolution {
    private var links = 0

    /// - Parameter path: absolute.
    /// - Returns: the clean path without links; components that are missing are kept as they are.
    /// - Throws: ``FilesError``.
    static func resolve(_ path: String) throws(FilesError) -> String {
        var resolution = PathResolution()
        return try resolution.resolve(LexicalPath.clean(path))
    }

    /// Where the entry itself is: links are resolved but for the last component.
    static func resolveEntry(_ path: String) throws(FilesError) -> String {
        let clean = LexicalPath.clean(path)
        guard clean != "/" else { return clean }
        return LexicalPath.join(try resolve(LexicalPath.parent(clean)), LexicalPath.name(clean))
    }

    /// As ``resolve(_:)``, for a file to be written or edited: says what was being done.
    static func resolveTarget(_ path: String) throws(FilesError) -> String {
        do throws(FilesError) {
            return try resolve(path)
        } catch {
            throw FilesError(error.code, "resolve symlink \(quoted(path)): \(error.message)")
        }
    }

    private mutating func resolve(_ start: String) throws(FilesError) -> String {
        var path = start
        // The names behind the path, last first.
        var tail: [String] = []
        while path != "/" {
            guard links <= FilesLimits.links else {
                throw FilesError(.invalid, "too many levels of symlinks resolving \(quoted(path))")
            }
            var info = stat()
            let result = withPath(path) { lstat($0, &info) }
            guard result == 0 || result == -ENOENT else { throw FilesError.system(result, "lstat", path) }
            if result == 0, info.st_mode & S_IFMT == S_IFLNK {
                links += 1
                path = try target(of: path)
            } else {
                tail.append(LexicalPath.name(path))
                path = LexicalPath.parent(path)
            }
        }
        return "/" + tail.reversed().joined(separator: "/")
    }

    private mutating func target(of link: String) throws(FilesError) -> String {
        let target = try readLink(link)
        if LexicalPath.isAbsolute(target) { return LexicalPath.clean(target) }
        var directory = LexicalPath.parent(link)
        // What is above a directory is told by where it really is.
        if LexicalPath.elements(target).contains("..") { directory = try resolve(directory) }
        return LexicalPath.clean(LexicalPath.join(directory, target))
    }
}

/// What a symbolic link says.
func readLink(_ path: String) throws(FilesError) -> String {
    var area = [UInt8](repeating: 0, count: Int(PATH_MAX))
    let result = withPath(path) { name in
        area.withUnsafeMutableBytes { area in
            let base = area.baseAddress?.assumingMemoryBound(to: CChar.self)
            return base.map { CInt(readlink(name, $0, area.count)) } ?? -EINVAL
        }
    }
    guard result >= 0 else { throw FilesError.system(result, "readlink", path) }
    return PathText.text(area.prefix(Int(result)))
}

/// The path in quotes, as messages of the contract have it.
func quoted(_ path: String) -> String { goQuoted(utf8: PathText.bytes(path)) }

/// - Throws: ``FilesError`` for a path that is not absolute.
func requireAbsolute(_ path: String) throws(FilesError) {
    guard LexicalPath.isAbsolute(path) else {
        throw FilesError(.invalid, "file path must be absolute: \(quoted(path))")
    }
}
