import NIOCore

/// Turns the bytes of one direction of a connection into packets: bytes in, packets or an error
/// out. After an error the connection is to be closed; the reader gives nothing more.
public struct PacketReader: Sendable {
    private var buffer = ByteBuffer()
    private var assembler = PacketAssembler()
    private var failed: DRPCError?

    public init() {}

    /// Bytes that are held: of frames that are not whole yet and of packets without their last
    /// frame.
    public var heldBytes: Int { buffer.readableBytes + assembler.heldBytes }

    /// Adds bytes as they came. Follow with ``next()`` until it returns nil.
    public mutating func append(_ bytes: ByteBuffer) {
        if buffer.readableBytes == 0 {
            buffer = bytes
        } else {
            buffer.discardReadBytes()
            buffer.writeImmutableBuffer(bytes)
        }
    }

    /// The next packet, or nil when more bytes are needed.
    public mutating func next() throws(DRPCError) -> Packet? {
        if let failed { throw failed }
        do {
            while let frame = try nextFrame() {
                if let packet = try assembler.receive(frame) { return packet }
            }
        } catch {
            failed = error
            buffer = ByteBuffer()
            throw error
        }
        return nil
    }

    /// Copies the remaining bytes, so that a few bytes of an incomplete frame don't keep a whole read buffer alive. To be
    /// called when there are no more packets.
    public mutating func compact() {
        let rest = buffer.readableBytes
        if rest == 0 {
            buffer = ByteBuffer()
        } else if buffer.capacity > 2 * rest + 64 {
            var copy = ByteBufferAllocator().buffer(capacity: rest)
            copy.writeImmutableBuffer(buffer)
            buffer = copy
        }
    }

    private mutating func nextFrame() throws(DRPCError) -> Frame? {
        guard let (header, _) = try FrameHeader.peek(buffer) else { return nil }
        // Refused by its header, so that a peer can't make us hold data that we would refuse.
        guard header.length <= UInt64(DRPCLimits.packetBytes) else {
            throw .violation("frame of \(header.length) bytes")
        }
        return try Frame.read(from: &buffer)
    }
}

/// Puts packets together from frames and holds senders to the order of ids.
public struct PacketAssembler: Sendable {
    private struct Open {
        var kind: UInt8
        /// Nil for a kind that we ignore.
        var known: PacketKind?
        var size: Int
        var data: ByteBuffer
    }

    private var stream: UInt64 = 0
    private var message: UInt64 = 0
    private var open: Open?

    public init() {}

    /// Bytes of the packet whose last frame hasn't come.
    public var heldBytes: Int { open?.data.readableBytes ?? 0 }

    /// Bytes of memory that the packet without its last frame keeps alive.
    var retainedBytes: Int { open?.data.storageCapacity ?? 0 }

    /// Takes one frame and returns the packet that it completes.
    /// - Throws: a protocol violation when ids go back, the kind changes within a packet or is
    ///   unknown without the control bit, or the packet is longer than ``DRPCLimits/packetBytes``.
    public mutating func receive(_ frame: Frame) throws(DRPCError) -> Packet? {
        let header = frame.header
        let known = PacketKind(rawValue: header.kind)
        guard known != nil || header.control else { throw .violation("unknown packet kind \(header.kind)") }

        let size: Int
        if let open, (header.stream, header.message) == (stream, message) {
            guard open.kind == header.kind else {
                throw .violation("packet kind changed from \(open.kind) to \(header.kind)")
            }
            size = open.size + frame.data.readableBytes
        } else {
            guard header.stream >= 1, header.message >= 1, (stream, message) < (header.stream, header.message) else {
                throw .violation(
                    "id (\(header.stream), \(header.message)) after (\(stream), \(message))")
            }
            (stream, message) = (header.stream, header.message)
            // The sender has abandoned an unfinished packet: a Cancel may follow it.
            open = nil
            size = frame.data.readableBytes
        }
        guard size <= DRPCLimits.packetBytes else {
            throw .violation("packet of more than \(DRPCLimits.packetBytes) bytes")
        }

        var data = frame.data
        if var unfinished = open.take() {
            if unfinished.known != nil { unfinished.data.writeImmutableBuffer(data) }
            data = unfinished.data
        }
        if header.done { return known.map { Packet($0, stream: stream, message: message, data: data) } }
        if known == nil {
            data = ByteBuffer()
        } else if size == frame.data.readableBytes {
            // A copy of its own: a slice would keep the whole read buffer alive while it waits.
            data = ByteBuffer(bytes: data.readableBytesView)
        }
        open = Open(kind: header.kind, known: known, size: size, data: data)
        return nil
    }
}
