import AgentCore
import Glibc
import NIOCore

/// Makes an archive of a file or a tree, piece by piece. Used by one thread at a time.
final class Packer {
    /// What an archive is made of.
    struct Source: Sendable {
        enum Content: Sendable {
            case file(RegularFile)
            case tree(OpenDirectory)
        }

        var content: Content
        /// Of the file, or of the tree's root, in the archive.
        var name: [UInt8]
        /// For messages.
        var path: String
    }

    private struct Reading {
        var file: RegularFile
        var rest: Int
        var padding: Int
    }

    private let source: Source
    private let limits: ArchiveLimits
    private let skipsUnreadable: Bool
    private let gzip: GzipWriter?
    private var walk: PackWalk?
    private var reading: Reading?
    private var bytes = 0
    private var isEnded = false

    /// - Parameter skipsUnreadable: leaves out what may not be read; else that ends the archive.
    init(_ source: Source, limits: ArchiveLimits, skipsUnreadable: Bool, compresses: Bool) throws(FilesError) {
        (self.source, self.limits, self.skipsUnreadable) = (source, limits, skipsUnreadable)
        gzip = compresses ? try GzipWriter() : nil
        if case .tree(let root) = source.content { walk = PackWalk(root, path: source.path, limits: limits) }
    }

    /// The next bytes of the archive; nil behind the last.
    func next() throws(FilesError) -> ByteBuffer? {
        while !isEnded {
            var plain = ByteBuffer()
            plain.reserveCapacity(FilesLimits.chunkBytes)
            while !isEnded, plain.readableBytes < FilesLimits.chunkBytes { try fill(&plain) }
            guard let gzip else { return plain }
            let packed = gzip.compress(plain, isLast: isEnded)
            if packed.readableBytes > 0 { return packed }
        }
        return nil
    }

    private func fill(_ plain: inout ByteBuffer) throws(FilesError) {
        if reading != nil { return try read(&plain) }
        if case .file(let file) = source.content, bytes == 0 { return try begin(file, source.name, &plain) }
        switch try walk?.step() {
        case .unreadable(let name, let number): try leaveOut(name, number)
        case .entry(let entry): try add(entry, &plain)
        case nil:
            plain.writeBytes(TarBlock.end)
            isEnded = true
        }
    }

    private func add(_ entry: TarEntry, _ plain: inout ByteBuffer) throws(FilesError) {
        guard entry.kind == .file, case .tree(let root) = source.content else {
            var entry = entry
            entry.name = source.full(entry.name)
            return try header(entry, &plain)
        }
        switch RegularFile.open(entry.name, below: root) {
        case .failure(let failure): try leaveOut(entry.name, failure.number)
        case .success(let file): try begin(file, source.full(entry.name), &plain)
        }
    }

    private func leaveOut(_ name: [UInt8], _ number: CInt) throws(FilesError) {
        switch number {
        // It has gone meanwhile, or something else has taken its place.
        case ENOENT, ENOTDIR, ELOOP, ENXIO, EINVAL: return
        case EACCES, EPERM: if skipsUnreadable { return }
        default: break
        }
        throw FilesError.system(number, "open", source.place(name))
    }

    private func begin(_ file: RegularFile, _ name: [UInt8], _ plain: inout ByteBuffer) throws(FilesError) {
        let entry = PackWalk.entry(name, .file, file.info)
        reading = Reading(file: file, rest: entry.size, padding: TarBlock.padding(of: entry.size))
        try header(entry, &plain)
    }

    private func header(_ entry: TarEntry, _ plain: inout ByteBuffer) throws(FilesError) {
        let header = TarWriter.header(entry)
        bytes += header.count + entry.size + TarBlock.padding(of: entry.size)
        guard bytes + TarBlock.end.count <= limits.bytes else { throw limits.tooManyBytes }
        plain.writeBytes(header)
    }

    /// Some of the file's content: as much as its header says, whatever becomes of the file.
    private func read(_ plain: inout ByteBuffer) throws(FilesError) {
        guard let now = reading else { return }
        let wanted = min(now.rest, max(FilesLimits.chunkBytes - plain.readableBytes, 1))
        var count = wanted == 0 ? 0 : now.file.read(wanted, into: &plain)
        guard count >= 0 else { throw FilesError.system(CInt(-count), "read", source.path) }
        if count == 0 {
            // It has shrunk.
            plain.writeRepeatingByte(0, count: wanted)
            count = wanted
        }
        reading?.rest -= count
        guard now.rest == count else { return }
        plain.writeRepeatingByte(0, count: now.padding)
        reading = nil
    }
}

extension Packer.Source {
    /// The name in the archive of what is at this path below the root.
    func full(_ path: [UInt8]) -> [UInt8] { path.isEmpty ? name : name + [UInt8(ascii: "/")] + path }

    func place(_ name: [UInt8]) -> String { name.isEmpty ? path : LexicalPath.join(path, PathText.text(name)) }
}
