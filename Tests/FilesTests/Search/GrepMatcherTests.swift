import AgentCore
import AgentTestSupport
import Testing

@testable import Files

@Suite(.timeLimit(.minutes(10)), .blocking) struct GrepMatcherTests {
    private func find(
        _ pattern: String, _ text: String, context: Int = 0, limit: Int = 100, options: Pattern.Options = []
    ) throws -> [LineMatch] {
        try find(pattern, Array(text.utf8), context: context, limit: limit, options: options)
    }

    private func find(
        _ pattern: String, _ text: [UInt8], context: Int = 0, limit: Int = 100, options: Pattern.Options = []
    ) throws -> [LineMatch] {
        let search = GrepMatcher(pattern: try Pattern(pattern, options.union(.lines)), context: context)
        var progress = GrepMatcher.Progress()
        return text.withUnsafeBytes { search.matches(in: $0, atMost: limit, from: &progress).found }
    }

    private func places(_ matches: [LineMatch]) -> [[Int]] { matches.map { [$0.line, $0.column] } }

    @Test(arguments: [
        ("b", "a\nb\nab\n", [[2, 1], [3, 2]]), ("b", "b", [[1, 1]]), ("x", "日本x\n", [[1, 3]]),
        ("^b", "ab\nb\n", [[2, 1]]),
        ("a$", "ab\na\n", [[2, 1]]), ("a$", "a", [[1, 1]]), ("^$", "a\n\nb\n", [[2, 1]]), ("^$", "a\n", []),
        ("", "", []),
        ("x*", "a\nb", [[1, 1], [2, 1]]), ("a.b", "a\nb", []), ("a\\sb", "a\nb", []), ("[^x]b", "a\nb", []),
        ("a", "aaa\na", [[1, 1], [2, 1]]),
        ("a", "\u{FEFF}a", [[1, 1]]), ("^a", "\u{FEFF}a", [[1, 1]]), ("(?s)a.*b", "a\nb", []), ("\\Ab", "a\nb", []),
        ("é", "xé", [[1, 2]]),
        ("(?i)B", "ab", [[1, 2]]), ("\\bb\\b", "ab b\nb", [[1, 4], [2, 1]]), ("a\\Cb", "a\nb\na", [[1, 1]]),
    ])
    func placesCountFromOne(_ pattern: String, _ text: String, _ expected: [[Int]]) throws {
        guard !pattern.isEmpty else { return }
        #expect(places(try find(pattern, text)) == expected)
    }

    @Test func fixedTextHasNoSpecialCharacters() throws {
        #expect(places(try find("a.c(", "abc(\na.c(", options: .literal)) == [[2, 1]])
        #expect(places(try find("A.C", "xa.c", options: [.literal, .ignoreCase])) == [[1, 2]])
    }

    @Test func lineEndingsAreNoText() throws {
        #expect(try find("a", "xa\r\ny").map(\.text) == ["xa"])
        #expect(try find("a", "xa\ry").map(\.text) == ["xa\ry"])
    }

    @Test func bytesThatAreNoTextAreReplaced() throws {
        let matches = try find("b", [0x61, 0xFF, 0xC3, 0x62, 0x0A])
        #expect(matches.map(\.text) == ["a\u{FFFD}\u{FFFD}b"])
        // Where it is in the text that is shown.
        #expect(matches.map(\.column) == [4])
    }

    @Test func contextEndsWithTheText() throws {
        let matches = try find("x", "1\n2\nx\n4\n", context: 3)
        #expect(matches.map(\.before) == [["1", "2"]])
        #expect(matches.map(\.after) == [["4"]])
        #expect(try find("x", "1\n\n3\nx\n5\n6", context: 1).map(\.before) == [["3"]])
        #expect(try find("x", "1\nx\n5\n6", context: 1).map(\.after) == [["5"]])
        #expect(try find("x", "x", context: 2) == [LineMatch(line: 1, column: 1, text: "x", before: [], after: [])])
        #expect(try find("x", "x").first?.before == nil)
        #expect(try find("x", "\n\nx\n\n\n", context: 2).map(\.after) == [["", ""]])
    }

    @Test func theLimitEndsTheSearch() throws {
        let text = String(repeating: "x\n", count: 10)
        #expect(try find("x", text, limit: 9).count == 9)
        #expect(try find("x", text, limit: 11).count == 10)
    }

    @Test func longLinesAreCut() throws {
        let limit = FilesLimits.grepLineBytes
        let line = { (count: Int) in "x" + String(repeating: "a", count: count - 1) }
        #expect(try find("x", line(limit)).map(\.text) == [line(limit)])
        #expect(try find("x", line(limit + 1)).map(\.text) == [line(limit) + "... [truncated]"])
        let far = String(repeating: "a", count: 100_000) + "needle" + String(repeating: "b", count: 100_000)
        let shown = try #require(try find("needle", far).first)
        #expect(shown.column == 100_001)
        #expect(shown.text.hasPrefix("[truncated] ...aaa"))
        #expect(shown.text.contains("needlebbb"))
        #expect(shown.text.hasSuffix("b... [truncated]"))
        #expect(shown.text.utf8.count == limit + 30)
        let end = try #require(try find("end", String(repeating: "a", count: 5_000) + "end").first)
        #expect(end.text.hasSuffix("aend"))
        // No character is cut apart.
        for pad in 0..<4 {
            let wide =
                String(repeating: "a", count: pad) + String(repeating: "日", count: 2_000) + "x"
                + String(repeating: "日", count: 2_000)
            for text in try find("[ax]", wide).map(\.text) { #expect(!text.contains("\u{FFFD}")) }
            for text in try find("x", wide).map(\.text) { #expect(!text.contains("\u{FFFD}")) }
        }
    }

    @Test func anAnswerIsBounded() throws {
        let line = String(repeating: "x", count: 1_000) + "\n"
        let matches = try find("x", String(repeating: line, count: 2_000), context: 20, limit: 2_000)
        let bytes = matches.reduce(0) { $0 + $1.bytes }
        #expect(bytes >= FilesLimits.grepAnswerBytes)
        #expect(bytes < FilesLimits.grepAnswerBytes + 50_000)
    }

    /// Against looking at each line by itself.
    @Test func agreesWithLineByLine() throws {
        var random = SeededGenerator("line search")
        let patterns = ["a", "b", "ab", "a*", "^a", "b$", "^$", "a|b", "[^a]", "a.*b", "é", "(ab)+", "\\s"]
        let parts = ["a", "b", "ab", "é", "\n", "\n", "\r\n", " ", "x"]
        for _ in 0..<3_000 {
            let text = (0..<Int.random(in: 0...12, using: &random)).map { _ in parts.randomElement(using: &random) ?? ""
            }.joined()
            let pattern = patterns.randomElement(using: &random) ?? "a"
            let single = try Pattern(pattern)
            var lines = text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map {
                Array($0)
            }
            if lines.last == [] { lines.removeLast() }
            let expected = lines.enumerated().compactMap { index, line -> [Int]? in
                guard let match = line.withUnsafeBytes({ single.firstMatch(in: $0) }) else { return nil }
                return [index + 1, String(decoding: line[..<match.lowerBound], as: UTF8.self).unicodeScalars.count + 1]
            }
            #expect(places(try find(pattern, text)) == expected, "\(pattern) in \(text.debugDescription)")
        }
    }

    /// Wherever the parts of a text end and however often the search is interrupted, it finds what is found line by line.
    @Test func partsChangeNothing() throws {
        var random = SeededGenerator("partsChangeNothing")
        let words = ["a", "b", "ab", "ba ", "x", "needle", "é", "\r"]
        for _ in 0..<40 {
            var lines: [String] = []
            var bytes = 0
            while bytes < 5 * GrepMatcher.windowBytes {
                let count = [0, 1, 3, 30, 9_000].randomElement(using: &random)!
                lines.append((0..<count).map { _ in words.randomElement(using: &random)! }.joined())
                bytes += lines.last!.utf8.count + 1
            }
            let text = Array(lines.joined(separator: "\n").utf8)
            for pattern in ["needle", "^a", "b$", "^$", "x*", "\\bba\\b", "é.{0,3}x", "a\\z"] {
                let compiled = try Pattern(pattern, .lines)
                let search = GrepMatcher(pattern: compiled, context: 0)
                var progress = GrepMatcher.Progress()
                var (found, isFinished) = ([LineMatch](), false)
                while !isFinished {
                    let more = text.withUnsafeBytes {
                        search.matches(in: $0, atMost: 100_000, from: &progress) {
                            Bool.random(using: &random)
                        }
                    }
                    found += more.found
                    isFinished = more.isFinished
                }
                var expected: [[Int]] = []
                for (index, line) in lines.enumerated() where pattern != "a\\z" || index == lines.count - 1 {
                    // The last line is one only if something is in it.
                    if index == lines.count - 1, line.isEmpty { continue }
                    guard let match = Array(line.utf8).withUnsafeBytes({ compiled.firstMatch(in: $0) }) else {
                        continue
                    }
                    let before = String(decoding: Array(line.utf8)[..<match.lowerBound], as: UTF8.self)
                    expected.append([index + 1, before.unicodeScalars.count + 1])
                }
                #expect(places(found) == expected, "\(pattern)")
            }
        }
    }

    /// No call of the pattern gets more than a part of a long line, and the match is found all the same.
    @Test func longLinesAreSearchedInParts() throws {
        let long = String(repeating: "x", count: 10 * GrepMatcher.partBytes)
        for position in stride(from: 0, to: 9 * GrepMatcher.partBytes, by: 10_007) {
            var text = Array(long.utf8)
            text.replaceSubrange(position..<(position + 6), with: "needle".utf8)
            #expect(places(try find("needle", text)) == [[1, position + 1]])
        }
        #expect(try find("x$", long + "\ny").map(\.line) == [1])
        #expect(try find("^x{3}y", long + "y").isEmpty)
        let search = GrepMatcher(pattern: try Pattern("(?:a|b)*a(?:a|b){300}c", .lines), context: 0)
        var progress = GrepMatcher.Progress()
        var pieces = 0
        let text = [UInt8](repeating: UInt8(ascii: "a"), count: 4 * GrepMatcher.partBytes)
        while !text.withUnsafeBytes({ search.matches(in: $0, atMost: 1, from: &progress) { true } }).isFinished {
            pieces += 1
        }
        #expect(pieces >= 4)
    }
}
