import AgentTestSupport
import Testing

@testable import WorkspaceScripts

@Suite struct LineSplitterTests {
    private func lines(_ input: [UInt8], limit: Int = 1 << 16, chunk: Int = .max) -> [String] {
        var splitter = LineSplitter(limit: limit)
        var lines: [String] = []
        var rest = input[...]
        while !rest.isEmpty {
            lines += splitter.feed(rest.prefix(chunk))
            rest = rest.dropFirst(chunk)
        }
        if let last = splitter.finish() { lines.append(last) }
        return lines
    }

    @Test(
        arguments: [
            ("", []), ("a", ["a"]), ("a\n", ["a"]), ("a\nb", ["a", "b"]), ("\n\n", ["", ""]),
            ("a\r\nb\r\n", ["a", "b"]),
            ("a\rb\n", ["a\rb"]), ("a\r", ["a\r"]), ("\r\n", [""]), ("a\0b\n", ["a\u{fffd}b"]),
            ("\0\0", ["\u{fffd}\u{fffd}"]),
            ("é\n€", ["é", "€"]), ("a\r\r\n", ["a\r"]),
        ] as [(String, [String])])
    func cuts(_ input: String, _ expected: [String]) {
        for chunk in [1, 2, 3, Int.max] { #expect(lines(Array(input.utf8), chunk: chunk) == expected) }
    }

    @Test func repairsInvalidBytes() {
        #expect(lines([0x61, 0xff, 0x62, 0x0a, 0xc3]) == ["a\u{fffd}b", "\u{fffd}"])
    }

    @Test func atBelowAndAboveTheLimit() {
        #expect(lines(Array("1234567\n".utf8), limit: 8) == ["1234567"])
        #expect(lines(Array("12345678\n".utf8), limit: 8) == ["12345678"])
        #expect(lines(Array("123456789\n".utf8), limit: 8) == ["12345678", "9"])
        #expect(lines(Array("12345678\r\n".utf8), limit: 8) == ["12345678"])
        #expect(lines(Array("1234567\r\n".utf8), limit: 8) == ["1234567"])
        #expect(lines(Array("1234567é9".utf8), limit: 8) == ["1234567", "é9"])
        #expect(lines(Array("123456€".utf8), limit: 8) == ["123456", "€"])
    }

    @Test func anySplitGivesTheSame() async {
        var random = SeededGenerator("LineSplitter")
        let alphabet: [[UInt8]] = [
            [0x0a], [0x0d], [0x0d, 0x0a], [0], [0xff], [0xc3], Array("é".utf8), Array("€".utf8), Array("😀".utf8),
            [0x61], [0x62],
        ]
        for _ in 0..<3_000 {
            await Task.yield()
            let input = (0..<Int.random(in: 0...40, using: &random)).flatMap { _ in
                alphabet.randomElement(using: &random) ?? []
            }
            let limit = Int.random(in: 8...24, using: &random)
            let whole = lines(input, limit: limit)
            #expect(lines(input, limit: limit, chunk: Int.random(in: 1...7, using: &random)) == whole, "\(input)")
            // Nothing is lost or made up: put together again it is the repaired input.
            if limit > 20, let text = String(validating: input, as: UTF8.self) {
                let repaired = text.unicodeScalars.map { $0 == "\0" ? "\u{fffd}" : String($0) }.joined()
                #expect(
                    whole.joined().unicodeScalars.filter { $0 != "\r" }.map(\.value)
                        == repaired.unicodeScalars.filter { $0 != "\r" && $0 != "\n" }.map(\.value))
            }
            for line in whole { #expect(!line.utf8.contains(0) && !line.utf8.contains(10)) }
        }
    }
}
