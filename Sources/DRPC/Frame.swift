import NIOCore

/// What a packet is for (bits 1–6 of a frame's first byte).
public enum PacketKind: UInt8, Sendable {
    /// Starts a call; the data is the rpc's name.
    case invoke = 1
    /// An encoded message of the call.
    case message = 2
    /// Ends the call with a code and a text.
    case error = 3
    /// The sender no longer wants the call.
    case cancel = 4
    /// The sender neither sends nor wants more.
    case close = 5
    /// The sender sends no more messages.
    case closeSend = 6
    /// Key-value pairs that belong to the Invoke that follows on the same stream.
    case invokeMetadata = 7
}

/// What precedes the data of a frame: 1 control byte and three varints.
public struct FrameHeader: Sendable, Equatable {
    /// The last frame of its packet.
    public var done: Bool
    /// A receiver that doesn't know the kind ignores the packet instead of failing.
    public var control: Bool
    /// 0–63; may be none of ``PacketKind``.
    public var kind: UInt8
    public var stream: UInt64
    public var message: UInt64
    /// Data bytes that follow.
    public var length: UInt64

    public init(
        kind: UInt8, stream: UInt64, message: UInt64, length: UInt64, done: Bool = true, control: Bool = false
    ) {
        self.kind = kind & 0x3F
        self.stream = stream
        self.message = message
        self.length = length
        self.done = done
        self.control = control
    }

    /// Reads a header from the front of the buffer without consuming it.
    /// - Returns: the header and its size, or nil when more bytes are needed.
    /// - Throws: a protocol violation for a varint of more than ``DRPCLimits/varintBytes`` bytes.
    public static func peek(_ buffer: ByteBuffer) throws(DRPCError) -> (header: FrameHeader, size: Int)? {
        var index = buffer.readerIndex
        guard let first: UInt8 = buffer.getInteger(at: index) else { return nil }
        index += 1
        guard let stream = try varint(buffer, &index),
            let message = try varint(buffer, &index),
            let length = try varint(buffer, &index)
        else { return nil }
        let header = FrameHeader(
            kind: first >> 1, stream: stream, message: message, length: length,
            done: first & 0x01 != 0, control: first & 0x80 != 0)
        return (header, index - buffer.readerIndex)
    }

    /// Appends the header's bytes.
    public func write(into buffer: inout ByteBuffer) {
        buffer.writeInteger((control ? 0x80 : 0) | (kind << 1) | (done ? 1 : 0))
        Self.writeVarint(stream, into: &buffer)
        Self.writeVarint(message, into: &buffer)
        Self.writeVarint(length, into: &buffer)
    }

    private static func varint(_ buffer: ByteBuffer, _ index: inout Int) throws(DRPCError) -> UInt64? {
        var value: UInt64 = 0
        for position in 0..<DRPCLimits.varintBytes {
            guard let byte: UInt8 = buffer.getInteger(at: index) else { return nil }
            index += 1
            // Bits past the 64th are dropped, as the reference does.
            value |= UInt64(byte & 0x7F) &<< UInt64(7 * position)
            if byte & 0x80 == 0 { return value }
        }
        throw .violation("varint of more than \(DRPCLimits.varintBytes) bytes")
    }

    static func writeVarint(_ value: UInt64, into buffer: inout ByteBuffer) {
        var rest = value
        while rest >= 0x80 {
            buffer.writeInteger(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        buffer.writeInteger(UInt8(truncatingIfNeeded: rest))
    }
}

/// One frame: a header and as many data bytes as it says.
public struct Frame: Sendable, Equatable {
    public var header: FrameHeader
    public var data: ByteBuffer

    public init(_ kind: PacketKind, stream: UInt64, message: UInt64, data: ByteBuffer = ByteBuffer()) {
        header = FrameHeader(
            kind: kind.rawValue, stream: stream, message: message, length: UInt64(data.readableBytes))
        self.data = data
    }

    init(header: FrameHeader, data: ByteBuffer) {
        self.header = header
        self.data = data
    }

    /// Takes a whole frame off the front of the buffer, or returns nil and leaves the buffer alone.
    public static func read(from buffer: inout ByteBuffer) throws(DRPCError) -> Frame? {
        guard let (header, size) = try FrameHeader.peek(buffer) else { return nil }
        guard let length = Int(exactly: header.length), length <= buffer.readableBytes - size else { return nil }
        buffer.moveReaderIndex(forwardBy: size)
        guard let data = buffer.readSlice(length: length) else { return nil }
        return Frame(header: header, data: data)
    }

    /// Appends the frame's bytes.
    public func write(into buffer: inout ByteBuffer) {
        header.write(into: &buffer)
        buffer.writeImmutableBuffer(data)
    }
}

/// All frames of one (stream, message) id, put together.
public struct Packet: Sendable, Equatable {
    public var kind: PacketKind
    public var stream: UInt64
    public var message: UInt64
    public var data: ByteBuffer

    public init(_ kind: PacketKind, stream: UInt64, message: UInt64, data: ByteBuffer = ByteBuffer()) {
        self.kind = kind
        self.stream = stream
        self.message = message
        self.data = data
    }

    /// Appends the packet as frames of at most ``DRPCLimits/frameDataBytes``.
    public func write(into buffer: inout ByteBuffer) {
        var rest = data
        repeat {
            let length = min(rest.readableBytes, DRPCLimits.frameDataBytes)
            let header = FrameHeader(
                kind: kind.rawValue, stream: stream, message: message, length: UInt64(length),
                done: length == rest.readableBytes,
                // Cancel came to the protocol later; the bit keeps older receivers from failing.
                control: kind == .cancel)
            header.write(into: &buffer)
            if let part = rest.readSlice(length: length) { buffer.writeImmutableBuffer(part) }
        } while rest.readableBytes > 0
    }
}
