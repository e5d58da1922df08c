import NIOCore

/// JSON strings (RFC 8259, section 7).
package enum JSONString {
    package enum Escaping: Sendable {
        /// What JSON requires.
        case required
        /// DEL and the C1 controls, too: a terminal obeys U+009B as it obeys ESC [.
        case allControls
    }

    /// Writes the text with its quotes.
    package static func write(_ text: String, into out: inout ByteBuffer, escaping: Escaping = .required) {
        var text = text
        out.reserveCapacity(minimumWritableBytes: text.utf8.count + 2)
        out.writeInteger(UInt8(ascii: "\""))
        text.withUTF8 { bytes in
            var start = 0
            for position in bytes.indices {
                let byte = bytes[position]
                let escaped: UInt8
                switch byte {
                case 0..<0x20, UInt8(ascii: "\""), UInt8(ascii: "\\"): escaped = byte
                case 0x7F where escaping == .allControls: escaped = byte
                // U+0080 to U+009F in UTF-8.
                case 0xC2 where escaping == .allControls && bytes[position + 1] < 0xA0: escaped = bytes[position + 1]
                default: continue
                }
                out.writeBytes(UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: bytes[start..<position])))
                start = position + (byte == 0xC2 ? 2 : 1)
                write(escaped: escaped, into: &out)
            }
            out.writeBytes(UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: bytes[start...])))
        }
        out.writeInteger(UInt8(ascii: "\""))
    }

    private static func write(escaped character: UInt8, into out: inout ByteBuffer) {
        switch character {
        case UInt8(ascii: "\""): out.writeStaticString("\\\"")
        case UInt8(ascii: "\\"): out.writeStaticString("\\\\")
        case UInt8(ascii: "\n"): out.writeStaticString("\\n")
        case UInt8(ascii: "\r"): out.writeStaticString("\\r")
        case UInt8(ascii: "\t"): out.writeStaticString("\\t")
        default:
            out.writeStaticString("\\u00")
            out.writeInteger(hexDigit(character >> 4))
            out.writeInteger(hexDigit(character & 15))
        }
    }

    private static func hexDigit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }
}
