import Testing

@testable import AgentCore

@Suite struct PatternTests {
    private func find(_ pattern: String, _ text: String, _ options: Pattern.Options = [], from: Int = 0) throws
        -> Range<Int>?
    {
        let pattern = try Pattern(pattern, options)
        return Array(text.utf8).withUnsafeBytes { pattern.firstMatch(in: $0, from: from) }
    }

    @Test func finds() throws {
        #expect(try find("b+", "abbc") == 1..<3)
        #expect(try find("x", "abc") == nil)
        #expect(try find("B", "abc", .ignoreCase) == 1..<2)
        #expect(try find("a.c", "abc a.c", .literal) == 4..<7)
        #expect(try find("^a", "aa", from: 1) == nil)
        #expect(try find("a*", "") == 0..<0)
        #expect(try find("é", "caf\u{E9}") == 3..<5)
    }

    @Test func limitAtBelowAndAbove() throws {
        _ = try Pattern(String(repeating: "a", count: 1_023))
        _ = try Pattern(String(repeating: "a", count: 1_024))
        #expect(throws: CoreError(.invalid, "")) { try Pattern(String(repeating: "a", count: 1_025)) }
        #expect(throws: CoreError(.invalid, "")) { try Pattern("") }
    }

    /// What could take more than linear time, or is no pattern, is refused with a reason.
    @Test(arguments: [#"(a)\1"#, "(?=a)", "(?<!a)b", "(", "[a", "a{1001}", #"\"#, "(?P<n"])
    func refused(_ pattern: String) {
        let error = #expect(throws: CoreError.self) { try Pattern(pattern) }
        #expect(error?.message.hasPrefix("is not a valid RE2 regular expression: ") == true)
    }

    /// A backtracking engine would need longer than the machine lasts.
    @Test func nestedRepetitionIsHarmless() throws {
        #expect(try find("(a+)+$", String(repeating: "a", count: 100_000) + "b") == nil)
        #expect(try find("(a|a)*b", String(repeating: "a", count: 100_000)) == nil)
    }

    @Test func bytesThatAreNoTextMatchNothing() throws {
        let pattern = try Pattern("a.b")
        let bytes: [UInt8] = [0x61, 0xFF, 0x62, 0x61, 0x2D, 0x62]
        #expect(bytes.withUnsafeBytes { pattern.firstMatch(in: $0) } == 3..<6)
    }
}
