import AgentCore
import Glibc

/// A line with a match.
struct LineMatch: Sendable, Equatable {
    /// From 1 on.
    var line: Int
    /// Of the first match's first character (Unicode scalar), from 1 on.
    var column: Int
    var text: String
    /// The lines around, if they were asked for.
    var before: [String]?
    var after: [String]?

    /// What it takes of an answer.
    var bytes: Int { text.utf8.count + ((before ?? []) + (after ?? [])).reduce(64) { $0 + $1.utf8.count } }
}

/// Looks for a pattern in a text, line by line.
struct GrepMatcher: Sendable {
    /// Made with ``Pattern/Options/lines``.
    let pattern: Pattern
    /// How many lines before and after a match are told.
    let context: Int

    /// Where a search in a text has got to.
    struct Progress: Sendable {
        fileprivate var next = 0
        /// The line that was counted last, and where it begins.
        fileprivate var line = 1
        fileprivate var counted = 0
        fileprivate var count = 0
        fileprivate var taken = 0
    }

    /// Bytes of whole lines that are looked at by one call of the pattern, which cannot be interrupted. A pattern of the
    /// slowest kind takes some 25 ms for each KiB.
    static let windowBytes = 16 << 10
    /// Longer lines are looked at in parts of so many bytes, which overlap, so that of a match longer than the overlap
    /// only a part may be found, or none.
    static let partBytes = 32 << 10
    static let overlapBytes = 8 << 10

    /// The matches in a text, or as many as are found in the time.
    /// - Parameters:
    ///   - bytes: the same at each call with the same progress.
    ///   - limit: how many matches are looked for.
    ///   - isDue: whether the time is over; asked after each part of the text.
    /// - Returns: the matches, and whether all of the text was searched, or enough was found.
    func matches(
        in bytes: UnsafeRawBufferPointer, atMost limit: Int, from progress: inout Progress,
        isDue: () -> Bool = { false }
    ) -> (found: [LineMatch], isFinished: Bool) {
        // A byte order mark is not part of the first line.
        let hasMark = bytes.starts(with: [0xEF, 0xBB, 0xBF])
        let text = UnsafeRawBufferPointer(rebasing: bytes.dropFirst(hasMark ? 3 : 0))
        var matches: [LineMatch] = []
        while progress.count < limit, progress.taken < FilesLimits.grepAnswerBytes, progress.next < text.count {
            let end = Self.windowEnd(from: progress.next, in: text)
            if let match = pattern.firstMatch(in: text, from: progress.next, upTo: end) {
                guard match.lowerBound < text.count else { break }
                let range = Self.line(around: match.lowerBound, in: text)
                progress.line += Self.newlines(text[progress.counted..<range.lowerBound])
                progress.counted = range.lowerBound
                let found = found(match.clamped(to: range), progress.line, range, text)
                matches.append(found)
                progress.count += 1
                progress.taken += found.bytes
                // Any byte (`\C`) may be a newline.
                let last = match.upperBound > range.upperBound ? Self.line(around: match.upperBound, in: text) : range
                progress.next = last.upperBound + 1
            } else if end == text.count {
                break
            } else {
                let isWithinLine = text[end - 1] != UInt8(ascii: "\n")
                progress.next = isWithinLine ? end - Self.overlapBytes : end
            }
            if isDue() { return (matches, false) }
        }
        return (matches, true)
    }

    /// Where one call of the pattern ends: after a newline or, within a long line, somewhere.
    private static func windowEnd(from start: Int, in text: UnsafeRawBufferPointer) -> Int {
        guard let base = text.baseAddress, text.count - start > windowBytes else { return text.count }
        let search = start + windowBytes
        let length = min(text.count, start + partBytes) - search
        if let newline = memchr(base + search, CInt(UInt8(ascii: "\n")), length) {
            return UnsafeRawPointer(newline) - base + 1
        }
        return min(text.count, start + partBytes)
    }

    private func found(
        _ match: Range<Int>, _ line: Int, _ range: Range<Int>, _ text: UnsafeRawBufferPointer
    ) -> LineMatch {
        let before = text[range.lowerBound..<match.lowerBound]
        var found = LineMatch(
            line: line, column: String(decoding: before, as: UTF8.self).unicodeScalars.count + 1,
            text: Self.shown(range, match, text))
        guard context > 0 else { return found }
        var (lines, start) = ([String](), range.lowerBound)
        while lines.count < context, start > 0 {
            let line = Self.line(around: start - 1, in: text)
            lines.append(Self.shown(line, nil, text))
            start = line.lowerBound
        }
        found.before = lines.reversed()
        var end = range.upperBound + 1
        lines = []
        while lines.count < context, end < text.count {
            let line = Self.line(around: end, in: text)
            lines.append(Self.shown(line, nil, text))
            end = line.upperBound + 1
        }
        found.after = lines
        return found
    }

    /// The line that an index lies in, without its newline, which counts as part of it.
    private static func line(around index: Int, in text: UnsafeRawBufferPointer) -> Range<Int> {
        let newline = UInt8(ascii: "\n")
        var start = min(index, text.count)
        while start > 0, text[start - 1] != newline { start -= 1 }
        guard let base = text.baseAddress, index < text.count,
            let end = memchr(base + index, CInt(newline), text.count - index)
        else { return start..<text.count }
        return start..<(UnsafeRawPointer(end) - base)
    }

    private static func newlines(_ text: Slice<UnsafeRawBufferPointer>) -> Int {
        var count = 0
        for byte in UnsafeRawBufferPointer(rebasing: text) { count &+= byte == UInt8(ascii: "\n") ? 1 : 0 }
        return count
    }

    /// The text of a line, without a carriage return at its end. Of a long one, a part with the match.
    static func shown(_ range: Range<Int>, _ match: Range<Int>?, _ text: UnsafeRawBufferPointer) -> String {
        var line = UnsafeRawBufferPointer(rebasing: text[range])
        if line.last == UInt8(ascii: "\r") { line = .init(rebasing: line.dropLast()) }
        let limit = FilesLimits.grepLineBytes
        guard line.count > limit else { return String(decoding: line, as: UTF8.self) }
        var start = 0
        if let match, match.upperBound - range.lowerBound > limit {
            // A little of what is before the match tells where it is.
            start = max(0, min(match.lowerBound - range.lowerBound - limit / 8, line.count - limit))
        }
        var end = min(start + limit, line.count)
        // No character is cut apart.
        while start > 0, line[start] & 0xC0 == 0x80, end - start > limit - 4 { start += 1 }
        while end < line.count, line[end] & 0xC0 == 0x80, end > start + limit - 8 { end -= 1 }
        return (start > 0 ? "[truncated] ..." : "") + String(decoding: line[start..<end], as: UTF8.self)
            + (end < line.count ? "... [truncated]" : "")
    }
}
