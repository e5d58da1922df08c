/// What a reader gets of a head/tail buffer: valid UTF-8 of bounded size
/// (docs/contracts/process-api.md#rendered-output).
public struct RenderedOutput: Sendable, Equatable {
    /// Says what is missing; nil when nothing is.
    public struct Truncation: Sendable, Equatable, Codable {
        public var original_bytes: Int
        public var retained_bytes: Int
        public var omitted_bytes: Int
        public var strategy = "head_tail"
    }

    public var output: String
    public var truncated: Truncation?
    /// Lines that were cut because they are longer than ``ProcLimits/lineBytes``.
    public var cutLines = 0

    static let lineSuffix = Array(" ... [truncated]".utf8)

    public init(_ buffer: HeadTailBuffer) {
        self.init(head: buffer.headBytes, tail: buffer.tailBytes, total: buffer.total, omitted: buffer.omitted)
    }

    /// One line, or a part of one, as ``output`` has it.
    static func line(_ bytes: [UInt8]) -> String {
        String(decoding: cuttingLines(UTF8Repair.repaired(bytes[...]), limit: ProcLimits.lineBytes).text, as: UTF8.self)
    }

    init(head: [UInt8], tail: [UInt8], total: Int, omitted: Int) {
        var text: [UInt8]
        if omitted > 0 {
            text = UTF8Repair.repaired(head[..<UTF8Repair.endOfWholeSequences(head)])
            text += Array("\n\n... [omitted \(omitted) bytes] ...\n\n".utf8)
            text += UTF8Repair.repaired(tail[UTF8Repair.startOfWholeSequences(tail)...])
        } else {
            text = UTF8Repair.repaired((head + tail)[...])
        }
        let (cut, lines) = Self.cuttingLines(text, limit: ProcLimits.lineBytes)
        output = String(decoding: cut, as: UTF8.self)
        cutLines = lines
        guard omitted > 0 else { return }
        truncated = Truncation(original_bytes: total, retained_bytes: cut.count, omitted_bytes: omitted)
    }

    /// Cuts each line that is longer than the limit, never inside a UTF-8 sequence. The input is
    /// valid UTF-8.
    /// - Returns: the text, and how many lines of it were cut.
    static func cuttingLines(_ text: [UInt8], limit: Int) -> (text: [UInt8], lines: Int) {
        var result: [UInt8] = []
        var lines = 0
        text.withUnsafeBufferPointer { text in
            // What comes before it is in the result, or is to be copied as it is.
            var copied = 0
            var start = 0
            while start < text.count {
                let end = text[start...].firstIndex(of: UInt8(ascii: "\n")) ?? text.count
                if end - start > limit {
                    var cut = start + limit - lineSuffix.count
                    while cut > start, text[cut] & 0xC0 == 0x80 { cut -= 1 }
                    result += text[copied..<cut]
                    result += lineSuffix
                    lines += 1
                    copied = end
                }
                start = end + 1
            }
            if lines > 0 { result += text[copied...] }
        }
        if lines == 0 { return (text, 0) }
        return (result, lines)
    }
}

/// Turns bytes that need not be UTF-8 into bytes that are.
enum UTF8Repair {
    private static let replacement: [UInt8] = [0xEF, 0xBF, 0xBD]

    /// The text, with U+FFFD for each byte that is part of no valid sequence.
    static func repaired(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        // Almost all output is valid, which the standard library sees many bytes at a time.
        if String(validating: bytes, as: UTF8.self) != nil { return Array(bytes) }
        return bytes.withUnsafeBufferPointer { bytes in
            var result: [UInt8] = []
            result.reserveCapacity(bytes.count)
            // Of the valid bytes that are not copied yet.
            var start = 0
            var index = 0
            while index < bytes.count {
                let length = sequenceLength(bytes, at: index)
                if length == 0 {
                    result += bytes[start..<index]
                    result += replacement
                    start = index + 1
                }
                index += max(length, 1)
            }
            result += bytes[start...]
            return result
        }
    }

    /// Where the head ends when a sequence that the cut split is left out.
    static func endOfWholeSequences(_ bytes: [UInt8]) -> Int {
        for back in 1...3 where back <= bytes.count {
            let byte = bytes[bytes.count - back]
            if byte & 0xC0 == 0x80 { continue }
            let expected = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1
            return expected > back ? bytes.count - back : bytes.count
        }
        return bytes.count
    }

    /// Where the tail starts when the rest of a sequence that the cut split is left out.
    static func startOfWholeSequences(_ bytes: [UInt8]) -> Int {
        var index = 0
        while index < 3, index < bytes.count, bytes[index] & 0xC0 == 0x80 { index += 1 }
        return index
    }

    /// The length of the valid sequence at the index (Unicode 15, table 3-7), or 0.
    private static func sequenceLength(_ bytes: UnsafeBufferPointer<UInt8>, at start: Int) -> Int {
        func continues(_ offset: Int, _ range: ClosedRange<UInt8> = 0x80...0xBF) -> Bool {
            start + offset < bytes.count && range.contains(bytes[start + offset])
        }
        switch bytes[start] {
        case 0x00...0x7F: return 1
        case 0xC2...0xDF: return continues(1) ? 2 : 0
        case 0xE0: return continues(1, 0xA0...0xBF) && continues(2) ? 3 : 0
        case 0xED: return continues(1, 0x80...0x9F) && continues(2) ? 3 : 0
        case 0xE1...0xEF: return continues(1) && continues(2) ? 3 : 0
        case 0xF0: return continues(1, 0x90...0xBF) && continues(2) && continues(3) ? 4 : 0
        case 0xF1...0xF3: return continues(1) && continues(2) && continues(3) ? 4 : 0
        case 0xF4: return continues(1, 0x80...0x8F) && continues(2) && continues(3) ? 4 : 0
        default: return 0
        }
    }
}
