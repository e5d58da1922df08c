import NIOCore

/// The header of a frame (RFC 6455 section 5.2).
public struct WebSocketFrameHeader: Equatable, Sendable {
    public enum Opcode: UInt8, Sendable {
        case continuation = 0
        case text = 1
        case binary = 2
        case close = 8
        case ping = 9
        case pong = 10

        var isControl: Bool { rawValue >= 8 }
    }

    /// Whether this frame ends its message.
    public var fin: Bool
    public var opcode: Opcode
    /// nil when the payload is not masked.
    public var mask: UInt32?
    /// Bytes of payload.
    public var length: Int

    public init(fin: Bool = true, opcode: Opcode, mask: UInt32?, length: Int) {
        self.fin = fin
        self.opcode = opcode
        self.mask = mask
        self.length = length
    }

    /// Appends the header in the shortest form.
    public func write(into buffer: inout ByteBuffer) {
        buffer.writeInteger((fin ? 0x80 : 0) | opcode.rawValue)
        let masked: UInt8 = mask == nil ? 0 : 0x80
        switch length {
        case ...125: buffer.writeInteger(masked | UInt8(truncatingIfNeeded: length))
        case ...0xFFFF:
            buffer.writeInteger(masked | 126)
            buffer.writeInteger(UInt16(truncatingIfNeeded: length))
        default:
            buffer.writeInteger(masked | 127)
            buffer.writeInteger(UInt64(truncatingIfNeeded: length))
        }
        if let mask { buffer.writeInteger(mask) }
    }

    /// How long the header is that begins with these two bytes.
    package static func size(secondByte: UInt8) -> Int {
        let length =
            switch secondByte & 0x7F {
            case 126: 2
            case 127: 8
            default: 0
            }
        return 2 + length + (secondByte & 0x80 == 0 ? 0 : 4)
    }

    /// Reads a whole header.
    /// - Parameter role: whose side reads; it decides whether frames must be masked.
    package init(_ bytes: inout ByteBuffer, role: WebSocketRole) throws(WebSocketError) {
        guard let first = bytes.readInteger(as: UInt8.self), let second = bytes.readInteger(as: UInt8.self) else {
            throw .violation("a frame's header is cut")
        }
        guard first & 0x70 == 0 else { throw .violation("reserved bits are set, and no extension was agreed on") }
        guard let opcode = Opcode(rawValue: first & 0x0F) else {
            throw .violation("a frame has the reserved opcode \(first & 0x0F)")
        }
        let isMasked = second & 0x80 != 0
        guard isMasked == (role == .server) else {
            throw .violation(isMasked ? "a server's frame is masked" : "a client's frame is not masked")
        }
        let length: UInt64? =
            switch second & 0x7F {
            case 126: bytes.readInteger(as: UInt16.self).map(UInt64.init)
            case 127: bytes.readInteger(as: UInt64.self)
            case let short: UInt64(short)
            }
        guard let length else { throw .violation("a frame's header is cut") }
        switch second & 0x7F {
        case 126 where length <= 125, 127 where length <= 0xFFFF:
            throw .violation("a frame's length is not in its shortest form")
        default: break
        }
        guard let size = Int(exactly: length) else { throw .violation("a frame's length has its top bit set") }
        fin = first & 0x80 != 0
        if opcode.isControl {
            guard fin else { throw .violation("a control frame is in fragments") }
            guard size <= WebSocketLimits.controlBytes else { throw .violation("a control frame has \(size) bytes") }
        }
        self.opcode = opcode
        self.length = size
        mask = isMasked ? bytes.readInteger(as: UInt32.self) : nil
    }
}
