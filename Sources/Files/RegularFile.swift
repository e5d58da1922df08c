import AgentCore
import CPlatform
import Glibc
import NIOCore

/// An open regular file and what it was like when it was opened. Closed when nothing uses it any more.
final class RegularFile: Sendable {
    private let file: OwnedDescriptor
    let info: stat

    /// Opens a file without waiting for what only looks like one: a FIFO without a writer, a terminal, a device.
    /// - Parameters:
    ///   - path: as the client wrote it; links are followed.
    ///   - flags: access mode; nothing is created or truncated.
    /// - Throws: ``FilesError``: `open P: not a file` for a directory, `open P: not a regular file` for the rest.
    init(_ path: String, _ flags: CInt = O_RDONLY) throws(FilesError) {
        var info = stat()
        var result = withPath(path) { stat($0, &info) }
        guard result == 0 else { throw FilesError.system(result, "open", path) }
        // A device may act when it is opened, so it is not.
        try Self.require(info, path)
        result = withPath(path) { wa_open($0, flags | O_NONBLOCK | O_NOCTTY, 0) }
        guard result >= 0 else { throw FilesError.system(result, "open", path) }
        file = OwnedDescriptor(result)
        guard fstat(result, &info) == 0 else { throw FilesError.system(errno, "open", path) }
        try Self.require(info, path)
        self.info = info
    }

    /// As above, of a directory's tree without following links.
    /// - Returns: -EINVAL as the failure for what is no regular file.
    static func open(_ path: [UInt8], below root: OpenDirectory) -> Result<RegularFile, SystemFailure> {
        let result = root.open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY)
        guard result >= 0 else { return .failure(SystemFailure(number: -result)) }
        let file = OwnedDescriptor(result)
        var info = stat()
        guard fstat(file.number, &info) == 0 else { return .failure(SystemFailure(number: errno)) }
        guard info.st_mode & S_IFMT == S_IFREG else { return .failure(SystemFailure(number: EINVAL)) }
        return .success(RegularFile(file, info))
    }

    private init(_ file: consuming OwnedDescriptor, _ info: stat) {
        self.file = file
        self.info = info
    }

    var number: CInt { file.number }

    /// Bytes from a position on, fewer at the end.
    func read(at position: Int, count: Int, _ path: String) throws(FilesError) -> ByteBuffer {
        var buffer = ByteBufferAllocator().buffer(capacity: count)
        var failure: CInt = 0
        while failure == 0, buffer.readableBytes < count {
            let start = position + buffer.readableBytes
            let room = count - buffer.readableBytes
            let got = buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: room) { area in
                let result = pread(number, area.baseAddress, room, start)
                if result < 0 { failure = errno }
                return max(0, result)
            }
            if failure == EINTR { failure = 0 } else if got == 0 { break }
        }
        guard failure == 0 else { throw FilesError.system(failure, "read", path) }
        return buffer
    }

    /// Fills an empty buffer with what the kernel has in memory; does not wait for a disk.
    /// - Returns: false when it has nothing of it.
    func readCached(at position: Int, count: Int, into buffer: inout ByteBuffer) -> Bool {
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { area in
            max(0, wa_read_cached(number, area.baseAddress, count, Int64(position)))
        } > 0
    }

    /// All bytes from the beginning to the end, whatever size the file says it has.
    /// - Throws: ``FilesError`` `.tooLarge` beyond the limit.
    func readAll(_ path: String, limit: Int) throws(FilesError) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(min(limit, Int(info.st_size)) + 1)
        while true {
            let piece = try read(at: bytes.count, count: min(FilesLimits.chunkBytes, limit + 1 - bytes.count), path)
            guard piece.readableBytes > 0 else { return bytes }
            piece.withUnsafeReadableBytes { bytes.append(contentsOf: $0) }
            guard bytes.count <= limit else {
                throw FilesError(.tooLarge, "read \(path): the file has more than \(limit) bytes")
            }
        }
    }

    /// - Throws: ``FilesError`` for what a write would not be meant for.
    static func requireWritable(_ info: stat, _ path: String) throws(FilesError) {
        if info.st_mode & S_IFMT == S_IFDIR { throw FilesError(.directory, "open \(path): is a directory") }
        try require(info, path)
    }

    /// - Throws: ``FilesError`` `.denied` for a file whose mode keeps the daemon, or everyone, from writing to it,
    ///   though its directory may allow to replace it. Root is kept from it by a mode without any such bit.
    static func requireNotReadOnly(_ info: stat, _ path: String) throws(FilesError) {
        if info.st_mode & 0o222 == 0 || withPath(path, { faccessat(AT_FDCWD, $0, W_OK, AT_EACCESS) }) == -EACCES {
            throw FilesError.system(EACCES, "open", path)
        }
    }

    /// Reads on.
    /// - Returns: how many bytes; 0 at the end, or -errno.
    func read(_ count: Int, into buffer: inout ByteBuffer) -> Int {
        var result = 0
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { area in
            result = wa_read(number, area.baseAddress, count)
            return max(0, result)
        }
        return result
    }

    private static func require(_ info: stat, _ path: String) throws(FilesError) {
        switch info.st_mode & S_IFMT {
        case S_IFREG: break
        case S_IFDIR: throw FilesError(.directory, "open \(path): not a file")
        default: throw FilesError(.notRegular, "open \(path): not a regular file")
        }
    }
}
