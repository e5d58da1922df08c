import NIOCore

/// The header of a frame: 12 bytes, big-endian (docs/contracts/yamux.md#header).
public struct YamuxHeader: Sendable, Equatable {
    /// The type of a frame, which determines what its length means.
    public enum Kind: UInt8, Sendable {
        /// Length: bytes of payload that follow.
        case data = 0
        /// Length: what is added to the window.
        case windowUpdate = 1
        /// Length: a value that is echoed. Stream 0.
        case ping = 2
        /// Length: 0 normal, 1 protocol error, 2 internal error. Stream 0.
        case goAway = 3
    }

    /// Unknown bits are kept and have no meaning.
    public struct Flags: OptionSet, Sendable {
        public var rawValue: UInt16
        public init(rawValue: UInt16) { self.rawValue = rawValue }
        public static let syn = Flags(rawValue: 1)
        public static let ack = Flags(rawValue: 2)
        public static let fin = Flags(rawValue: 4)
        public static let rst = Flags(rawValue: 8)
    }

    public static let byteCount = 12
    static let version: UInt8 = 0
    static let goAwayNormal: UInt32 = 0
    static let goAwayProtocolError: UInt32 = 1

    public var kind: Kind
    public var flags: Flags
    public var stream: UInt32
    public var length: UInt32

    public init(_ kind: Kind, _ flags: Flags = [], stream: UInt32, length: UInt32 = 0) {
        self.kind = kind
        self.flags = flags
        self.stream = stream
        self.length = length
    }

    /// Reads a header; nil, without reading anything, when there are too few bytes.
    public static func read(from buffer: inout ByteBuffer) throws(YamuxError) -> YamuxHeader? {
        guard
            let (version, type, flags, stream, length) = buffer.readMultipleIntegers(
                as: (UInt8, UInt8, UInt16, UInt32, UInt32).self)
        else { return nil }
        guard version == Self.version else { throw .violation("a frame of unknown version \(version) came") }
        guard let kind = Kind(rawValue: type) else { throw .violation("a frame of unknown type \(type) came") }
        return YamuxHeader(kind, Flags(rawValue: flags), stream: stream, length: length)
    }

    public func write(into buffer: inout ByteBuffer) {
        buffer.writeMultipleIntegers(Self.version, kind.rawValue, flags.rawValue, stream, length)
    }
}

/// Splits a byte stream into headers and payload. Payload is passed on in the pieces in which it arrives, so that the
/// decoder holds less than one header.
public struct YamuxDecoder: Sendable {
    public enum Element: Sendable, Equatable {
        case header(YamuxHeader)
        /// A piece of the payload of the last Data header; never empty.
        case payload(ByteBuffer)
    }

    private var partial = ByteBuffer()
    private var payloadLeft: UInt32 = 0

    public init() {}

    /// Reads the next element; nil when the buffer is used up. Must not be called again after an error.
    public mutating func next(from buffer: inout ByteBuffer) throws(YamuxError) -> Element? {
        if payloadLeft > 0 {
            let count = min(Int(payloadLeft), buffer.readableBytes)
            guard count > 0, let piece = buffer.readSlice(length: count) else { return nil }
            payloadLeft -= UInt32(count)
            return .payload(piece)
        }
        let header: YamuxHeader?
        if partial.readableBytes > 0 {
            let missing = min(YamuxHeader.byteCount - partial.readableBytes, buffer.readableBytes)
            if var piece = buffer.readSlice(length: missing) { partial.writeBuffer(&piece) }
            header = try YamuxHeader.read(from: &partial)
            if header != nil { partial.clear() }
        } else {
            header = try YamuxHeader.read(from: &buffer)
            if header == nil, buffer.readableBytes > 0 {
                partial.clear(minimumCapacity: YamuxHeader.byteCount)
                partial.writeBuffer(&buffer)
            }
        }
        guard let header else { return nil }
        if header.kind == .data { payloadLeft = header.length }
        return .header(header)
    }
}
