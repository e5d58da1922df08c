import AgentTestSupport
import Foundation
import Testing

@testable import Files

@Suite(.timeLimit(.minutes(10)), .blocking) struct IgnoreRulesTests {
    /// Whether a rule file in the root ignores an entry (a directory if it ends with a slash), itself or through a
    /// directory above.
    private func ignores(_ text: String, _ path: String) -> Bool {
        IgnoreTree(files: ["": Array(text.utf8)]).ignores(Array(path.utf8))
    }

    @Test(arguments: [
        ("a", "a"), ("a", "x/y/a"), ("a", "a/b"), ("a/", "a/"), ("a/", "a/b"), ("/a", "a"), ("a/b", "a/b"),
        ("*.o", "x/y.o"),
        ("*", ".x"), ("a/*", "a/b"), ("**/a", "a"), ("**/a", "x/y/a"), ("a/**", "a/b/c"), ("a/**/b", "a/b"),
        ("a/**/b", "a/x/y/b"), ("?", "a"), ("??", "é"), ("[a-c]", "b"), ("[!a]", "b"), ("[^a]", "b"), ("[]a]", "]"),
        ("[[:digit:]]x", "1x"), ("\\#a", "#a"), ("\\!a", "!a"), ("a\\ ", "a "), ("a ", "a"), ("a\t", "a\t"),
        ("a\r\n", "a"),
        ("a\\*", "a*"), ("\u{FEFF}a", "a"), ("#c\n\na", "a"), ("!a\na", "a"), ("a\n!a\na", "a"),
        ("build/\n!build/x", "build/x"),
        ("a**b", "axb"), ("a\\\\b", "a\\b"), ("foo/bar/", "foo/bar/x"), ("a/**/", "a/b/"),
        ("**\\/b", "x/y/b"),
    ])
    func ignored(_ text: String, _ path: String) {
        #expect(ignores(text, path))
    }

    @Test(arguments: [
        ("a", "b"), ("a", "ab"), ("a/", "a"), ("/a", "x/a"), ("a/b", "x/a/b"), ("*.o", "x.oo"), ("a/*", "a"),
        ("a/*b", "a/x/b"),
        ("a/**", "a"), ("?", "é"), ("[a-c]", "d"), ("[!a]", "a"), ("[a", "[a"), ("[a", "a"), ("a\\", "a"),
        ("a\\", "a\\"),
        ("#a", "#a"), ("", "a"), ("/", "a"), ("!", "!"), ("a\n!a", "a"), ("a/*\n!a/b", "a/b"), ("[c-a]", "b"),
        (" a", "a"),
        ("[[:nothing:]]", "n"), ("a//", "a/"), ("a/?b", "a//b"), ("*/b", "b"), ("*/b", "a/x/b"), ("a\u{0}", "a"),
    ])
    func notIgnored(_ text: String, _ path: String) {
        #expect(!ignores(text, path))
    }

    @Test func innerFilesComeFirst() {
        let tree = IgnoreTree(files: ["": Array("*.log\n/only".utf8), "d/": Array("!keep.log\n/here".utf8)])
        #expect(tree.ignores(Array("d/a.log".utf8)))
        #expect(!tree.ignores(Array("d/keep.log".utf8)))
        #expect(tree.ignores(Array("keep.log".utf8)))
        #expect(tree.ignores(Array("d/here".utf8)))
        #expect(!tree.ignores(Array("here".utf8)))
        #expect(!tree.ignores(Array("d/only".utf8)))
    }

    @Test func limits() {
        let line = { (count: Int) in Array("*".utf8) + Array(repeating: UInt8(ascii: "?"), count: count - 1) }
        #expect(IgnoreRule(line(1_024)) != nil)
        #expect(IgnoreRule(line(1_025)) == nil)

        let rules = { (count: Int) in
            IgnoreRules(Array(String(repeating: "x\n", count: count).utf8), base: 0, outer: nil)
        }
        #expect(rules(FilesLimits.ignoreRules - 1).count == FilesLimits.ignoreRules - 1)
        #expect(rules(FilesLimits.ignoreRules + 1).count == FilesLimits.ignoreRules)
        // Those of the directories above count.
        #expect(IgnoreRules(Array("a\nb".utf8), base: 0, outer: rules(FilesLimits.ignoreRules - 1)).count == 20_000)

        let big = Array([[UInt8]](repeating: line(1_024), count: 40).joined(separator: [UInt8(ascii: "\n")]))
        #expect(IgnoreRules(big, base: 0, outer: nil).places == FilesLimits.ignorePlaces)
        // What needs no pattern goes on being understood.
        let both = IgnoreRules(big + Array("\nname".utf8), base: 0, outer: nil)
        #expect(Array("name".utf8).withUnsafeBytes { both.ignores($0, nameStart: 0, isDirectory: false) })
    }

    /// Random rules in random places, against git itself.
    @Test(.enabled(if: hasGit)) func agreesWithGit() throws {
        var random = SeededGenerator("ignore rules")
        let directory = try TemporaryDirectory()
        let root = "\(directory.path)/r"
        try #expect(CommandResult.of(["git", "init", "-q", root]).code == 0)
        let names = ["a", "b", "ab", "a.c", "é", "a ", "#h", "!n", "]", "a*b", "c\\"]
        var paths: [String] = []
        var directories = [""]
        for depth in 0..<3 {
            for parent in directories.filter({ $0.split(separator: "/").count == depth }) {
                for name in names.shuffled(using: &random).prefix(depth == 0 ? 11 : 5) {
                    let isDirectory = depth < 2 && Bool.random(using: &random)
                    paths.append(parent + name + (isDirectory ? "/" : ""))
                    if isDirectory {
                        try FileManager.default.createDirectory(
                            atPath: "\(root)/\(parent)\(name)", withIntermediateDirectories: true)
                        directories.append("\(parent)\(name)/")
                    } else {
                        _ = FileManager.default.createFile(atPath: "\(root)/\(parent)\(name)", contents: nil)
                    }
                }
            }
        }
        let asked = paths.map { $0.hasSuffix("/") ? String($0.dropLast()) : $0 }
        try Data((asked.joined(separator: "\0") + "\0").utf8).write(to: URL(fileURLWithPath: "\(directory.path)/asked"))

        let rounds = ProcessInfo.processInfo.environment["TEST_ROUNDS"].flatMap(Int.init) ?? 60
        for _ in 0..<rounds {
            var files: [String: [UInt8]] = [:]
            for place in directories {
                let file = "\(root)/\(place).gitignore"
                unlink(file)
                guard place.isEmpty || Int.random(in: 0..<4, using: &random) == 0 else { continue }
                let text = Self.rules(&random)
                files[place] = Array(text.utf8)
                try Data(text.utf8).write(to: URL(fileURLWithPath: file))
            }
            let exclude = Self.rules(&random)
            try Data(exclude.utf8).write(to: URL(fileURLWithPath: "\(root)/.git/info/exclude"))
            let answer = try CommandResult.of([
                "sh", "-c", "cd \"$0\" && git -c core.excludesFile= check-ignore --no-index --stdin -z < ../asked",
                root,
            ])
            let expected = Set(answer.output.utf8.split(separator: 0).map { Array($0) })
            let tree = IgnoreTree(files: files, exclude: Array(exclude.utf8))
            for (path, name) in zip(paths, asked) {
                let isIgnored = tree.ignores(Array(path.utf8))
                guard isIgnored != expected.contains(Array(name.utf8)) else { continue }
                let rules = files.mapValues { String(decoding: $0, as: UTF8.self) }
                Issue.record("\(path) \(isIgnored ? "is" : "is not") ignored by \(rules), exclude \(exclude)")
                return
            }
        }
    }

    private static func rules(_ random: inout SeededGenerator) -> String {
        let parts = [
            "a", "b", "a", "b", "é", ".c", "*", "**", "**", "?", "/", "/", "/", "/", "[ab]", "[!a]", "[^b]", "[a-c]",
            "[]]", "[",
            "\\", "\\a", "\\*", " ", "#", "!", "]", "{a,b}", "[[:alpha:]]", "[b-a]", "\t", "\\ ", "[a\\]]", "[--b]",
            "***",
        ]
        return (0..<Int.random(in: 1...5, using: &random)).map { _ in
            (Int.random(in: 0..<3, using: &random) == 0 ? "!" : "")
                + (0..<Int.random(in: 1...5, using: &random)).map { _ in parts.randomElement(using: &random) ?? "" }
                .joined()
                + (Int.random(in: 0..<9, using: &random) == 0 ? "\r" : "")
        }.joined(separator: "\n") + (Bool.random(using: &random) ? "\n" : "")
    }

    private static let hasGit = (try? CommandResult.of(["git", "--version"]).code) == 0
}

/// A tree with rule files, walked down as a search does.
private struct IgnoreTree {
    /// By directory, "" or with a slash at the end.
    var files: [String: [UInt8]]
    var exclude: [UInt8] = []

    /// - Parameter path: of a directory with a slash at the end.
    func ignores(_ path: [UInt8]) -> Bool {
        var rules = IgnoreRules(exclude, base: 0, outer: nil)
        var start = 0
        while true {
            if let text = files[String(decoding: path[..<start], as: UTF8.self)] {
                rules = IgnoreRules(text, base: start, outer: rules)
            }
            let end = path[start...].firstIndex(of: UInt8(ascii: "/")) ?? path.count
            let isIgnored = path[..<end].withUnsafeBytes {
                rules.ignores($0, nameStart: start, isDirectory: end < path.count)
            }
            if isIgnored { return true }
            guard end + 1 < path.count else { return false }
            start = end + 1
        }
    }
}
