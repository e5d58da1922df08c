import AgentTestSupport
import Testing

@testable import Files

@Suite(.timeLimit(.minutes(10)), .blocking) struct GlobPatternTests {
    private func matches(_ pattern: String, _ path: String) throws -> Bool {
        try GlobPattern(pattern).matches(PathText.bytes(path))
    }

    @Test(arguments: [
        ("a", "a"), ("*", "a"), ("*", ".a"), ("*.c", "x.c"), ("a*b*c", "aXbYc"), ("a*", "a"), ("?", "é"), ("?", "日"),
        ("a/*", "a/b"), ("**", "a/b/c"), ("**/c", "c"), ("**/c", "a/b/c"), ("a/**/c", "a/c"), ("a/**/c", "a/x/y/c"),
        ("a/**", "a/b"), ("a/**", "a/b/c"), ("/x/**/*.log", "/x/a.log"), ("/x/**/*.log", "/x/s/t/a.log"),
        ("a**b", "axb"), ("**/*.{c,h}", "s/x.h"), ("{a,b/c}", "b/c"), ("{,x}a", "a"), ("{,x}a", "xa"),
        ("{a,{b,c}d}", "cd"), ("{src/**,doc}", "src/a/b"), ("{**/a,b}", "x/a"), ("[ab]", "b"), ("[!ab]", "c"),
        ("[^ab]", "c"), ("[a-c]x", "bx"), ("[]a]", "]"), ("[a-]", "-"), ("[é-ü]", "ö"), ("[\\]]", "]"),
        ("[[:digit:]]", "7"), ("[[:alpha:]_]", "_"), ("\\*", "*"), ("a\\*b", "a*b"), ("\\a", "a"), ("a,b", "a,b"),
        ("a]", "a]"), ("*\u{10FEFF}", "a\u{10FEFF}"), ("?", "\u{10FEFF}"), ("x\u{10FEC3}*", "x\u{10FEC3}y"),
    ])
    func matching(_ pattern: String, _ path: String) throws {
        #expect(try matches(pattern, path))
    }

    @Test(arguments: [
        ("a", "b"), ("a", "ab"), ("a", ""), ("*", "a/b"), ("?", "/"), ("?", "ab"), ("?", "\u{10FEC3}\u{10FEA9}x"),
        ("a?b", "a/b"), ("a[!x]b", "a/b"), ("a[/]b", "a/b"), ("*.c", "a/x.c"), ("a**b", "ax/yb"), ("a/**", "a"),
        ("**/c", "xc"), ("a/**/c", "a/xc"), ("a/**/c", "axc"), ("{a,b}", "c"), ("{a,b}", "a,b"), ("[a-c]", "d"),
        ("[!a-c]", "b"), ("x{**,y}", "xa/b"), ("a,**", "a,b/c"), ("[[:digit:]]", "d"), ("\\*", "a"), ("a\\*b", "axb"),
        ("bc", "abc"), ("abc", "bc"), ("e\u{301}", "é"),
    ])
    func notMatching(_ pattern: String, _ path: String) throws {
        #expect(try !matches(pattern, path))
    }

    @Test(arguments: [
        "[a", "[", "[]", "[!]", "[a\\", "{a", "{a,{b}", "a}", "a\\", "[b-a]", "[[:nothing:]]", "{a\\}", "[a-\\",
    ])
    func badPatternsAreRefused(_ pattern: String) {
        let error = #expect(throws: FilesError(.invalid, "")) { try GlobPattern(pattern) }
        #expect(error?.message == "syntax error in pattern")
    }

    /// A slash that is encoded in too many bytes, a half of a pair, what lies beyond all characters.
    @Test(
        arguments: [[0xC0, 0xAF], [0xE0, 0x80, 0xAF], [0xED, 0xA0, 0x80], [0xF4, 0x90, 0x80, 0x80], [0xC3]] as [[UInt8]]
    )
    func eachByteThatIsNoTextIsACharacter(_ name: [UInt8]) throws {
        #expect(try GlobPattern(String(repeating: "?", count: name.count)).matches(name))
        #expect(try !GlobPattern(String(repeating: "?", count: name.count - 1)).matches(name))
    }

    @Test func limits() throws {
        #expect(try matches(String(repeating: "?", count: 1_024), String(repeating: "é", count: 1_024)))
        #expect(throws: FilesError(.invalid, "")) { try GlobPattern(String(repeating: "?", count: 1_025)) }
        let nested = { (depth: Int) in String(repeating: "{", count: depth) + "a" + String(repeating: "}", count: depth)
        }
        #expect(try matches(nested(8), "a"))
        #expect(throws: FilesError(.invalid, "")) { try GlobPattern(nested(9)) }
    }

    /// Time grows with pattern × path; a matcher that goes back to try again would not end.
    @Test func hostilePatternsEnd() throws {
        let stars = String(repeating: "*a", count: 500)
        #expect(try !matches(stars + "b", String(repeating: "a", count: 4_000)))
        #expect(try !matches(String(repeating: "**/", count: 300) + "b", String(repeating: "a/", count: 2_000) + "c"))
        #expect(try !matches(String(repeating: "{a,aa,}", count: 140), String(repeating: "a", count: 1_000) + "b"))
    }

    @Test(arguments: [
        ("/a/b/c*", "/a/b", "c*"), ("/*", "/", "*"), ("*.c", "", "*.c"), ("/a/b", "/a", "b"),
        ("a/{b,c/d}", "a", "{b,c/d}"),
        ("/a\\*/b", "/", "a\\*/b"),
    ])
    func theNamedDirectoryIsTold(_ pattern: String, _ directory: String, _ rest: String) throws {
        let pattern = try GlobPattern(pattern)
        #expect(pattern.directory == Array(directory.utf8))
        #expect(pattern.rest == Array(rest.utf8))
    }

    @Test func literalPatternsAreTold() throws {
        #expect(try GlobPattern("/a/b.c").isLiteral)
        for pattern in ["*", "a?", "[a]", "{a}", "\\a"] { #expect(try !GlobPattern(pattern).isLiteral) }
    }

    @Test(arguments: [
        ("a/b/*.c", "a", true), ("a/b/*.c", "b", false), ("*.c", "a", false), ("**/*.c", "a", true), ("*/x", "a", true),
        ("{a,b}/c", "b", true), ("a", "a", false), ("a/**", "a", true), ("a/**", "b", false),
    ])
    func directoriesWithoutMatchesAreTold(_ pattern: String, _ name: String, _ expected: Bool) throws {
        let pattern = try GlobPattern(pattern)
        let place = Array(name.utf8).withUnsafeBytes { pattern.entering($0, in: pattern.start) }
        #expect((place != nil) == expected)
    }

    /// Against a matcher that simply tries everything, on short random patterns and paths; element by element it must
    /// come to the same.
    @Test func agreesWithASlowMatcher() throws {
        var random = SeededGenerator("glob patterns")
        let parts = ["a", "b", "é", "*", "**", "/", "/", "?", "[ab]", "[!a]", "{a,b}", "{a/b,}", "{*,b}", "\\*"]
        let names: [Character] = ["a", "b", "é", "/", "*"]
        for _ in 0..<20_000 {
            let text = (0..<Int.random(in: 1...6, using: &random)).map { _ in parts.randomElement(using: &random) ?? ""
            }
            .joined()
            let path = String(
                (0..<Int.random(in: 0...7, using: &random)).map { _ in names.randomElement(using: &random) ?? "a" })
            let pattern = try GlobPattern(text)
            let expected = SlowGlob.matches(text, path)
            #expect(pattern.matches(Array(path.utf8)) == expected, "\(text) on \(path)")
            var place: GlobPattern.Place? = pattern.start
            var elements = path.split(separator: "/", omittingEmptySubsequences: false).map { Array($0.utf8) }
            let last = elements.popLast() ?? []
            for element in elements {
                place = place.flatMap { place in element.withUnsafeBytes { pattern.entering($0, in: place) } }
            }
            let stepwise = place.map { place in last.withUnsafeBytes { pattern.matches($0, in: place) } } ?? false
            // The last element is never empty of a path that a walk comes upon.
            #expect(stepwise == expected || last.isEmpty, "\(text) on \(path), by elements")
        }
    }
}

/// The meaning of a pattern, spelled out: braces are multiplied out, then everything is tried.
private enum SlowGlob {
    static func matches(_ pattern: String, _ path: String) -> Bool {
        expanded(pattern).contains { match(tokens($0)[...], Array(path)[...]) }
    }

    /// Only the braces of the test, which are not nested.
    private static func expanded(_ pattern: String) -> Set<String> {
        guard let open = pattern.firstIndex(of: "{"), let close = pattern[open...].firstIndex(of: "}") else {
            return [pattern]
        }
        let choices = pattern[pattern.index(after: open)..<close].split(
            separator: ",", omittingEmptySubsequences: false)
        let behind = pattern[pattern.index(after: close)...]
        return Set(choices.flatMap { expanded("\(pattern[..<open])\0\($0)\0\(behind)") })
    }

    private enum Token: Equatable {
        case nothing, one(Character), any, among(Bool, [Character]), stars, elements, everything
    }

    private static func tokens(_ pattern: String) -> [Token] {
        var tokens: [Token] = []
        var rest = Array(pattern)[...]
        while let next = rest.popFirst() {
            switch next {
            // Where braces were; stars on both sides of it don't belong together.
            case "\0": tokens.append(.nothing)
            case "\\": tokens.append(.one(rest.popFirst() ?? "\\"))
            case "?": tokens.append(.any)
            case "[":
                let negated = rest.first == "!"
                let end = rest.firstIndex(of: "]") ?? rest.endIndex
                tokens.append(.among(negated, Array(rest[rest.startIndex..<end].drop { $0 == "!" })))
                rest = rest[min(end + 1, rest.endIndex)...]
            case "*":
                let count = 1 + rest.prefix { $0 == "*" }.count
                rest = rest.dropFirst(count - 1)
                let begins = tokens.isEmpty || tokens.last == .one("/") || tokens.last == .elements
                if count == 1 || !begins || !(rest.isEmpty || rest.first == "/") {
                    tokens.append(.stars)
                } else if rest.popFirst() == nil {
                    tokens.append(.everything)
                } else {
                    tokens.append(.elements)
                }
            default: tokens.append(.one(next))
            }
        }
        return tokens
    }

    private static func match(_ tokens: ArraySlice<Token>, _ path: ArraySlice<Character>) -> Bool {
        guard let token = tokens.first else { return path.isEmpty }
        let rest = tokens.dropFirst()
        switch token {
        case .nothing: return match(rest, path)
        case .one(let character): return path.first == character && match(rest, path.dropFirst())
        case .any: return path.first.map { $0 != "/" } == true && match(rest, path.dropFirst())
        case .among(let negated, let characters):
            guard let first = path.first, first != "/" else { return false }
            return characters.contains(first) != negated && match(rest, path.dropFirst())
        case .everything: return true
        case .stars:
            let most = path.prefix { $0 != "/" }.count
            return (0...most).contains { match(rest, path.dropFirst($0)) }
        case .elements:
            return match(rest, path)
                || path.indices.contains { path[$0] == "/" && match(rest, path[($0 + 1)...]) }
        }
    }
}
