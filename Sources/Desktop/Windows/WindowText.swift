import CDesktop

/// Decodes texts that programs set on their windows.
enum WindowText {
    static func decode(_ text: wd_x_text) -> String {
        let bytes = UnsafeBufferPointer(start: text.bytes, count: text.bytes == nil ? 0 : text.count)
        switch text.encoding {
        case WD_X_LATIN1: return trimmed(latin1(bytes), isCut: false)
        case WD_X_COMPOUND_TEXT: return trimmed(compoundText(bytes), isCut: false)
        default: return trimmed(String(decoding: bytes, as: UTF8.self), isCut: text.is_cut)
        }
    }

    /// Without the NULs at the end that some programs count in, and the half of a character where it was cut.
    private static func trimmed(_ text: String, isCut: Bool) -> String {
        var scalars = text.unicodeScalars
        if isCut, scalars.last == "\u{FFFD}" { scalars.removeLast() }
        while scalars.last == "\0" { scalars.removeLast() }
        return String(scalars)
    }

    private static func latin1(_ bytes: some Sequence<UInt8>) -> String {
        String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
    }

    private enum CharacterSet { case latin1, utf8, other }

    /// ASCII, Latin-1 and UTF-8 are understood; of the other character sets (ISO 2022), each byte is U+FFFD.
    static func compoundText(_ bytes: some Sequence<UInt8>) -> String {
        var result = ""
        var set = CharacterSet.latin1
        var segment: [UInt8] = []
        var escape: [UInt8]?
        func endSegment() {
            switch set {
            case .latin1: result += latin1(segment)
            case .utf8: result += String(decoding: segment, as: UTF8.self)
            case .other: result += String(repeating: "\u{FFFD}", count: segment.count)
            }
            segment = []
        }
        for byte in bytes {
            if let begun = escape {
                escape = begun + [byte]
                // Intermediate bytes are followed by a final one.
                guard !(0x20...0x2F).contains(byte) else { continue }
                switch String(decoding: begun + [byte], as: UTF8.self) {
                case "%G": set = .utf8
                case "%@", "(B", "-A": set = .latin1
                default: set = .other
                }
                escape = nil
            } else if byte == 0x1B {
                endSegment()
                escape = []
            } else {
                segment.append(byte)
            }
        }
        endSegment()
        return result
    }
}
