import AgentCore

let newline = UInt8(ascii: "\n")
private let carriageReturn = UInt8(ascii: "\r")

/// A part of an array, or of bytes in memory.
protocol ByteSlice: RandomAccessCollection where Element == UInt8, Index == Int, SubSequence == Self {}

extension ArraySlice<UInt8>: ByteSlice {}
extension Slice<UnsafeBufferPointer<UInt8>>: ByteSlice {}

/// U+FEFF at the beginning of a file. It belongs to no line (docs/contracts/files.md#one-edit).
enum ByteOrderMark {
    private static let bytes: [UInt8] = [0xEF, 0xBB, 0xBF]

    /// How many bytes a text's mark has; 0 without one.
    static func length(in text: [UInt8]) -> Int { text.starts(with: bytes) ? bytes.count : 0 }

    static func removed(from text: [UInt8]) -> [UInt8] {
        let length = length(in: text)
        return length == 0 ? text : Array(text[length...])
    }
}

/// How a line ends.
enum LineEnding: Sendable, Equatable {
    case none
    case lf
    case crlf

    func append(to out: inout [UInt8]) {
        if self == .crlf { out.append(carriageReturn) }
        if self != .none { out.append(newline) }
    }

    /// In bytes.
    var length: Int {
        switch self {
        case .none: 0
        case .lf: 1
        case .crlf: 2
        }
    }

    /// What most lines of a file end with; LF in case of doubt.
    static func ofFile(_ bytes: [UInt8]) -> Self {
        let all = ByteScan.count(newline, in: bytes, 0..<bytes.count)
        // In a file of LF alone there is no need to look at the lines.
        guard all > 0, ByteScan.first(carriageReturn, in: bytes, 0..<bytes.count) != nil else { return .lf }
        let crlf = bytes.withUnsafeBufferPointer { bytes in
            var count = 0
            var before: UInt8 = 0
            for byte in bytes {
                count &+= byte == newline && before == carriageReturn ? 1 : 0
                before = byte
            }
            return count
        }
        return crlf > all - crlf ? .crlf : .lf
    }
}

/// A line and its parts: blanks (spaces and tabs), a middle, blanks, an ending.
struct TextLine {
    /// All but the ending.
    let text: ArraySlice<UInt8>
    let lead: ArraySlice<UInt8>
    /// Begins and ends with something else than a blank; empty in a line of blanks, which are its lead.
    let middle: ArraySlice<UInt8>
    let trail: ArraySlice<UInt8>
    let ending: LineEnding

    init(_ line: ArraySlice<UInt8>) {
        text = Self.withoutEnding(line)
        ending = Self.ending(of: line)
        let start = text.firstIndex { !Blanks.isBlank($0) } ?? text.endIndex
        lead = text[..<start]
        middle = Blanks.withoutTrail(text[start...])
        trail = text[middle.endIndex...]
    }

    var hasText: Bool { !middle.isEmpty }

    static func ending(of line: some ByteSlice) -> LineEnding {
        guard line.last == newline else { return .none }
        return line.dropLast().last == carriageReturn ? .crlf : .lf
    }

    static func withoutEnding<Bytes: ByteSlice>(_ line: Bytes) -> Bytes { line.dropLast(ending(of: line).length) }
}

/// Bytes as lines. What is behind the last newline is a line unless it is empty.
struct TextLines {
    private let bytes: [UInt8]
    /// Where the lines begin, and the end. 32 bits, because a text can have very many lines.
    private let starts: [UInt32]

    init(_ bytes: [UInt8]) { self.init(bytes, 0..<bytes.count) }

    /// - Parameter range: begins where a line begins, and ends where one ends.
    init(_ bytes: [UInt8], _ range: Range<Int>) {
        self.bytes = bytes
        var starts: [UInt32] = [UInt32(truncatingIfNeeded: range.lowerBound)]
        var place = range.lowerBound
        while place < range.upperBound {
            place = min(ByteScan.lineEnd(in: bytes, from: place), range.upperBound)
            starts.append(UInt32(truncatingIfNeeded: place))
        }
        self.starts = starts
    }

    var count: Int { starts.count - 1 }

    /// - Parameter index: 0 to ``count`` - 1.
    subscript(index: Int) -> TextLine { TextLine(line(index)) }

    private func line(_ index: Int) -> ArraySlice<UInt8> { bytes[Int(starts[index])..<Int(starts[index + 1])] }

    /// The ending that all of at least two lines have, but that the last may have none; nil when they differ.
    var agreedEnding: LineEnding? {
        guard count >= 2 else { return nil }
        let first = TextLine.ending(of: line(0))
        guard (1..<count - 1).allSatisfy({ TextLine.ending(of: line($0)) == first }) else { return nil }
        let last = TextLine.ending(of: line(count - 1))
        return last == .none || last == first ? first : nil
    }

    /// The bytes with another ending for all lines but the last.
    func withInnerEnding(_ ending: LineEnding) -> [UInt8] {
        var out: [UInt8] = []
        for index in 0..<count {
            let line = self[index]
            out += line.text
            (index < count - 1 ? ending : line.ending).append(to: &out)
        }
        return out
    }
}

/// What is left out of account at the ends of lines.
enum Blanks {
    static func isBlank(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }

    static func withoutTrail<Bytes: ByteSlice>(_ line: Bytes) -> Bytes {
        var end = line.endIndex
        while end > line.startIndex, isBlank(line[end - 1]) { end -= 1 }
        return line[..<end]
    }

    /// Without characters of Unicode's property White_Space at both ends.
    static func trimmed<Bytes: ByteSlice>(_ line: Bytes) -> Bytes {
        var rest = line
        while !rest.isEmpty {
            let length = spaceAtStart(rest)
            if length == 0 { break }
            rest = rest.dropFirst(length)
        }
        while !rest.isEmpty {
            // No byte that begins a character is also inside of one, so it can be looked at from behind.
            let length = (1...3).first { $0 <= rest.count && spaceAtStart(rest.suffix($0)) == $0 } ?? 0
            if length == 0 { break }
            rest = rest.dropLast(length)
        }
        return rest
    }

    /// How many bytes the White_Space has with which the bytes begin; 0 for none.
    private static func spaceAtStart(_ bytes: some ByteSlice) -> Int {
        let (start, count) = (bytes.startIndex, bytes.count)
        guard count > 0 else { return 0 }
        switch bytes[start] {
        case 0x09...0x0D, 0x20: return 1
        // U+0085, U+00A0.
        case 0xC2: return count > 1 && (bytes[start + 1] == 0x85 || bytes[start + 1] == 0xA0) ? 2 : 0
        case 0xE1, 0xE2, 0xE3:
            guard count > 2 else { return 0 }
            switch (bytes[start], bytes[start + 1], bytes[start + 2]) {
            // U+1680, U+3000.
            case (0xE1, 0x9A, 0x80), (0xE3, 0x80, 0x80): return 3
            // U+2000 to U+200A, U+2028, U+2029, U+202F; U+205F.
            case (0xE2, 0x80, 0x80...0x8A), (0xE2, 0x80, 0xA8...0xA9), (0xE2, 0x80, 0xAF), (0xE2, 0x81, 0x9F): return 3
            default: return 0
            }
        default: return 0
        }
    }
}
