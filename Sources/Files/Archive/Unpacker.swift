import AgentCore
import NIOCore

/// What an archive may be at most.
struct ArchiveLimits: Sendable {
    /// Before it is compressed, headers included.
    var bytes = FilesLimits.archiveBytes
    var entries = FilesLimits.archiveEntries

    var tooManyBytes: FilesError { FilesError(.tooLarge, "the archive has over \(bytes) bytes; divide it") }
    var tooManyEntries: FilesError { FilesError(.tooLarge, "the archive has over \(entries) entries; divide it") }
}

/// Extracts an archive, plain or compressed with gzip, as it comes. Used by one thread at a time.
final class Unpacker {
    /// How an archive is compressed.
    enum Compression: Sendable {
        case gzip
        /// What its first bytes say.
        case byContent
    }

    private let limits: ArchiveLimits
    private let tree: TreeWriter
    private var compression: Compression
    private var gzip: GzipReader?
    private var tar = TarReader()
    /// Bytes that came before it was clear what they are, and what is not decompressed yet.
    private var first = ByteBuffer()
    private var isBegun = false
    private var bytes = 0
    private var entries = 0

    init(_ tree: TreeWriter, _ compression: Compression, limits: ArchiveLimits) {
        (self.tree, self.compression, self.limits) = (tree, compression, limits)
    }

    var counts: TreeWriter.Counts { tree.counts }
    var written: [[UInt8]] { tree.written }

    /// Takes the next bytes, once ``step()`` has returned false.
    func feed(_ more: ByteBuffer) throws(FilesError) {
        var more = more
        if !isBegun {
            first.writeBuffer(&more)
            guard first.readableBytes >= 2 || compression == .gzip else { return }
            try begin()
        } else if let gzip {
            gzip.feed(more)
        } else {
            try count(more)
            tar.feed(more)
        }
    }

    private func begin() throws(FilesError) {
        isBegun = true
        let all = first
        first = ByteBuffer()
        if compression == .gzip || all.getInteger(at: all.readerIndex, as: UInt16.self) == 0x1F8B {
            gzip = try GzipReader()
        }
        try feed(all)
    }

    /// Extracts some of what was fed.
    /// - Returns: whether there is more to do before it needs more bytes.
    func step() throws(FilesError) -> Bool {
        if let gzip {
            let plain = try gzip.next(FilesLimits.chunkBytes)
            guard plain.readableBytes > 0 else { return false }
            try count(plain)
            tar.feed(plain)
        }
        while let event = try tar.next() {
            switch event {
            case .entry(let entry):
                entries += 1
                guard entries <= limits.entries else { throw limits.tooManyEntries }
                try tree.begin(entry)
            case .content(let content): try tree.write(content)
            case .finished: try tree.endEntry()
            case .end: break
            }
        }
        return gzip != nil
    }

    /// There are no more bytes.
    func finish() throws(FilesError) {
        if !isBegun { try begin() }
        while try step() {}
        try gzip?.finish()
        try tar.finish()
    }

    /// After ``finish()``: the last of the work, a piece of it.
    /// - Returns: whether there is more.
    func settle() -> Bool { tree.settle() }

    /// There will be no more bytes although the archive is not complete.
    func abandon() { tree.abandon() }

    private func count(_ plain: ByteBuffer) throws(FilesError) {
        bytes += plain.readableBytes
        guard bytes <= limits.bytes else { throw limits.tooManyBytes }
    }
}
