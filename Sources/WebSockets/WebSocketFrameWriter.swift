import DequeModule
import NIOCore

/// Gathers the bytes of a stream and puts them into binary frames, without I/O.
struct WebSocketFrameWriter {
    private let masks: Bool
    private var waiting = Deque<ByteBuffer>()
    private var bytes = 0
    /// The bytes of the present frame that are still in `waiting`, and their mask.
    private var frameLeft = 0
    private var mask: Mask?
    /// The buffer that frames are built in. Its memory is reused once the transport has released it.
    private var scratch = ByteBuffer()

    /// - Parameter masks: whether frames are masked, as a client's are.
    init(masks: Bool) { self.masks = masks }

    var isEmpty: Bool { bytes == 0 }
    /// Whether there is enough data for a frame without waiting for a flush.
    var isFull: Bool { bytes >= WebSocketLimits.fullBytes }

    mutating func append(_ buffer: ByteBuffer) {
        guard buffer.readableBytes > 0 else { return }
        waiting.append(buffer)
        bytes += buffer.readableBytes
    }

    /// The next bytes for the transport; nil when nothing waits.
    mutating func next(mask makeMask: () -> UInt32) -> ByteBuffer? {
        guard bytes > 0 else { return nil }
        if frameLeft == 0 {
            frameLeft = min(bytes, WebSocketLimits.frameBytes)
            let key = masks ? makeMask() : nil
            mask = key.map(Mask.init)
            scratch.clear(
                minimumCapacity: WebSocketLimits.headerBytes
                    + (masks ? frameLeft : min(frameLeft, WebSocketLimits.copyBytes)))
            WebSocketFrameHeader(opcode: .binary, mask: key, length: frameLeft).write(into: &scratch)
        } else if writesWithoutCopy {
            return take()
        } else {
            scratch.clear(minimumCapacity: min(frameLeft, WebSocketLimits.copyBytes))
        }
        while frameLeft > 0, !writesWithoutCopy, let part = take() { Self.write(part, into: &scratch, &mask) }
        return scratch
    }

    /// Whether copying the next part would cost more than another write.
    private var writesWithoutCopy: Bool {
        guard !masks, let first = waiting.first else { return false }
        return min(first.readableBytes, frameLeft) >= WebSocketLimits.copyBytes
    }

    /// The next part of the present frame.
    private mutating func take() -> ByteBuffer? {
        guard var first = waiting.popFirst() else { return nil }
        let part = first.readSlice(length: min(frameLeft, first.readableBytes))
        if first.readableBytes > 0 { waiting.prepend(first) }
        let count = part?.readableBytes ?? 0
        bytes -= count
        frameLeft -= count
        return part
    }

    /// Frees the memory of past frames.
    mutating func shrink() { scratch = ByteBuffer() }

    private static func write(_ part: ByteBuffer, into out: inout ByteBuffer, _ mask: inout Mask?) {
        if mask?.append(part, to: &out) == nil { out.writeImmutableBuffer(part) }
    }

    /// A control frame; its payload is at most ``WebSocketLimits/controlBytes``.
    static func control(_ opcode: WebSocketFrameHeader.Opcode, _ payload: ByteBuffer, mask key: UInt32?) -> ByteBuffer {
        var out = ByteBufferAllocator().buffer(capacity: WebSocketLimits.headerBytes + payload.readableBytes)
        WebSocketFrameHeader(opcode: opcode, mask: key, length: payload.readableBytes).write(into: &out)
        var mask = key.map(Mask.init)
        write(payload, into: &out, &mask)
        return out
    }
}
