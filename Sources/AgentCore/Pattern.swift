import CRegex

/// A compiled regular expression of RE2's syntax, whose matching takes time in proportion to the text: a client's pattern
/// can't hold anything up. The one engine of the daemon.
package final class Pattern: Sendable {
    /// Bytes of a client's pattern.
    package static let maximumBytes = 1_024
    /// Bytes that a compiled pattern and its automata take at most.
    private static let memory = 2 << 20

    package struct Options: OptionSet, Sendable {
        package let rawValue: Int32
        package init(rawValue: Int32) { self.rawValue = rawValue }

        package static let ignoreCase = Options(rawValue: Int32(WA_REGEX_IGNORE_CASE))
        /// The pattern is text to find, without special characters.
        package static let literal = Options(rawValue: Int32(WA_REGEX_LITERAL))
        /// `^` and `$` match at the bounds of lines, which no match reaches beyond, but for `\C` (any byte).
        package static let lines = Options(rawValue: Int32(WA_REGEX_LINES))
    }

    // The pointer never changes, and RE2 locks what it changes behind it while it matches.
    nonisolated(unsafe) private let regex: OpaquePointer

    /// - Throws: ``CoreError`` that says what is wrong with the pattern: too long, wrong syntax, or of a kind that
    ///   takes more than linear time (back references, look-around).
    package init(_ text: String, _ options: Options = []) throws(CoreError) {
        guard !text.isEmpty else { throw CoreError(.invalid, "must not be empty") }
        guard text.utf8.count <= Self.maximumBytes else {
            throw CoreError(.invalid, "has \(text.utf8.count) bytes; the limit is \(Self.maximumBytes)")
        }
        var error = [CChar](repeating: 0, count: 256)
        var text = text
        let made = text.withUTF8 { bytes in
            bytes.withMemoryRebound(to: CChar.self) {
                wa_regex_make($0.baseAddress, $0.count, options.rawValue, Self.memory, &error, error.count)
            }
        }
        guard let made else {
            let reason = String(decoding: error.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            throw CoreError(.invalid, "is not a valid RE2 regular expression: \(reason)")
        }
        regex = made
    }

    deinit { wa_regex_free(regex) }

    /// The first match.
    /// - Parameters:
    ///   - text: its beginning and end are where `^` and `$` match, unless ``Options/lines`` was given; bytes that are
    ///     no UTF-8 match nothing.
    ///   - start: where to begin to look.
    ///   - end: where a match ends at the latest; nil is the end of the text. What the text has before and behind
    ///     these bounds still decides whether `^`, `$` and `\b` match there.
    package func firstMatch(
        in text: UnsafeRawBufferPointer, from start: Int = 0, upTo end: Int? = nil
    ) -> Range<Int>? {
        var (lower, upper) = (0, 0)
        // RE2 takes the difference of pointers, and a null one has none.
        guard let base = text.baseAddress?.assumingMemoryBound(to: CChar.self) else {
            var nothing: CChar = 0
            return wa_regex_find(regex, &nothing, 0, 0, 0, &lower, &upper) ? 0..<0 : nil
        }
        guard wa_regex_find(regex, base, text.count, start, end ?? text.count, &lower, &upper) else { return nil }
        return lower..<upper
    }
}
