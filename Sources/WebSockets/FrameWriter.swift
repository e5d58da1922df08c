import DequeModule
import NIOCore

/// Gathers the bytes of a stream and puts them into binary frames, without I/O.
struct FrameWriter {
    private let masks: Bool
    private var waiting = Deque<ByteBuffer>()
    private var bytes = 0
    /// The rest of a frame whose header went out on its own.
    private var payload: ByteBuffer?

    /// - Parameter masks: whether frames are masked, as a client's are.
    init(masks: Bool) { self.masks = masks }

    var isEmpty: Bool { bytes == 0 && payload == nil }
    /// Whether there is enough for a frame of the largest size.
    var isFull: Bool { bytes >= Limits.frameBytes }

    mutating func append(_ buffer: ByteBuffer) {
        guard buffer.readableBytes > 0 else { return }
        waiting.append(buffer)
        bytes += buffer.readableBytes
    }

    /// The next bytes for the transport; nil when nothing waits.
    mutating func next(mask makeMask: () -> UInt32) -> ByteBuffer? {
        if let payload {
            self.payload = nil
            return payload
        }
        guard bytes > 0 else { return nil }
        let size = min(bytes, Limits.frameBytes)
        let key = masks ? makeMask() : nil
        let header = FrameHeader(opcode: .binary, mask: key, length: size)
        if key == nil, size >= Limits.copyBytes, let first = take(size, whole: true) {
            payload = first
            var out = ByteBufferAllocator().buffer(capacity: Limits.headerBytes)
            header.write(into: &out)
            return out
        }
        var out = ByteBufferAllocator().buffer(capacity: Limits.headerBytes + size)
        header.write(into: &out)
        var mask = key.map(Mask.init)
        var missing = size
        while missing > 0, let part = take(missing, whole: false) {
            missing -= part.readableBytes
            Self.write(part, into: &out, &mask)
        }
        return out
    }

    /// Up to so many bytes off the front; with `whole`, exactly so many or nil.
    private mutating func take(_ count: Int, whole: Bool) -> ByteBuffer? {
        guard var first = waiting.popFirst() else { return nil }
        if whole, first.readableBytes < count {
            waiting.prepend(first)
            return nil
        }
        let part = first.readSlice(length: min(count, first.readableBytes))
        if first.readableBytes > 0 { waiting.prepend(first) }
        bytes -= part?.readableBytes ?? 0
        return part
    }

    private static func write(_ part: ByteBuffer, into out: inout ByteBuffer, _ mask: inout Mask?) {
        guard var key = mask else {
            out.writeImmutableBuffer(part)
            return
        }
        let count = part.readableBytes
        out.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { target in
            part.withUnsafeReadableBytes { key.copy($0, to: target) }
            return count
        }
        mask = key
    }

    /// A control frame; its payload is at most ``Limits/controlBytes``.
    static func control(_ opcode: FrameHeader.Opcode, _ payload: ByteBuffer, mask key: UInt32?) -> ByteBuffer {
        var out = ByteBufferAllocator().buffer(capacity: Limits.headerBytes + payload.readableBytes)
        FrameHeader(opcode: opcode, mask: key, length: payload.readableBytes).write(into: &out)
        var mask = key.map(Mask.init)
        write(payload, into: &out, &mask)
        return out
    }
}
