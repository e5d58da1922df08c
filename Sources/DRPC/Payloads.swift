import NIOCore

/// The data of an Error packet: a big-endian code, then text.
public struct ErrorPayload: Sendable, Equatable {
    public var code: UInt64
    public var text: String

    public init(code: UInt64, text: String) {
        self.code = code
        self.text = text
    }

    /// Decodes the data. When it is too short for a code, it is kept as text, with the note that the reference adds.
    public init(_ data: ByteBuffer) {
        var data = data
        if let code: UInt64 = data.readInteger() {
            self.init(code: code, text: String(buffer: data))
        } else {
            self.init(code: 0, text: String(buffer: data) + " (drpcwire note: invalid error data)")
        }
    }

    /// The data, its text cut to ``DRPCLimits/errorTextBytes`` at a character's border.
    public func encoded() -> ByteBuffer {
        var buffer = ByteBuffer()
        buffer.writeInteger(code)
        if text.utf8.count <= DRPCLimits.errorTextBytes {
            buffer.writeString(text)
        } else {
            var kept = Array(text.utf8.prefix(DRPCLimits.errorTextBytes + 1))
            // Drops the extra byte and, when it is inside a character, the rest of that character.
            while let last = kept.popLast(), last & 0xC0 == 0x80 {}
            buffer.writeBytes(kept)
        }
        return buffer
    }
}

/// The data of an InvokeMetadata packet: protobuf's map<string, string> in field 1.
///
/// Written by hand because the reference takes less than protobuf does: an entry must have its key
/// and its value, in this order, and nothing else may be there.
public enum Metadata {
    private static let entryTag: UInt8 = 0x0A
    private static let keyTag: UInt8 = 0x0A
    private static let valueTag: UInt8 = 0x12

    /// The data for the pairs, ordered by key so that equal metadata gives equal bytes.
    public static func encode(_ pairs: [String: String]) -> ByteBuffer {
        var buffer = ByteBuffer()
        for (key, value) in pairs.sorted(by: { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }) {
            var entry = ByteBuffer()
            entry.writeInteger(keyTag)
            FrameHeader.writeVarint(UInt64(key.utf8.count), into: &entry)
            entry.writeString(key)
            entry.writeInteger(valueTag)
            FrameHeader.writeVarint(UInt64(value.utf8.count), into: &entry)
            entry.writeString(value)
            buffer.writeInteger(entryTag)
            FrameHeader.writeVarint(UInt64(entry.readableBytes), into: &buffer)
            buffer.writeBuffer(&entry)
        }
        return buffer
    }

    /// The pairs; of a key that comes twice the last value counts.
    /// - Throws: a protocol violation for other bytes and more than ``DRPCLimits/metadataPairs``.
    public static func decode(_ data: ByteBuffer) throws(DRPCError) -> [String: String] {
        var data = data
        var pairs: [String: String] = [:]
        var count = 0
        while data.readableBytes > 0 {
            count += 1
            guard count <= DRPCLimits.metadataPairs else {
                throw .violation("metadata of more than \(DRPCLimits.metadataPairs) pairs")
            }
            guard var entry = field(entryTag, of: &data),
                let key = field(keyTag, of: &entry),
                let value = field(valueTag, of: &entry),
                entry.readableBytes == 0
            else { throw .violation("undecodable metadata") }
            pairs[String(buffer: key)] = String(buffer: value)
        }
        return pairs
    }

    private static func field(_ tag: UInt8, of buffer: inout ByteBuffer) -> ByteBuffer? {
        guard buffer.readInteger(as: UInt8.self) == tag else { return nil }
        var length: UInt64 = 0
        for position in 0..<DRPCLimits.varintBytes {
            guard let byte: UInt8 = buffer.readInteger() else { return nil }
            length |= UInt64(byte & 0x7F) &<< UInt64(7 * position)
            if byte & 0x80 == 0 {
                return Int(exactly: length).flatMap { buffer.readSlice(length: $0) }
            }
        }
        return nil
    }
}
