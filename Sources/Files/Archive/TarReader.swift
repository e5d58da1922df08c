import AgentCore
import NIOCore

/// Reads tar archives as they come, in pieces of any size: ustar, the extended headers of POSIX (pax), the long names
/// and large numbers of GNU, and what came before. It holds no more than one header and what was fed last.
struct TarReader {
    enum Event: Equatable {
        case entry(TarEntry)
        /// Some of the last entry's content.
        case content(ByteBuffer)
        /// The last entry is complete.
        case finished
        /// The archive is complete; what follows is ignored.
        case end
    }

    private enum State {
        case header
        case metadata(type: UInt8, size: Int)
        case content(Int)
        case padding(Int)
        case ended(isReported: Bool)
    }

    private var state = State.header
    private var input = ByteBuffer()
    /// Bytes of the archive that are done with.
    private var offset = 0
    /// Of the entries: what extended headers say of the next one, and of all that follow.
    private var local: [String: [UInt8]] = [:]
    private var global: [String: [UInt8]] = [:]
    private var padding = 0

    /// Gives it the next bytes, once ``next()`` has returned nil.
    mutating func feed(_ bytes: ByteBuffer) {
        if input.readableBytes == 0 {
            input = bytes
        } else {
            var bytes = bytes
            input.discardReadBytes()
            input.writeBuffer(&bytes)
        }
    }

    /// - Returns: nil when it needs more bytes.
    /// - Throws: ``FilesError`` `.invalid` when this is no archive, or has something in it that is not supported.
    mutating func next() throws(FilesError) -> Event? {
        while true {
            switch state {
            case .header:
                guard let block = take(TarBlock.bytes) else { return nil }
                if block.allSatisfy({ $0 == 0 }) {
                    guard local.isEmpty else { throw damaged("it ends behind an extended header") }
                    state = .ended(isReported: false)
                } else if let entry = try read(header: block) {
                    return .entry(entry)
                }
            case .metadata(let type, let size):
                guard let bytes = take(size + TarBlock.padding(of: size)) else { return nil }
                try read(metadata: bytes.prefix(size), type)
                state = .header
            case .content(0):
                state = .padding(padding)
                return .finished
            case .content(let rest):
                guard let bytes = input.readSlice(length: min(rest, input.readableBytes)), bytes.readableBytes > 0
                else {
                    return nil
                }
                offset += bytes.readableBytes
                state = .content(rest - bytes.readableBytes)
                return .content(bytes)
            case .padding(let count):
                guard take(count) != nil else { return nil }
                state = .header
            case .ended(let isReported):
                offset += input.readableBytes
                input.clear()
                state = .ended(isReported: true)
                return isReported ? nil : .end
            }
        }
    }

    /// There are no more bytes. An archive may end without the blocks that mark its end, but not within an entry.
    func finish() throws(FilesError) {
        if case .ended = state { return }
        guard offset + input.readableBytes > 0 else {
            throw FilesError(.invalid, "the archive is empty: not even the end of one is there")
        }
        guard case .header = state, input.readableBytes == 0, local.isEmpty else {
            if offset == 0, ForeignArchive.name(of: input.readableBytesView) != nil {
                throw Self.notTar(input.readableBytesView)
            }
            throw FilesError(.invalid, "the archive is cut off behind byte \(offset + input.readableBytes)")
        }
    }

    private mutating func take(_ count: Int) -> ArraySlice<UInt8>? {
        guard let bytes = input.readBytes(length: count) else { return nil }
        offset += count
        return bytes[...]
    }

    /// - Parameter start: the first bytes of what is not a tar archive.
    private static func notTar(_ start: some Collection<UInt8>) -> FilesError {
        guard let name = ForeignArchive.name(of: start) else {
            return FilesError(.invalid, "this is not a tar archive, neither plain nor compressed with gzip")
        }
        return FilesError(.invalid, "this is \(name); send a tar archive that is plain or compressed with gzip")
    }

    private func damaged(_ what: String) -> FilesError {
        FilesError(.invalid, "the archive is damaged before byte \(offset): \(what)")
    }

    /// - Returns: the entry, unless it is a header for the next one.
    private mutating func read(header block: ArraySlice<UInt8>) throws(FilesError) -> TarEntry? {
        let sums = TarBlock.sums(block)
        guard let sum = TarNumber.parse(block[TarBlock.checksum]), sum == sums.unsigned || sum == sums.signed else {
            throw offset == TarBlock.bytes ? Self.notTar(block) : damaged("the checksum of a header is wrong")
        }
        guard let size = TarNumber.parse(block[TarBlock.size]), size >= 0 else {
            throw damaged("the size of an entry is not a number")
        }
        let type = block[TarBlock.type]
        switch type {
        case UInt8(ascii: "x"), UInt8(ascii: "g"), UInt8(ascii: "L"), UInt8(ascii: "K"):
            guard size <= FilesLimits.tarMetadataBytes else {
                throw FilesError(
                    .invalid,
                    "the archive has a header of \(size) bytes; at most \(FilesLimits.tarMetadataBytes) are read")
            }
            state = .metadata(type: type, size: size)
            return nil
        default: return try entry(block, type, size)
        }
    }

    private mutating func entry(_ block: ArraySlice<UInt8>, _ type: UInt8, _ size: Int) throws(FilesError) -> TarEntry {
        func override(_ key: String) -> [UInt8]? {
            (local[key] ?? global[key]).flatMap { $0.isEmpty ? nil : $0 }
        }
        let name = override("path") ?? Self.name(block)
        guard let kind = Self.kind(type) else {
            throw FilesError(
                .invalid,
                "archive entry \(goQuoted(utf8: name)): type \(goQuoted(utf8: [type])) is not supported")
        }
        guard let mode = TarNumber.parse(block[TarBlock.mode]), let time = TarNumber.parse(block[TarBlock.time]) else {
            throw damaged("the mode or the time of \(goQuoted(utf8: name)) is not a number")
        }
        var entry = TarEntry(kind: kind, name: name, mode: UInt32(truncatingIfNeeded: mode) & 0o7777, seconds: time)
        if kind == .file { entry.size = size }
        if kind == .symbolicLink || kind == .hardLink {
            entry.target = override("linkpath") ?? Self.text(block[TarBlock.target])
        }
        if let text = override("size"), kind == .file {
            guard let size = TarNumber.number(text) else { throw damaged("an extended header's size is not a number") }
            entry.size = size
        }
        if let text = override("mtime") {
            guard let time = TarNumber.time(text) else { throw damaged("an extended header's time is not a number") }
            (entry.seconds, entry.nanoseconds) = time
        }
        // As old programs wrote directories.
        if kind == .file, name.last == UInt8(ascii: "/") { entry.kind = .directory }
        state = .content(entry.size)
        padding = TarBlock.padding(of: entry.size)
        local = [:]
        return entry
    }

    private static func kind(_ type: UInt8) -> TarEntry.Kind? {
        // The old form of a file, and one that is to be stored without gaps.
        type == 0 || type == UInt8(ascii: "7") ? .file : TarEntry.Kind(rawValue: type)
    }

    private static func name(_ block: ArraySlice<UInt8>) -> [UInt8] {
        let name = text(block[TarBlock.name])
        guard block[TarBlock.magic].elementsEqual(Array("ustar".utf8) + [0]) else { return name }
        let isStar = block[TarBlock.starMagic].elementsEqual(Array("tar".utf8) + [0])
        let prefix = text(block[isStar ? TarBlock.starPrefix : TarBlock.prefix])
        return prefix.isEmpty ? name : prefix + [UInt8(ascii: "/")] + name
    }

    /// The bytes before the first NUL.
    private static func text(_ field: ArraySlice<UInt8>) -> [UInt8] { Array(field.prefix { $0 != 0 }) }

    private mutating func read(metadata bytes: ArraySlice<UInt8>, _ type: UInt8) throws(FilesError) {
        switch type {
        case UInt8(ascii: "L"): local["path"] = local["path"] ?? Self.text(bytes)
        case UInt8(ascii: "K"): local["linkpath"] = local["linkpath"] ?? Self.text(bytes)
        default:
            guard let records = PaxRecords.parse(bytes) else { throw damaged("an extended header is malformed") }
            for (key, value) in records {
                if key.utf8.starts(with: "GNU.sparse.".utf8) {
                    throw FilesError(.invalid, "the archive has a sparse file in it, which is not supported")
                }
                guard ["path", "linkpath", "size", "mtime"].contains(key) else { continue }
                guard !value.contains(0) else { throw damaged("an extended header has NUL in a value") }
                if type == UInt8(ascii: "g") { global[key] = value } else { local[key] = value }
            }
        }
    }
}
