import AgentTestSupport
import Testing

@testable import Files

/// Random edits, compared with what must hold for all of them, or with a slower way to the same.
@Suite(.timeLimit(.minutes(10)), .blocking) struct EditPropertyTests {
    private typealias Random = SeededGenerator

    private func pick<T>(_ from: [T], _ random: inout Random) -> T {
        from[Int.random(in: 0..<from.count, using: &random)]
    }

    /// What the engine makes of it; nil when it fails.
    private func edited(
        _ content: [UInt8], _ search: String, _ replace: String, all: Bool = false
    ) -> EditOutcome? {
        try? EditEngine.apply([FileEdit(.replace(search: search, replace: replace, all: all))], to: content)
    }

    @Test func anExactEditChangesNothingElse() {
        var random = Random("an exact edit")
        let parts: [[UInt8]] = [[10], [13, 10], [0xFF], [0], [0xC3], [0xE2, 0x80], [32], [9], Array("abcé".utf8)]
        for _ in 0..<2_000 {
            func noise(_ random: inout Random) -> [UInt8] {
                (0..<Int.random(in: 0...20, using: &random)).flatMap { _ in pick(parts, &random) }
            }
            let (before, behind) = (noise(&random), noise(&random))
            let search = pick(["<x>", "<x>\n", "\t<x> é", "<\nx\n>"], &random)
            let replace = pick(["", "y", "<x>", " ", "日本\u{0}", "y\n"], &random)
            let outcome = edited(before + Array(search.utf8) + behind, search, replace)
            #expect(outcome?.bytes == before + Array(replace.utf8) + behind)
            let line = before.count { $0 == 10 } + 1
            #expect(outcome?.matches == [EditMatch(pass: .exact, lines: [line])])
        }
    }

    @Test func endingsAreNotMixedWhereTheyWereNot() {
        var random = Random("endings")
        for _ in 0..<4_000 {
            let (ending, sent) = (pick(["\n", "\r\n"], &random), pick(["\n", "\r\n"], &random))
            let lines = (0..<Int.random(in: 1...6, using: &random)).map { _ in
                pick(["", "  ", "\t"], &random) + pick(["a", "b", "c"], &random) + pick(["", " "], &random)
            }
            let content = lines.map { $0 + ending }.joined()
            let first = Int.random(in: 0..<lines.count, using: &random)
            let search = lines[first..<Int.random(in: first..<lines.count, using: &random) + 1].map {
                pick([$0, $0 + " ", " " + $0], &random) + sent
            }
            let replace = (0..<Int.random(in: 0...4, using: &random)).map { _ in
                pick(search + ["  new" + sent, "\tnew " + sent], &random)
            }
            let all = Bool.random(using: &random)
            guard
                let outcome = edited(Array(content.utf8), search.joined(), replace.joined(), all: all)
            else { continue }
            for (index, byte) in outcome.bytes.enumerated() where byte == 10 {
                #expect((index > 0 && outcome.bytes[index - 1] == 13) == (ending == "\r\n"))
            }
            // What is left when a text is taken out, exactly, may be the blanks before it.
            #expect(outcome.bytes.last == 10 || replace.isEmpty)
        }
    }

    /// Lines around a match stay as they are, whatever bytes they have.
    @Test func otherLinesStay() {
        var random = Random("other lines")
        let junk: [UInt8] = [0xFF, 0x80, 0xC3, 0xE2, 0, 13, 9, 32, 0x61]
        for _ in 0..<2_000 {
            func noise(_ random: inout Random) -> [UInt8] {
                (0..<Int.random(in: 0...4, using: &random)).flatMap { _ in
                    (0..<Int.random(in: 0...6, using: &random)).map { _ in pick(junk, &random) } + [10]
                }
            }
            let (before, behind) = (noise(&random), noise(&random))
            let content = before + Array("  begin \n\tend\n".utf8) + behind
            let outcome = edited(content, "begin\n end\n", pick(["x\n", "", "begin\nx\n end\n"], &random))
            #expect(outcome?.matches.first?.pass == .indent)
            #expect(outcome?.bytes.starts(with: before) == true)
            #expect(outcome?.bytes.reversed().starts(with: behind.reversed()) == true)
        }
    }

    @Test func linesAreFoundAsByComparingEach() {
        var random = Random("lines")
        let texts = ["a", " a", "a ", "\ta", "b", "", " ", "\u{A0}a", "a\u{3000}", "\u{200B}a", "a\r"]
        for _ in 0..<4_000 {
            func lines(_ count: ClosedRange<Int>, _ random: inout Random) -> [String] {
                (0..<Int.random(in: count, using: &random)).map { _ in pick(texts, &random) }
            }
            let (search, content) = (lines(1...3, &random), lines(0...12, &random))
            let pass = pick([EditMatch.Pass.trailing, .indent], &random)
            func form(_ line: String) -> [Unicode.Scalar] {
                func isLeftOut(_ scalar: Unicode.Scalar) -> Bool {
                    pass == .indent ? scalar.properties.isWhitespace : scalar == " " || scalar == "\t"
                }
                // A return before the newline is part of the ending.
                var scalars = Array(line.unicodeScalars)
                if scalars.last == "\r" { scalars.removeLast() }
                while let last = scalars.last, isLeftOut(last) { scalars.removeLast() }
                return pass == .indent ? Array(scalars.drop(while: isLeftOut)) : scalars
            }
            var expected: [Int] = []
            var line = 0
            while line + search.count <= content.count {
                if content[line..<line + search.count].map(form) == search.map(form) {
                    expected.append(line)
                    line += search.count
                } else {
                    line += 1
                }
            }
            func bytes(_ lines: [String], _ hasEnd: Bool) -> [UInt8] {
                Array((lines.joined(separator: "\n") + (hasEnd && !lines.isEmpty ? "\n" : "")).utf8)
            }
            // A last line that is empty and has no newline is none.
            let found = LineSearch(for: bytes(search, true), in: bytes(content, true), pass)
            #expect(Array(found) == expected, "\(search) in \(content), \(pass)")
            #expect(found.count == expected.count)
        }
    }

    @Test func whiteSpaceIsThatOfUnicode() {
        for value in UInt32(0)...0x3100 {
            guard let scalar = Unicode.Scalar(value) else { continue }
            let blank = Array(String(scalar).utf8)
            let line = blank + blank + [0x61] + blank + blank
            let trimmed = Blanks.trimmed(line[...])
            #expect((trimmed.count == 1) == scalar.properties.isWhitespace, "U+\(String(value, radix: 16))")
            #expect(Blanks.trimmed(blank[...]).isEmpty == scalar.properties.isWhitespace)
        }
    }

    /// In quadratic time each of these would take minutes.
    @Test func hostileTextsTakeLinearTime() {
        let lines = 1 << 16
        let content = Array(String(repeating: "a\n", count: lines).utf8)
        #expect(edited(content, String(repeating: "a \n", count: lines / 2) + "b\n", "x") == nil)
        #expect(edited(content, String(repeating: "a\n", count: lines / 2) + "b", "x") == nil)
        #expect(edited(content, "b\n" + String(repeating: " a\n", count: lines / 2), "x") == nil)
        #expect(edited(content, " a\n", "  b\n c\n", all: true)?.bytes.count == 5 * lines)
        #expect(edited(content, String(repeating: "a \n", count: lines), String(repeating: "b\n", count: lines)) != nil)
        // Each line is near to each line of the search.
        let near = (2...1_000).map { String(repeating: "a", count: $0) + "\n" }.joined()
        #expect(edited(content, near, "x") == nil)
    }
}
