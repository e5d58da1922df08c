import AgentCore

/// Looks for a pattern in the lines of an output that comes in pieces: a value without I/O.
///
/// A line is looked at as soon as a part of it is there, and again with each further part, so that a prompt without a line
/// end is found, too. Of a line that is still being written the last ``windowBytes`` are kept.
struct LineMatcher {
    struct Match: Equatable, Sendable {
        /// Of the match's first byte in the output.
        var offset: Int
        /// Of the line, as far as it is there, without the line end.
        var line: [UInt8]
        var text: [UInt8]
    }

    static let windowBytes = 16 << 10

    private let pattern: Pattern
    /// The line that is being written.
    private var line: [UInt8] = []
    /// The beginning of the line is not in ``line`` any more.
    private var isCut = false
    /// The offset behind what was given.
    private(set) var offset = 0

    init(_ pattern: Pattern) { self.pattern = pattern }

    /// The first match that these bytes complete.
    mutating func feed(_ bytes: UnsafeRawBufferPointer) -> Match? {
        var rest = bytes[...]
        while let newline = rest.firstIndex(of: UInt8(ascii: "\n")) {
            line.append(contentsOf: rest[..<newline])
            offset += newline - rest.startIndex
            rest = rest[(newline + 1)...]
            if let match = look(withoutReturn: true) { return match }
            offset += 1
            (line, isCut) = ([], false)
        }
        guard !rest.isEmpty else { return nil }
        line.append(contentsOf: rest)
        offset += rest.count
        let match = look(withoutReturn: false)
        if line.count > Self.windowBytes {
            line.removeFirst(line.count - Self.windowBytes / 2)
            isCut = true
        }
        return match
    }

    /// So many bytes are missing; a line does not go on behind them.
    mutating func skip(_ count: Int) {
        offset += count
        (line, isCut) = ([], true)
    }

    private func look(withoutReturn: Bool) -> Match? {
        // A terminal ends its lines with both.
        let end = withoutReturn && line.last == UInt8(ascii: "\r") ? line.count - 1 : line.count
        return line.withUnsafeBytes { bytes in
            let text = UnsafeRawBufferPointer(rebasing: bytes[..<end])
            // From the second byte of a line without its beginning, for the first is where `^` matches.
            guard let range = pattern.firstMatch(in: text, from: isCut && end > 0 ? 1 : 0) else { return nil }
            return Match(
                offset: offset - line.count + range.lowerBound, line: Array(text), text: Array(text[range]))
        }
    }
}
