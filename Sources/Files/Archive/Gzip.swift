import CZlib
import NIOCore

/// Compresses a stream to the gzip format.
final class GzipWriter {
    /// Fast; a higher level makes an archive a few percent smaller and takes several times as long.
    private static let level: CInt = 3

    private let stream: UnsafeMutablePointer<z_stream>

    init() throws(FilesError) {
        stream = .allocate(capacity: 1)
        stream.initialize(to: z_stream())
        guard wz_deflate_init(stream, Self.level) == Z_OK else {
            stream.deallocate()
            throw FilesError(.failed, "cannot compress: not enough memory")
        }
    }

    deinit {
        deflateEnd(stream)
        stream.deallocate()
    }

    /// - Parameter isLast: there is no more.
    /// - Returns: what is ready by now; the compressor keeps some.
    func compress(_ bytes: ByteBuffer, isLast: Bool) -> ByteBuffer {
        var output = ByteBuffer()
        bytes.withUnsafeReadableBytes { area in
            stream.pointee.next_in = UnsafeMutablePointer(
                mutating: area.baseAddress?.assumingMemoryBound(to: UInt8.self))
            stream.pointee.avail_in = UInt32(clamping: area.count)
            var isFull: Bool
            repeat {
                isFull = fill(&output, 64 << 10, stream) { deflate($0, isLast ? Z_FINISH : Z_NO_FLUSH) }.isFull
            } while isFull
        }
        return output
    }
}

/// Decompresses a stream of the gzip format, of one member or several.
final class GzipReader {
    private let stream: UnsafeMutablePointer<z_stream>
    private var input = ByteBuffer()
    /// Behind a member, where another may begin.
    private var isBetween = false

    init() throws(FilesError) {
        stream = .allocate(capacity: 1)
        stream.initialize(to: z_stream())
        guard wz_inflate_init(stream) == Z_OK else {
            stream.deallocate()
            throw FilesError(.failed, "cannot decompress: not enough memory")
        }
    }

    deinit {
        inflateEnd(stream)
        stream.deallocate()
    }

    /// Gives it the next bytes, once ``next(_:)`` has returned nothing.
    func feed(_ bytes: ByteBuffer) { input = bytes }

    /// At most so many bytes of what was compressed; none when it needs more.
    /// - Throws: ``FilesError`` `.invalid` when the bytes are damaged.
    func next(_ count: Int) throws(FilesError) -> ByteBuffer {
        var output = ByteBuffer()
        while input.readableBytes > 0, output.readableBytes == 0 {
            if isBetween {
                // Some programs fill their last block with zeros.
                while input.getInteger(at: input.readerIndex, as: UInt8.self) == 0 {
                    input.moveReaderIndex(forwardBy: 1)
                }
                guard input.readableBytes > 0 else { break }
                inflateReset(stream)
                isBetween = false
            }
            var result = Z_OK
            let stream = stream
            input.readWithUnsafeReadableBytes { area in
                stream.pointee.next_in = UnsafeMutablePointer(
                    mutating: area.baseAddress?.assumingMemoryBound(to: UInt8.self))
                stream.pointee.avail_in = UInt32(clamping: area.count)
                result = fill(&output, count, stream) { inflate($0, Z_NO_FLUSH) }.result
                return min(area.count, Int(UInt32.max)) - Int(stream.pointee.avail_in)
            }
            switch result {
            case Z_OK, Z_BUF_ERROR: break
            case Z_STREAM_END: isBetween = true
            default:
                let reason = stream.pointee.msg.map { String(cString: $0) } ?? "error \(result)"
                throw FilesError(.invalid, "the gzip data of the archive is damaged: \(reason)")
            }
        }
        return output
    }

    /// There are no more bytes.
    func finish() throws(FilesError) {
        guard isBetween else { throw FilesError(.invalid, "the gzip data of the archive is cut off") }
    }
}

/// Runs the call with room for at most so many bytes of output.
private func fill(
    _ output: inout ByteBuffer, _ count: Int, _ stream: UnsafeMutablePointer<z_stream>,
    _ call: (UnsafeMutablePointer<z_stream>) -> CInt
) -> (result: CInt, isFull: Bool) {
    var result = Z_OK
    output.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { area in
        stream.pointee.next_out = area.baseAddress?.assumingMemoryBound(to: UInt8.self)
        stream.pointee.avail_out = UInt32(clamping: count)
        result = call(stream)
        return count - Int(stream.pointee.avail_out)
    }
    return (result, stream.pointee.avail_out == 0)
}
