import AgentTestSupport
import Testing

@testable import AgentProc

@Suite struct OutputRendererTests {
    private func rendered(_ bytes: [UInt8]) -> RenderedOutput {
        var buffer = HeadTailBuffer()
        bytes.withUnsafeBytes { buffer.append($0) }
        return RenderedOutput(buffer)
    }

    @Test func upToTheLimitNothingIsInserted() {
        for count in [0, 1, 16 << 10, (32 << 10) - 1, 32 << 10] {
            let text = String(String(repeating: "0123456789abcde\n", count: 2 << 10).prefix(count))
            let output = rendered(Array(text.utf8))
            #expect(output.output == text)
            #expect(output.truncated == nil)
            #expect(output.cutLines == 0)
        }
    }

    @Test func oneByteBeyondIsTruncated() {
        let output = rendered(Array(repeating: UInt8(ascii: "\n"), count: (32 << 10) + 1))
        #expect(output.truncated?.original_bytes == (32 << 10) + 1)
        #expect(output.truncated?.omitted_bytes == 1)
        #expect(output.truncated?.strategy == "head_tail")
        #expect(output.truncated?.retained_bytes == output.output.utf8.count)
        #expect(output.output.contains("\n\n... [omitted 1 bytes] ...\n\n"))
    }

    @Test func headAndTailAreKept() throws {
        let lines = (0..<10_000).map { "line \($0)\n" }.joined()
        let output = rendered(Array(lines.utf8))
        let omitted = lines.utf8.count - (32 << 10)
        let marker = "\n\n... [omitted \(omitted) bytes] ...\n\n"
        let parts = output.output.components(around: marker)
        #expect(parts.count == 2)
        #expect(lines.hasPrefix(parts[0]))
        #expect(lines.hasSuffix(parts[1]))
        #expect(parts[0].utf8.count == 16 << 10)
        #expect(parts[1].utf8.count == 16 << 10)
    }

    /// In whole output, at its limit, and in truncated output.
    @Test(arguments: [10, 13_000, 40_000]) func longLinesAreCutToTheLimitWithTheSuffix(rest: Int) throws {
        for length in [2047, 2048, 2049, 5000] {
            let line = String(repeating: "a", count: length)
            let output = rendered(Array((line + "\n" + String(repeating: "b\n", count: rest)).utf8))
            let first = try #require(output.output.split(separator: "\n").first)
            #expect((output.truncated == nil) == (rest < 16_000))
            #expect(output.cutLines == (length > 2048 ? 1 : 0))
            if length <= 2048 {
                #expect(String(first) == line)
            } else {
                #expect(first.utf8.count == 2048)
                #expect(first.hasSuffix(" ... [truncated]"))
            }
        }
    }

    @Test(arguments: ["é", "€", "𝄞"]) func lineCutsKeepCharactersWhole(character: String) throws {
        for (padding, rest) in (0..<4).flatMap({ [($0, 1), ($0, 40_000)] }) {
            let line = String(repeating: "a", count: 2028 + padding) + String(repeating: character, count: 100)
            let text = line + "\n" + String(repeating: "b\n", count: rest)
            let first = try #require(rendered(Array(text.utf8)).output.split(separator: "\n").first)
            #expect(first.utf8.count <= 2048 && first.utf8.count > 2044)
            #expect(!first.contains("\u{FFFD}"))
        }
    }

    /// A character of 2, 3 and 4 bytes at each of its offsets across both cuts of the buffer.
    @Test(arguments: ["é", "€", "𝄞"]) func bufferCutsKeepCharactersWhole(character: String) {
        for offset in 0...4 {
            let prefix = String(repeating: ".", count: (16 << 10) - offset)
            let middle = character + String(repeating: "\n", count: 50_000)
            for back in 0...4 {
                let suffix = character + String(repeating: ".", count: (16 << 10) - back)
                let text = prefix + middle + suffix
                let output = rendered(Array(text.utf8))
                #expect(!output.output.contains("\u{FFFD}"), "offset \(offset), \(back)")
                #expect(output.truncated?.omitted_bytes == text.utf8.count - (32 << 10))
            }
        }
    }

    @Test func invalidBytesBecomeReplacementCharacters() {
        let cases: [([UInt8], String)] = [
            ([0x41, 0xFF, 0x42], "A\u{FFFD}B"),
            ([0xC3], "\u{FFFD}"),
            ([0xE2, 0x82, 0x41], "\u{FFFD}\u{FFFD}A"),
            ([0xC0, 0x80], "\u{FFFD}\u{FFFD}"),
            ([0xED, 0xA0, 0x80], "\u{FFFD}\u{FFFD}\u{FFFD}"),
            ([0xF4, 0x90, 0x80, 0x80], "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}"),
            ([0xF0, 0x9D, 0x84, 0x9E], "𝄞"),
            ([0x00, 0x1B], "\u{0}\u{1B}"),
        ]
        for (bytes, text) in cases { #expect(rendered(bytes).output == text) }
    }

    /// Whatever comes in, what goes out is valid, and says its own length.
    @Test func randomBytesRenderToValidText() {
        var random = SeededGenerator("OutputRendererTests.randomBytes")
        for _ in 0..<50 {
            let count = Int.random(in: 0...80_000, using: &random)
            let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
            let output = rendered(bytes)
            if let truncated = output.truncated {
                #expect(truncated.retained_bytes == output.output.utf8.count)
            } else {
                #expect(count <= 32 << 10)
            }
            #expect(output.output.utf8.split(separator: 10).allSatisfy { $0.count <= 2048 })
        }
    }

    /// Against the rule said plainly: each line as it is, or as much of it as leaves room for the suffix.
    @Test func randomLinesAreCutEachByItself() {
        var random = SeededGenerator("OutputRendererTests.randomLines")
        let pieces = ["a", "é", "€", "𝄞", "\u{FFFD}", "\r", "\u{0}"]
        let suffix = " ... [truncated]"
        for _ in 0..<60 {
            var lines: [String] = []
            var room = Int.random(in: 0...(32 << 10), using: &random)
            while room > 0 {
                let wanted = min(room, [0, 10, 2040, 2047, 2048, 2049, 2060, 9000].randomElement(using: &random) ?? 0)
                var line = ""
                while line.utf8.count < wanted { line += pieces.randomElement(using: &random) ?? "" }
                lines.append(line)
                room -= line.utf8.count + 1
            }
            let text = lines.joined(separator: "\n")
            guard text.utf8.count <= 32 << 10 else { continue }
            let expected = lines.map { line -> String in
                guard line.utf8.count > 2048 else { return line }
                var kept: [Unicode.Scalar] = []
                var bytes = suffix.utf8.count
                for scalar in line.unicodeScalars {
                    bytes += String(scalar).utf8.count
                    if bytes > 2048 { break }
                    kept.append(scalar)
                }
                return String(String.UnicodeScalarView(kept)) + suffix
            }
            let output = rendered(Array(text.utf8))
            #expect(Array(output.output.utf8) == Array(expected.joined(separator: "\n").utf8))
            #expect(output.cutLines == lines.count { $0.utf8.count > 2048 })
            #expect(output.truncated == nil)
        }
    }
}

extension String {
    fileprivate func components(around separator: String) -> [String] {
        guard let range = self.firstRange(of: separator) else { return [self] }
        return [String(self[..<range.lowerBound]), String(self[range.upperBound...])]
    }
}
