import AgentCore
import Glibc
import NIOCore

/// Puts the entries of an archive below a directory, none of them elsewhere: links on the way are never followed.
/// Files and links replace what has their name at once, when they are complete.
final class TreeWriter {
    struct Counts: Sendable, Equatable {
        var files = 0
        var directories = 0
        var links = 0
        /// Of content.
        var bytes = 0
    }

    /// A file under a temporary name.
    private struct Growing {
        var entry: TarEntry
        var name: ArchiveName
        var parent: OpenDirectory
        var file: CInt
        var temporary: [UInt8]
        /// The record of it.
        var slot: Int
    }

    private(set) var counts = Counts()
    /// The first path written in each directory, as far as they are reported.
    private(set) var written: [[UInt8]] = []
    private let root: OpenDirectory
    /// For messages.
    private let path: String
    private let mask: mode_t
    private let temporaries: TemporaryFiles
    private var growing: Growing?
    /// Their modes and times are set last: what is put into them changes the times, and needs the permission.
    private var directories: [(path: [UInt8], entry: TarEntry)] = []
    private var nameBytes = 0
    private var lastParent: [UInt8]?

    /// - Parameters:
    ///   - root: where names begin.
    ///   - path: of the root, as the client wrote it.
    init(_ root: OpenDirectory, path: String, _ files: FilesContext) {
        (self.root, self.path) = (root, LexicalPath.clean(path))
        (mask, temporaries) = (files.fileMask, files.temporaries)
    }

    deinit { abandon() }

    func begin(_ entry: TarEntry) throws(FilesError) {
        let name = try ArchiveName(entry.name)
        if name.elements.isEmpty {
            // The directory itself belongs to the caller: its mode and times stay.
            guard entry.kind == .directory else { throw ArchiveName.refused(entry.name, "it has no name") }
            return
        }
        switch entry.kind {
        case .file: try beginFile(entry, name)
        case .directory: try directory(entry, name)
        case .symbolicLink:
            try name.check(target: entry.target, of: entry.name)
            try link(entry, name) { parent, temporary in
                withName(entry.target) { target in withName(temporary) { symlinkat(target, parent.number, $0) } }
            }
        case .hardLink: try hardLink(entry, name)
        case .fifo: throw ArchiveName.refused(entry.name, "FIFOs are not extracted; leave it out of the archive")
        case .characterDevice, .blockDevice:
            throw ArchiveName.refused(entry.name, "devices are not extracted; leave it out of the archive")
        }
        note(name)
    }

    /// Takes content of the entry that was begun last.
    func write(_ bytes: ByteBuffer) throws(FilesError) {
        guard let growing else { return }
        counts.bytes += bytes.readableBytes
        let failure = writeAll(bytes, to: growing.file)
        guard failure == 0 else { throw failed(failure, growing.name) }
    }

    /// The entry that was begun last is complete.
    func endEntry() throws(FilesError) {
        guard let done = growing else { return }
        Self.set(done.entry, done.file)
        try rename(done.temporary, done.name, done.parent)
        close(done.file)
        temporaries.forget(done.slot)
        growing = nil
        counts.files += 1
    }

    /// The archive is complete: sets the modes and times of directories, of some of them.
    /// - Returns: whether there are more.
    func settle(_ count: Int = 1_000) -> Bool {
        for _ in 0..<count {
            // Those inside come last in an archive.
            guard let (path, entry) = directories.popLast() else { return false }
            // One that has gone, or does not belong to us, keeps what it has.
            if case .success(let directory) = root.directory(path, O_RDONLY) { Self.set(entry, directory.number) }
        }
        return true
    }

    /// There will be no more. What is complete stays; of what is not, nothing.
    func abandon() {
        if let growing {
            close(growing.file)
            _ = withName(growing.temporary) { unlinkat(growing.parent.number, $0, 0) }
            temporaries.forget(growing.slot)
        }
        growing = nil
        while settle() {}
    }

    // MARK: - Kinds of entries

    private func beginFile(_ entry: TarEntry, _ name: ArchiveName) throws(FilesError) {
        let parent = try directory(name.elements.dropLast(), of: name)
        var slot = 0
        let (file, temporary) = try makeTemporary(name) { temporary in
            slot = temporaries.record(place(name.elements.dropLast() + [temporary]))
            let file = parent.open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0o600)
            if file < 0 { temporaries.forget(slot) }
            return file
        }
        growing = Growing(entry: entry, name: name, parent: parent, file: file, temporary: temporary, slot: slot)
    }

    private func directory(_ entry: TarEntry, _ name: ArchiveName) throws(FilesError) {
        _ = try directory(name.elements[...], of: name)
        counts.directories += 1
        let path = name.path
        nameBytes += path.count
        guard nameBytes <= FilesLimits.archiveDirectoryNameBytes else {
            throw FilesError(
                .tooLarge,
                "the names of the archive's directories have over \(FilesLimits.archiveDirectoryNameBytes) bytes")
        }
        directories.append((path, entry))
    }

    private func hardLink(_ entry: TarEntry, _ name: ArchiveName) throws(FilesError) {
        let target: ArchiveName
        do { target = try ArchiveName(entry.target) } catch {
            throw ArchiveName.refused(entry.name, "a hard link to \(goQuoted(utf8: entry.target)) leads out")
        }
        let missing = ArchiveName.refused(
            entry.name, "there is no file \(goQuoted(utf8: entry.target)) in the directory to link to")
        guard !target.elements.isEmpty, case .success(let place) = root.directory(target.parent),
            let info = place.info(target.name), info.st_mode & S_IFMT == S_IFREG
        else { throw missing }
        try link(entry, name) { parent, temporary in
            withName(target.name) { old in withName(temporary) { linkat(place.number, old, parent.number, $0, 0) } }
        }
    }

    private func link(
        _ entry: TarEntry, _ name: ArchiveName, _ make: (OpenDirectory, [UInt8]) -> CInt
    ) throws(FilesError) {
        let parent = try directory(name.elements.dropLast(), of: name)
        let (_, temporary) = try makeTemporary(name) { make(parent, $0) }
        defer {
            // Renaming one of two links to the same file over the other does nothing.
            if entry.kind == .hardLink { _ = withName(temporary) { unlinkat(parent.number, $0, 0) } }
        }
        if entry.kind == .symbolicLink {
            var times = Self.times(entry)
            _ = withName(temporary) { utimensat(parent.number, $0, &times, AT_SYMLINK_NOFOLLOW) }
        }
        do { try rename(temporary, name, parent) } catch {
            _ = withName(temporary) { unlinkat(parent.number, $0, 0) }
            throw error
        }
        counts.links += 1
    }

    // MARK: - Steps

    /// A directory below the root; those that are missing are made.
    private func directory(
        _ elements: ArraySlice<[UInt8]>, of name: ArchiveName
    ) throws(FilesError) -> OpenDirectory {
        let path = Array(elements.joined(separator: [UInt8(ascii: "/")]))
        switch root.directory(path) {
        case .success(let directory): return directory
        case .failure(let failure):
            guard failure.number == ENOENT, let last = elements.last else { throw failed(failure.number, name) }
            let parent = try directory(elements.dropLast(), of: name)
            let result = withName(last) { mkdirat(parent.number, $0, 0o700) }
            guard result == 0 || result == -EEXIST else { throw failed(result, name) }
            switch parent.directory(last, O_RDONLY) {
            case .failure(let failure): throw failed(failure.number, name)
            case .success(let made):
                if result == 0 { fchmod(made.number, 0o755 & ~mask) }
                return made
            }
        }
    }

    private func makeTemporary(
        _ name: ArchiveName, _ make: ([UInt8]) -> CInt
    ) throws(FilesError) -> (CInt, [UInt8]) {
        var result: CInt = -EEXIST
        for _ in 0..<100 {
            let temporary = Array("\(TemporaryFiles.mark)\(String(UInt32.random(in: 0...UInt32.max), radix: 16))".utf8)
            result = make(temporary)
            if result >= 0 { return (result, temporary) }
            guard result == -EEXIST else { break }
        }
        throw failed(result, name)
    }

    private func rename(_ temporary: [UInt8], _ name: ArchiveName, _ parent: OpenDirectory) throws(FilesError) {
        let result = withName(temporary) { old in
            withName(name.name) { renameat(parent.number, old, parent.number, $0) }
        }
        guard result == 0 else { throw failed(result, name) }
    }

    private func note(_ name: ArchiveName) {
        let parent = name.parent
        guard parent != lastParent, written.count < FilesLimits.archiveReportedPaths else { return }
        lastParent = parent
        written.append(name.path)
    }

    private func failed(_ number: CInt, _ name: ArchiveName) -> FilesError {
        let number = number < 0 ? -number : number
        let place = place(name.elements[...])
        switch number {
        case ELOOP, ENOTDIR:
            return FilesError(
                .conflict,
                "extract \(place): a symbolic link or a file is where a directory is due; links are not followed")
        case EISDIR: return FilesError(.conflict, "extract \(place): a directory is in the way")
        default: return FilesError.system(number, "extract", place)
        }
    }

    private func place(_ elements: ArraySlice<[UInt8]>) -> String {
        LexicalPath.join(path, PathText.text(Array(elements.joined(separator: [UInt8(ascii: "/")]))))
    }

    /// Mode, without set-id bits, and time, as far as the file system has them.
    private static func set(_ entry: TarEntry, _ file: CInt) {
        fchmod(file, mode_t(entry.mode & 0o1777))
        var times = times(entry)
        futimens(file, &times)
    }

    /// Access and modification.
    private static func times(_ entry: TarEntry) -> [timespec] {
        let time = timespec(tv_sec: entry.seconds, tv_nsec: entry.nanoseconds)
        return [time, time]
    }
}
