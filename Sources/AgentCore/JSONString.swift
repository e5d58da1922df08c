import NIOCore

/// JSON strings (RFC 8259, section 7).
package enum JSONString {
    package enum Escaping: Sendable {
        /// What JSON requires.
        case required
        /// DEL and the C1 controls, too: a terminal obeys U+009B as it obeys ESC [.
        case allControls
    }

    /// The most bytes of an escape.
    private static let escape = 6

    /// Writes the text with its quotes.
    package static func write(_ text: String, into out: inout ByteBuffer, escaping: Escaping = .required) {
        var text = text
        text.withUTF8 { bytes in
            let bytes = UnsafeRawBufferPointer(bytes)
            out.reserveCapacity(minimumWritableBytes: bytes.count + bytes.count / 16 + 2 * escape)
            out.writeInteger(UInt8(ascii: "\""))
            var position = 0
            while position < bytes.count {
                out.writeWithUnsafeMutableBytes(minimumWritableBytes: 2 * escape) { area in
                    copy(bytes, from: &position, to: area, escaping)
                }
            }
            out.writeInteger(UInt8(ascii: "\""))
        }
    }

    /// Copies from the position on until the area is full.
    /// - Returns: how many bytes were written.
    private static func copy(
        _ bytes: UnsafeRawBufferPointer, from position: inout Int, to area: UnsafeMutableRawBufferPointer,
        _ escaping: Escaping
    ) -> Int {
        var written = 0
        while position < bytes.count {
            let room = area.count - written - escape
            guard room >= 0 else { break }
            let run = plain(bytes, from: position, escaping)
            let fits = min(run, room)
            let rest = UnsafeMutableRawBufferPointer(rebasing: area[written...])
            rest.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[position..<(position + fits)]))
            (position, written) = (position + fits, written + fits)
            guard fits == run, position < bytes.count else { break }
            written += copyOne(
                bytes, from: &position, to: UnsafeMutableRawBufferPointer(rebasing: area[written...]), escaping)
        }
        return written
    }

    /// How many bytes come before the next one that may need an escape. Sixteen at a time: streamed output would spend
    /// its time here.
    private static func plain(_ bytes: UnsafeRawBufferPointer, from start: Int, _ escaping: Escaping) -> Int {
        func all(_ byte: UInt8) -> SIMD16<UInt8> { SIMD16(repeating: byte) }
        var position = start
        while bytes.count - position >= 16 {
            let part = bytes.loadUnaligned(fromByteOffset: position, as: SIMD16<UInt8>.self)
            var found = (part .< all(0x20)) .| (part .== all(UInt8(ascii: "\""))) .| (part .== all(UInt8(ascii: "\\")))
            if escaping == .allControls { found = found .| (part .== all(0x7F)) .| (part .== all(0xC2)) }
            // `any(found)` takes many times as long.
            let halves = unsafeBitCast(found, to: SIMD2<UInt64>.self)
            let first = UInt64(littleEndian: halves[0]).trailingZeroBitCount / 8
            if first < 8 { return position + first - start }
            let second = UInt64(littleEndian: halves[1]).trailingZeroBitCount / 8
            if second < 8 { return position + 8 + second - start }
            position += 16
        }
        while position < bytes.count {
            switch bytes[position] {
            case 0..<0x20, UInt8(ascii: "\""), UInt8(ascii: "\\"): return position - start
            case 0x7F, 0xC2: if escaping == .allControls { return position - start }
            default: break
            }
            position += 1
        }
        return position - start
    }

    private static func copyOne(
        _ bytes: UnsafeRawBufferPointer, from position: inout Int, to area: UnsafeMutableRawBufferPointer,
        _ escaping: Escaping
    ) -> Int {
        let byte = bytes[position]
        let escaped: UInt8
        position += 1
        switch byte {
        case 0..<0x20, UInt8(ascii: "\""), UInt8(ascii: "\\"): escaped = byte
        case 0x7F where escaping == .allControls: escaped = byte
        // U+0080 to U+009F in UTF-8.
        case 0xC2 where escaping == .allControls && bytes[position] < 0xA0:
            escaped = bytes[position]
            position += 1
        default:
            area[0] = byte
            return 1
        }
        return write(escaped: escaped, to: area)
    }

    private static func write(escaped character: UInt8, to area: UnsafeMutableRawBufferPointer) -> Int {
        area[0] = UInt8(ascii: "\\")
        switch character {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"): area[1] = character
        case UInt8(ascii: "\n"): area[1] = UInt8(ascii: "n")
        case UInt8(ascii: "\r"): area[1] = UInt8(ascii: "r")
        case UInt8(ascii: "\t"): area[1] = UInt8(ascii: "t")
        default:
            area[1] = UInt8(ascii: "u")
            area[2] = UInt8(ascii: "0")
            area[3] = UInt8(ascii: "0")
            area[4] = hexDigit(character >> 4)
            area[5] = hexDigit(character & 15)
            return 6
        }
        return 2
    }

    private static func hexDigit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }
}
