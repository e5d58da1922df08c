import AgentCore
import CPlatform
import Glibc

/// Gives a file, link or directory another name. Blocks on the disk.
enum FileMove {
    /// - Parameters:
    ///   - overwrites: whether a file at the new name is replaced; a directory never is, unless it is empty and
    ///     replaced by one.
    /// - Throws: ``FilesError``: `.conflict` when something is in the way.
    static func run(_ from: String, _ to: String, overwrites: Bool, _ files: FilesContext) throws(FilesError) {
        let (from, to) = (LexicalPath.clean(from), LexicalPath.clean(to))
        guard from != "/", to != "/" else { throw FilesError(.invalid, "rename \(from): the root cannot be moved") }
        let result = withPath(from) { old in
            withPath(to) { new in overwrites ? (rename(old, new) == 0 ? 0 : -errno) : wa_rename_new(old, new) }
        }
        switch result {
        case 0: return
        case -EXDEV: try copy(from, to, overwrites: overwrites, files)
        case -EEXIST, -ENOTEMPTY, -EISDIR: throw inTheWay(to)
        case -ENOTDIR where isThere(to): throw inTheWay(to)
        case -EINVAL where LexicalPath.isWithin(to, from):
            throw FilesError(.invalid, "rename \(from): a directory cannot be moved into itself (\(to))")
        default: throw FilesError.system(result, "rename", isThere(from) ? to : from)
        }
    }

    private static func inTheWay(_ path: String) -> FilesError {
        FilesError(.conflict, "\(path) exists; set overwrite to replace a file, or remove it first")
    }

    private static func isThere(_ path: String) -> Bool {
        var info = stat()
        return withPath(path) { lstat($0, &info) } == 0
    }

    /// Between file systems: a copy that takes the name at once, then the old name goes.
    private static func copy(
        _ from: String, _ to: String, overwrites: Bool, _ files: FilesContext
    ) throws(FilesError) {
        var info = stat()
        var result = withPath(from) { lstat($0, &info) }
        guard result == 0 else { throw FilesError.system(result, "stat", from) }
        guard info.st_mode & S_IFMT == S_IFREG else {
            throw FilesError(
                .invalid,
                "rename \(from): it is not a regular file and \(to) is on another file system; "
                    + "copy it there with archive and delete it")
        }
        let condition = WriteCondition(noneMatch: overwrites ? nil : "*")
        let file = try RegularFile(from)
        let copy = try FileReplacement(to, files, isMove: true)
        do throws(FilesError) {
            var position = 0
            while case let piece = try file.read(at: position, count: FilesLimits.chunkBytes, from),
                piece.readableBytes > 0
            {
                position += piece.readableBytes
                try copy.write(piece)
            }
            try copy.keepTime(file.info)
            do throws(FilesError) {
                _ = try copy.commit(condition, mode: info.st_mode & 0o7777)
            } catch {
                throw error.code == .changed ? inTheWay(to) : error
            }
        } catch {
            copy.discard()
            throw error
        }
        result = withPath(from) { unlink($0) }
        guard result == 0 else { throw FilesError.system(result, "remove", from) }
    }
}
