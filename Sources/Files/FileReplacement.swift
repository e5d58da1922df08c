import AgentCore
import CPlatform
import Glibc
import NIOCore
import Synchronization

/// A file's new content on its way: written to a temporary file beside it, which takes its place at once and as a
/// whole. Dropped without ``commit(_:mode:)``, it leaves nothing behind. Everything here blocks on the disk, and is
/// called by one thread at a time.
final class FileReplacement: Sendable {
    /// Bytes of a temporary name besides the target's: a dot, the mark, eight digits.
    private static let nameBytes = 1 + TemporaryFiles.mark.utf8.count + 8

    private let path: String
    private let directory: OwnedDescriptor
    private let name: [UInt8]
    private let temporary: [UInt8]
    private let file: OwnedDescriptor
    private let context: FilesContext
    private let slot: Int
    /// Directories that were made for it.
    private let made: [String]
    private let isOver = Atomic<Bool>(false)
    /// Bytes written, and those of them whose way to the disk has begun.
    private let progress = Mutex((end: 0, begun: 0))

    /// Makes the missing directories and the temporary file.
    /// - Parameter path: real, as ``PathResolution`` has it.
    init(_ path: String, _ context: FilesContext, makesParents: Bool = true) throws(FilesError) {
        let parent = LexicalPath.parent(path)
        made = makesParents ? try Directories.make(parent, mask: context.fileMask) : []
        let descriptor = withPath(parent) { wa_open_directory($0) }
        guard descriptor >= 0 else { throw FilesError.system(descriptor, "open", parent) }
        directory = OwnedDescriptor(descriptor)
        self.path = path
        self.context = context
        name = PathText.bytes(LexicalPath.name(path))
        _ = try Self.present(directory.number, name, path)
        var digits = String(UInt32.random(in: 0 ... .max), radix: 16)
        digits = String(repeating: "0", count: 8 - digits.utf8.count) + digits
        // A long name is cut: the file system has room for 255 bytes.
        let kept = name.prefix(Int(NAME_MAX) - Self.nameBytes)
        temporary = [UInt8(ascii: ".")] + kept + Array(TemporaryFiles.mark.utf8) + Array(digits.utf8)
        let temporaryPath = LexicalPath.join(parent, PathText.text(temporary))
        slot = context.temporaries.record(temporaryPath)
        let number = withName(temporary) {
            wa_openat(descriptor, $0, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        }
        // After this a thrown error runs deinit, which removes the file and its record.
        file = OwnedDescriptor(number)
        if number < 0 { throw FilesError.system(number, "open", temporaryPath) }
    }

    deinit { discard() }

    /// Removes the temporary file and what was made for it, unless it has taken the other's place.
    func discard() {
        guard !isOver.exchange(true, ordering: .relaxed) else { return }
        if file.number >= 0 { _ = withName(temporary) { unlinkat(directory.number, $0, 0) } }
        context.temporaries.forget(slot)
        // Those that have got other entries since stay.
        for directory in made.reversed() where withPath(directory, { rmdir($0) }) != 0 { break }
    }

    /// Appends to the new content.
    func write(_ bytes: ByteBuffer) throws(FilesError) {
        let failure = writeAll(bytes, to: file.number)
        guard failure == 0 else { throw FilesError.system(failure, "write", path) }
        let (from, end) = progress.withLock { progress -> (Int, Int) in
            progress.end += bytes.readableBytes
            let from = progress.begun
            if progress.end - from >= FilesLimits.writebackBytes { progress.begun = progress.end }
            return (from, progress.begun)
        }
        // The disk writes while the client sends, not all of it at the end.
        if end > from { wa_begin_writeback(file.number, Int64(from), Int64(end - from)) }
    }

    /// Gives the file another's time of change.
    func keepTime(_ info: stat) throws(FilesError) {
        // The first, of the last access, is UTIME_OMIT.
        let times = [timespec(tv_sec: 0, tv_nsec: (1 << 30) - 2), info.st_mtim]
        guard futimens(file.number, times) == 0 else { throw FilesError.system(errno, "utime", path) }
    }

    /// Puts the new content in the file's place, once the disk has it.
    /// - Parameters:
    ///   - condition: checked against the file that is there now.
    ///   - mode: of the file; nil keeps the present one's, or is 0666 without the umask's bits.
    /// - Returns: what the file is now.
    func commit(_ condition: WriteCondition, mode: mode_t?) throws(FilesError) -> stat {
        let old = try Self.present(directory.number, name, path)
        try condition.check(old, path)
        let wanted: mode_t
        if let old {
            // Before the mode, since it clears the set-id bits.
            let keepsOwner = fchown(file.number, old.st_uid, old.st_gid) == 0
            let bits = old.st_mode & 0o7777
            // Set-id bits for another owner than before would be a different permission.
            wanted = mode ?? (keepsOwner ? bits : bits & 0o777)
        } else {
            wanted = mode ?? 0o666 & ~context.fileMask
        }
        guard fchmod(file.number, wanted) == 0 else { throw FilesError.system(errno, "chmod", path) }
        guard fdatasync(file.number) == 0 else { throw FilesError.system(errno, "fdatasync", path) }
        let moved = withName(temporary) { from in
            withName(name) { to in renameat(directory.number, from, directory.number, to) == 0 ? 0 : -errno }
        }
        guard moved == 0 else { throw FilesError.system(moved, "rename", path) }
        isOver.store(true, ordering: .relaxed)
        context.temporaries.forget(slot)
        var info = stat()
        guard fstat(file.number, &info) == 0 else { throw FilesError.system(errno, "stat", path) }
        return info
    }

    /// What is at the name; nil when nothing is.
    /// - Throws: ``FilesError`` for what cannot be replaced.
    private static func present(_ directory: CInt, _ name: [UInt8], _ path: String) throws(FilesError) -> stat? {
        var info = stat()
        let result = withName(name) { fstatat(directory, $0, &info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno }
        if result == -ENOENT, !name.isEmpty { return nil }
        guard result == 0 else { throw FilesError.system(name.isEmpty ? EISDIR : result, "open", path) }
        try RegularFile.requireWritable(info, path)
        return info
    }
}

/// Writes all of the bytes.
/// - Returns: 0, or the errno: a full disk, an input/output error.
func writeAll(_ bytes: ByteBuffer, to descriptor: CInt) -> CInt {
    bytes.withUnsafeReadableBytes { writeAll($0, to: descriptor) }
}

enum Directories {
    /// Makes a directory and those above it that are missing, with 0755 without the mask's bits.
    /// - Returns: those that were made, the uppermost first.
    @discardableResult
    static func make(_ path: String, mode: mode_t = 0o755, mask: mode_t) throws(FilesError) -> [String] {
        var missing: [String] = []
        var next = path
        while true {
            var info = stat()
            let result = withPath(next) { stat($0, &info) }
            if result == 0 {
                guard info.st_mode & S_IFMT == S_IFDIR else { throw FilesError.system(ENOTDIR, "mkdir", next) }
                break
            }
            guard result == -ENOENT, next != "/" else { throw FilesError.system(result, "mkdir", next) }
            missing.append(next)
            next = LexicalPath.parent(next)
        }
        for directory in missing.reversed() {
            try makeOne(directory, mode: (directory.utf8.count == path.utf8.count ? mode : 0o755) & ~mask)
        }
        return missing.reversed()
    }

    /// Makes one directory.
    /// - Parameter isNew: one that exists is an error; otherwise one that has come into being meanwhile is as good.
    static func makeOne(_ path: String, mode: mode_t, isNew: Bool = false) throws(FilesError) {
        let result = withPath(path) { mkdir($0, mode) }
        if result == -EEXIST, !isNew { return }
        guard result == 0 else { throw FilesError.system(result, "mkdir", path) }
        // The daemon's own umask is stricter than the one that counts here.
        _ = withPath(path) { fchmodat(AT_FDCWD, $0, mode, 0) }
    }
}
