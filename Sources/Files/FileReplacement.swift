import AgentCore
import CPlatform
import Glibc
import NIOCore
import Synchronization

/// How a file was written, and what it is now.
struct WrittenFile: Sendable {
    var info: stat
    /// Its bytes were overwritten where they are, since no other file can take its name.
    var isInPlace = false
    /// It could not keep its owner or group.
    var losesOwner = false
    /// It could not keep its set-id bits.
    var losesMode = false
}

/// A file's new content on its way: written to a temporary file beside it, which takes its place at once and as a
/// whole. Where no file can be made beside it, or none can take its name (it is a mount), its bytes are overwritten at
/// the end. Dropped without ``commit(_:mode:)``, it leaves nothing behind. Everything here blocks on the disk, and is
/// called by one thread at a time.
final class FileReplacement: Sendable {
    /// Bytes of a temporary name besides the target's: a dot, the mark, eight digits.
    private static let nameBytes = 1 + TemporaryFiles.mark.utf8.count + 8

    private let path: String
    private let directory: OwnedDescriptor
    private let name: [UInt8]
    /// Its name in the directory; nil when it could not be made there and has none.
    private let temporary: [UInt8]?
    private let file: OwnedDescriptor
    private let context: FilesContext
    private let slot: Int
    /// May overwrite the file, and does not write one that is read-only.
    private let writes: Bool
    /// Directories that were made for it.
    private let made: [String]
    private let isOver = Atomic<Bool>(false)
    /// Bytes written, and those of them whose way to the disk has begun.
    private let progress = Mutex((end: 0, begun: 0))

    /// Makes the missing directories and the temporary file.
    /// - Parameters:
    ///   - path: real, as ``PathResolution`` has it.
    ///   - isMove: of another file to this name: it takes the name whatever the mode of the file that has it, or fails.
    init(_ path: String, _ context: FilesContext, isMove: Bool = false) throws(FilesError) {
        let parent = LexicalPath.parent(path)
        made = isMove ? [] : try Directories.make(parent, mask: context.fileMask)
        let descriptor = withPath(parent) { wa_open_directory($0) }
        guard descriptor >= 0 else { throw FilesError.system(descriptor, "open", parent) }
        directory = OwnedDescriptor(descriptor)
        self.path = path
        self.context = context
        writes = !isMove
        name = PathText.bytes(LexicalPath.name(path))
        let old = try Self.present(directory.number, name, path, writes: writes)
        var digits = String(UInt32.random(in: 0 ... .max), radix: 16)
        digits = String(repeating: "0", count: 8 - digits.utf8.count) + digits
        // A long name is cut: the file system has room for 255 bytes.
        let kept = name.prefix(Int(NAME_MAX) - Self.nameBytes)
        let temporary = [UInt8(ascii: ".")] + kept + Array(TemporaryFiles.mark.utf8) + Array(digits.utf8)
        let temporaryPath = LexicalPath.join(parent, PathText.text(temporary))
        slot = context.temporaries.record(temporaryPath)
        let number = withName(temporary) {
            wa_openat(descriptor, $0, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        }
        // After this a thrown error runs deinit, which removes the file and its record.
        if [-EACCES, -EPERM, -EROFS].contains(number), !isMove, old != nil {
            self.temporary = nil
            file = OwnedDescriptor(Self.nameless(context, digits))
        } else {
            self.temporary = temporary
            file = OwnedDescriptor(number)
        }
        if file.number < 0 { throw FilesError.system(number, "open", temporaryPath) }
        if self.temporary == nil {
            // Before the client sends a body in vain.
            let opened = Self.open(directory.number, name)
            guard opened >= 0 else { throw FilesError.system(opened, "open", path) }
            close(opened)
        }
    }

    /// Makes a file that has no name any more.
    /// - Returns: the descriptor, or -errno.
    private static func nameless(_ context: FilesContext, _ digits: String) -> CInt {
        var result = -ENOENT
        for directory in [context.environment["TMPDIR"] ?? "", "/tmp", "/var/tmp"]
        where LexicalPath.isAbsolute(directory) {
            let path = "\(LexicalPath.clean(directory))/.workspace-agent\(TemporaryFiles.mark)\(digits)"
            let slot = context.temporaries.record(path)
            defer { context.temporaries.forget(slot) }
            result = withPath(path) { wa_open($0, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600) }
            if result >= 0 {
                _ = withPath(path) { unlink($0) }
                return result
            }
        }
        return result
    }

    deinit { discard() }

    /// Removes the temporary file and what was made for it, unless it has taken the other's place.
    func discard() {
        guard !isOver.exchange(true, ordering: .relaxed) else { return }
        if let temporary, file.number >= 0 { _ = withName(temporary) { unlinkat(directory.number, $0, 0) } }
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
    func commit(_ condition: WriteCondition, mode: mode_t?) throws(FilesError) -> WrittenFile {
        let old = try Self.present(directory.number, name, path, writes: writes)
        try condition.check(old, path)
        guard let temporary else { return try overwrite(condition, mode) }
        var written = WrittenFile(info: stat())
        let wanted: mode_t
        if let old {
            // Before the mode, since it clears the set-id bits.
            written.losesOwner = fchown(file.number, old.st_uid, old.st_gid) != 0
            if written.losesOwner { fchown(file.number, uid_t.max, old.st_gid) }
            let bits = old.st_mode & 0o7777
            // Set-id bits for another owner than before would be a different permission.
            wanted = mode ?? (written.losesOwner ? bits & 0o1777 : bits)
            written.losesMode = mode == nil && wanted != bits
        } else {
            wanted = mode ?? 0o666 & ~context.fileMask
        }
        guard fchmod(file.number, wanted) == 0 else { throw FilesError.system(errno, "chmod", path) }
        guard fdatasync(file.number) == 0 else { throw FilesError.system(errno, "fdatasync", path) }
        let moved = withName(temporary) { from in
            withName(name) { to in renameat(directory.number, from, directory.number, to) == 0 ? 0 : -errno }
        }
        // A mount, or another user's file in a directory with the sticky bit.
        if [-EBUSY, -EPERM, -EACCES].contains(moved), writes, old != nil { return try overwrite(condition, mode) }
        guard moved == 0 else { throw FilesError.system(moved, "rename", path) }
        isOver.store(true, ordering: .relaxed)
        context.temporaries.forget(slot)
        guard fstat(file.number, &written.info) == 0 else { throw FilesError.system(errno, "stat", path) }
        // The kernel drops a group's bit without a word where the group is none of ours.
        if mode == nil, written.info.st_mode & 0o7777 != wanted { written.losesMode = true }
        return written
    }

    /// Writes the new content over the file's own, and cuts off the rest at the end. A reader can see a part of it, and
    /// when the machine fails meanwhile a part is what is left; so the room on the disk is taken first.
    private func overwrite(_ condition: WriteCondition, _ mode: mode_t?) throws(FilesError) -> WrittenFile {
        let opened = Self.open(directory.number, name)
        guard opened >= 0 else { throw FilesError.system(opened, "open", path) }
        let target = OwnedDescriptor(opened)
        var written = WrittenFile(info: stat(), isInPlace: true)
        guard fstat(target.number, &written.info) == 0 else { throw FilesError.system(errno, "stat", path) }
        let old = written.info
        try RegularFile.requireWritable(old, path)
        try condition.check(old, path)
        let size = progress.withLock(\.end)
        // A file with holes needs room within its old size, too. Some file systems have no such call.
        let reserved = size > 0 ? wa_reserve(target.number, Int64(size)) : 0
        guard [0, -EOPNOTSUPP, -ENOSYS, -EINVAL].contains(reserved) else {
            throw FilesError.system(reserved, "write", path)
        }
        if let mode, fchmod(target.number, mode) != 0 { throw FilesError.system(errno, "chmod", path) }
        var place = 0
        do throws(FilesError) {
            try copy(to: target.number, size, &place)
            let bits = mode ?? old.st_mode & 0o7777
            // Writing clears the set-id bits.
            if bits & 0o6000 != 0 { fchmod(target.number, bits) }
            guard fdatasync(target.number) == 0 else { throw FilesError.system(errno, "fdatasync", path) }
            guard fstat(target.number, &written.info) == 0 else { throw FilesError.system(errno, "stat", path) }
            written.losesMode = written.info.st_mode & 0o7777 != bits
            // The inode stays, and the clock of files is coarse: a tag is one version's alone.
            if EntityTag.of(written.info) == EntityTag.of(old) {
                var times = [written.info.st_atim, written.info.st_mtim]
                times[1].tv_nsec = times[1].tv_nsec < 999_999_999 ? times[1].tv_nsec + 1 : 0
                if times[1].tv_nsec == 0 { times[1].tv_sec += 1 }
                futimens(target.number, times)
                guard fstat(target.number, &written.info) == 0 else { throw FilesError.system(errno, "stat", path) }
            }
        } catch {
            guard place > 0 else { throw error }
            throw FilesError(
                error.code, "\(error.message); it was being written in place, and its first \(place) bytes are new")
        }
        discard()
        return written
    }

    /// Copies the new content over a file and cuts off the rest.
    /// - Parameter place: bytes that have been copied.
    private func copy(to target: CInt, _ size: Int, _ place: inout Int) throws(FilesError) {
        while place < size {
            let moved = wa_copy_piece(file.number, target, Int64(place), FilesLimits.chunkBytes)
            guard moved > 0 else { throw FilesError.system(moved == 0 ? EIO : CInt(moved), "write", path) }
            place += moved
        }
        guard ftruncate(target, size) == 0 else { throw FilesError.system(errno, "truncate", path) }
    }

    /// Opens a file for writing over it.
    /// - Returns: the descriptor, or -errno.
    private static func open(_ directory: CInt, _ name: [UInt8]) -> CInt {
        withName(name) { wa_openat(directory, $0, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0) }
    }

    /// What is at the name; nil when nothing is.
    /// - Parameter writes: a file that is read-only is refused.
    /// - Throws: ``FilesError`` for what cannot be replaced.
    private static func present(
        _ directory: CInt, _ name: [UInt8], _ path: String, writes: Bool
    ) throws(FilesError) -> stat? {
        var info = stat()
        let result = withName(name) { fstatat(directory, $0, &info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno }
        if result == -ENOENT, !name.isEmpty { return nil }
        guard result == 0 else { throw FilesError.system(name.isEmpty ? EISDIR : result, "open", path) }
        try RegularFile.requireWritable(info, path)
        if writes { try RegularFile.requireNotReadOnly(info, path) }
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
        var result = withPath(path) { mkdir($0, mode) }
        if result == -EEXIST, !isNew {
            var info = stat()
            result = withPath(path) { stat($0, &info) }
            // A link that leads nowhere is in the way as a file is.
            guard result == 0, info.st_mode & S_IFMT == S_IFDIR else { throw FilesError.system(EEXIST, "mkdir", path) }
            return
        }
        guard result == 0 else { throw FilesError.system(result, "mkdir", path) }
        // The daemon's own umask is stricter than the one that counts here.
        _ = withPath(path) { fchmodat(AT_FDCWD, $0, mode, 0) }
    }
}
