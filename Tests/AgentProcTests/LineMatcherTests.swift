import AgentCore
import AgentTestSupport
import Testing

@testable import AgentProc

@Suite struct LineMatcherTests {
    private func match(_ pattern: String, _ pieces: [String]) throws -> LineMatcher.Match? {
        var matcher = LineMatcher(try Pattern(pattern))
        for piece in pieces {
            if let match = Array(piece.utf8).withUnsafeBytes({ matcher.feed($0) }) { return match }
        }
        return nil
    }

    private func text(_ match: LineMatcher.Match?) -> [String]? {
        match.map {
            [String(decoding: $0.line, as: UTF8.self), String(decoding: $0.text, as: UTF8.self), "\($0.offset)"]
        }
    }

    @Test func aMatchMayComeInPieces() throws {
        #expect(
            try text(match("listening on \\d+", ["x\nserver list", "ening ", "on 80", "80\n"])) == [
                "server listening on 80", "listening on 80", "9",
            ])
        #expect(try text(match("b", ["a\n", "b\n"])) == ["b", "b", "2"])
        #expect(try match("a\\nb", ["a\nb\n"]) == nil)
    }

    @Test func aPromptIsFoundWithoutALineEnd() throws {
        #expect(try text(match("assword: $", ["Last login\r\nPassw", "ord: "])) == ["Password: ", "assword: ", "13"])
    }

    @Test func boundsAreTheLines() throws {
        #expect(try match("^b", ["ab\n", "cb\n"]) == nil)
        #expect(try text(match("^b$", ["ab\n", "b\r\n"])) == ["b", "b", "3"])
        #expect(try match("a$", ["a \n"]) == nil)
        #expect(try text(match("^$", ["a\n", "\n"])) == ["", "", "2"])
    }

    /// What a progress display writes: each state of its line is a line.
    @Test func aCarriageReturnEndsALine() throws {
        #expect(try text(match("^20%$", ["10%\r20%\r30%"])) == ["20%", "20%", "4"])
        #expect(try text(match("^20%", ["10%\r", "20", "%\r"])) == ["20%", "20%", "4"])
        #expect(try text(match("^done$", ["99%\rdone\r\n"])) == ["done", "done", "4"])
        // A line feed after it ends no other line, wherever the pieces are cut.
        for pieces in [["a\r\nb"], ["a\r", "\nb"], ["a", "\r", "\n", "b"]] {
            #expect(try match("^$", pieces) == nil, "\(pieces)")
            #expect(try text(match("^b", pieces)) == ["b", "b", "3"], "\(pieces)")
        }
        #expect(try text(match("^$", ["a\r\r\nb"])) == ["", "", "2"])
        #expect(try text(match("^$", ["a\r\n\nb"])) == ["", "", "3"])
        #expect(try match("a.b", ["a\rb\n"]) == nil)
    }

    @Test func longLines() throws {
        let long = String(repeating: "x", count: 3 * LineMatcher.windowBytes)
        #expect(try text(match("needle", [long + "needle\n"]))?[2] == "\(long.utf8.count)")
        #expect(try text(match("needle", [long, long, "nee", "dle"]))?[2] == "\(2 * long.utf8.count)")
        // Its beginning is not there any more.
        #expect(try match("^x", [String(repeating: "y", count: 40_000), "x", "x"]) == nil)
        #expect(try text(match("^z", [long, "\n", "z"]))?[0] == "z")
    }

    @Test func missingBytesEndALine() throws {
        var matcher = LineMatcher(try Pattern("^c|ab"))
        #expect(Array("a".utf8).withUnsafeBytes { matcher.feed($0) } == nil)
        matcher.skip(10)
        #expect(Array("bc".utf8).withUnsafeBytes { matcher.feed($0) } == nil)
        #expect(text(Array("\nc".utf8).withUnsafeBytes { matcher.feed($0) }) == ["c", "c", "14"])
    }

    /// Wherever the pieces are cut: a pattern that needs a whole word is found, at the same place.
    @Test func cutsChangeNothing() throws {
        var random = SeededGenerator("cutsChangeNothing")
        for _ in 0..<200 {
            let output = (0..<Int.random(in: 1...60, using: &random))
                .map { _ in ["a", "b", "ab", "c\n", "\r\n", "\r", "needle "].randomElement(using: &random)! }.joined()
            let bytes = Array(output.utf8)
            var pieces: [String] = []
            var start = 0
            while start < bytes.count {
                let end = min(bytes.count, start + Int.random(in: 1...9, using: &random))
                pieces.append(String(decoding: bytes[start..<end], as: UTF8.self))
                start = end
            }
            #expect(try match("needle", pieces)?.offset == (try match("needle", [output]))?.offset)
        }
    }

    /// Where more of a line is there already, its part does not count as a line, and an interruption loses nothing.
    @Test func aPartOfALineIsNotALine() throws {
        var random = SeededGenerator("aPartOfALineIsNotALine")
        for _ in 0..<200 {
            let lines = (0..<Int.random(in: 1...400, using: &random)).map { _ in
                (0..<Int.random(in: 0...12, using: &random)).map { _ in ["a", "b", " "].randomElement(using: &random)! }
                    .joined()
            }
            let bytes = Array((lines.joined(separator: "\n") + "\n").utf8)
            for (pattern, whole) in [("a$", "a"), ("^b$", nil), (" b$", " b")] as [(String, String?)] {
                let first = lines.firstIndex { whole.map($0.hasSuffix) ?? ($0 == "b") }
                var matcher = LineMatcher(try Pattern(pattern))
                var match: LineMatcher.Match?
                while match == nil, matcher.offset < bytes.count {
                    let start = matcher.offset
                    let end = min(bytes.count, start + Int.random(in: 1...3_000, using: &random))
                    match = bytes[start..<end].withUnsafeBytes {
                        matcher.feed($0, isLatest: end == bytes.count) { Bool.random(using: &random) }
                    }
                    #expect(matcher.offset > start)
                }
                #expect(match.map { String(decoding: $0.line, as: UTF8.self) } == first.map { lines[$0] }, "\(pattern)")
                let offset = first.map { lines[..<$0].reduce(0) { $0 + $1.utf8.count + 1 } }
                #expect(match.map { $0.offset - ($0.line.count - $0.text.count) } == offset, "\(pattern)")
            }
        }
    }

    /// The end of a part of a long line is not its end.
    @Test func longLinesHaveOneEnd() throws {
        let long = String(repeating: "a", count: 5 * LineMatcher.lookBytes)
        var matcher = LineMatcher(try Pattern("a$"))
        for piece in [long + long, "b\n"] {
            #expect(Array(piece.utf8).withUnsafeBytes { matcher.feed($0, isLatest: false) } == nil)
        }
        #expect(try text(match("ab$", [long + "b\n"]))?[2] == "\(long.utf8.count - 1)")
    }
}
