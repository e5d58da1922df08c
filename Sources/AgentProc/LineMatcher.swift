import AgentCore

/// Looks for a pattern in the lines of an output that comes in pieces: a value without I/O.
///
/// The last line is looked at as far as it is there, and again with each further part, so that a prompt without a line
/// end is found, too. A line ends with a line feed, a carriage return (which progress displays write) or both. Of a line
/// that is still being written the last ``windowBytes`` are kept.
struct LineMatcher {
    struct Match: Equatable, Sendable {
        /// Of the match's first byte in the output.
        var offset: Int
        /// Of the line, as far as it is there, without the line end.
        var line: [UInt8]
        var text: [UInt8]
    }

    static let windowBytes = 16 << 10
    /// Bytes that are looked at by one call of the pattern, which cannot be interrupted. A pattern of the slowest kind
    /// takes some 25 ms for each KiB.
    static let lookBytes = 2 * windowBytes
    /// Bytes after which the time is asked for.
    private static let pieceBytes = 1 << 10

    private let pattern: Pattern
    /// The line that is being written.
    private var line: [UInt8] = []
    /// The beginning of the line is not in ``line`` any more.
    private var isCut = false
    /// The last line ended with a carriage return: a line feed after it belongs to that.
    private var endedByReturn = false
    /// The offset after what was looked at.
    private(set) var offset = 0

    init(_ pattern: Pattern) { self.pattern = pattern }

    /// The first match that these bytes complete. What is not looked at when the time is over is left: ``offset`` says
    /// where to go on.
    /// - Parameters:
    ///   - isLatest: there is nothing after these bytes yet, so that a line without an end is looked at as it is.
    ///   - isDue: whether the time is over; asked now and then, so that each call gets on by a little.
    mutating func feed(
        _ bytes: UnsafeRawBufferPointer, isLatest: Bool = true, isDue: () -> Bool = { false }
    ) -> Match? {
        var rest = bytes[...]
        var asksAt = offset + Self.pieceBytes
        while !rest.isEmpty {
            if endedByReturn, rest.first == UInt8(ascii: "\n") {
                rest = rest.dropFirst()
                offset += 1
            }
            endedByReturn = false
            if offset >= asksAt {
                if isDue() { return nil }
                asksAt = offset + Self.pieceBytes
            }
            let part = rest.prefix(Self.lookBytes - line.count)
            if let end = part.firstIndex(where: Self.endsLine) {
                take(part[..<end])
                endedByReturn = rest[end] == UInt8(ascii: "\r")
                rest = rest[(end + 1)...]
                if let match = look(.whole) { return match }
                offset += 1
                (line, isCut) = ([], false)
                continue
            }
            take(part)
            rest = rest[part.endIndex...]
            guard line.count == Self.lookBytes else { continue }
            if let match = look(.goesOn) { return match }
            cut()
        }
        guard isLatest, !line.isEmpty else { return nil }
        let match = look(.latest)
        if line.count > Self.windowBytes { cut() }
        return match
    }

    private mutating func take(_ bytes: Slice<UnsafeRawBufferPointer>) {
        line.append(contentsOf: bytes)
        offset += bytes.count
    }

    private mutating func cut() {
        line.removeFirst(line.count - Self.windowBytes / 2)
        isCut = true
    }

    /// So many bytes are missing; a line does not go on behind them.
    mutating func skip(_ count: Int) {
        offset += count
        (line, isCut, endedByReturn) = ([], true, false)
    }

    private enum Extent {
        case whole
        /// What there is of it so far.
        case latest
        /// More of it is there.
        case goesOn
    }

    private static func endsLine(_ byte: UInt8) -> Bool { byte == UInt8(ascii: "\n") || byte == UInt8(ascii: "\r") }

    private func look(_ extent: Extent) -> Match? {
        line.withUnsafeBytes { text in
            // From the second byte of a line without its beginning, for the first is where `^` matches; and up to the
            // last but one of a line that continues, for after the last is where `$` does.
            let end = text.count
            guard
                let range = pattern.firstMatch(
                    in: text, from: isCut && end > 0 ? 1 : 0, upTo: extent == .goesOn ? end - 1 : end)
            else { return nil }
            return Match(
                offset: offset - line.count + range.lowerBound, line: Array(text), text: Array(text[range]))
        }
    }
}
