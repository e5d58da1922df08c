import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import AgentHTTP
@testable import Files

@Suite(.timeLimit(.minutes(10)), .blocking) struct SearchRoutesTests {
    private func setTime(_ path: String, _ seconds: Int) {
        var times = [timespec(tv_sec: seconds, tv_nsec: 5), timespec(tv_sec: seconds, tv_nsec: 5)]
        utimensat(AT_FDCWD, path, &times, AT_SYMLINK_NOFOLLOW)
    }

    // MARK: - glob

    @Test func globTellsTheNewestFirst() async throws {
        let tree = try SearchTree(["a.c": "", "d/b.c": "", "d/c.c": "", "d/x.h": "", "e.c": ""])
        for (index, name) in ["d/c.c", "a.c", "d/b.c"].enumerated() { setTime("\(tree.root)/\(name)", 1_000 - index) }
        setTime("\(tree.root)/e.c", 999)
        let service = SearchService()
        let answer = try await service.glob(#"{"root": "\#(tree.root)", "pattern": "*.c"}"#)
        #expect(answer.paths == ["d/c.c", "a.c", "e.c", "d/b.c"].map { "\(tree.root)/\($0)" })
        #expect(!answer.truncated)
        for (limit, truncated) in [(3, true), (4, false), (5, false)] {
            let some = try await service.glob(#"{"root": "\#(tree.root)", "pattern": "*.c", "limit": \#(limit)}"#)
            #expect(some.paths == Array(answer.paths.prefix(limit)))
            #expect(some.truncated == truncated)
        }
    }

    @Test func globKeepsTheNewestOfMany() async throws {
        let tree = try SearchTree()
        for number in 0..<3_000 {
            let path = "\(tree.root)/f\(number)"
            close(creat(path, 0o600))
            setTime(path, 1_000 + number * 7_919 % 3_000)
        }
        let answer = try await SearchService().glob(#"{"root": "\#(tree.root)", "pattern": "**", "limit": 5}"#)
        let expected = (0..<3_000).sorted { $0 * 7_919 % 3_000 > $1 * 7_919 % 3_000 }.prefix(5)
        #expect(answer.paths == expected.map { "\(tree.root)/f\($0)" })
        #expect(answer.truncated)
    }

    @Test(arguments: [
        ("*.c", ["a.c", "d/b.c", "d/e/c.c"]), ("/*.c", ["a.c"]), ("./*.c", ["a.c"]), ("d/*.c", ["d/b.c"]),
        ("d/", ["d/b.c", "d/e/c.c"]),
        ("**/e/*", ["d/e/c.c"]), ("d", []), ("{a,b}.c", ["a.c", "d/b.c"]), ("/", ["a.c", "d/b.c", "d/e/c.c"]),
        ("{d/b,a}.c", ["a.c", "d/b.c"]), ("../x", []),
    ])
    func patternsWithoutSlashAreForNames(_ pattern: String, _ expected: [String]) async throws {
        let tree = try SearchTree(["a.c": "", "d/b.c": "", "d/e/c.c": ""])
        let answer = try await SearchService().glob(#"{"root": "\#(tree.root)", "pattern": "\#(pattern)"}"#)
        #expect(answer.paths.sorted() == expected.map { "\(tree.root)/\($0)" })
    }

    @Test func globListsIgnoredFilesOnlyOnRequest() async throws {
        let tree = try SearchTree([".gitignore": "*.o\n", "a.o": "", "b.c": ""])
        let service = SearchService()
        let body = { (more: String) in #"{"root": "\#(tree.root)/./x/..", "pattern": "?.?"\#(more)}"# }
        #expect(try await service.glob(body("")).paths == ["\(tree.root)/b.c"])
        #expect(try await service.glob(body(#", "gitignore": false, "unknown": 1"#)).paths.count == 2)
    }

    @Test(arguments: [
        (#""root": "", "pattern": "a""#, "root"), (#""root": "/", "pattern": """#, "pattern"),
        (#""root": "/", "pattern": "[a""#, "pattern"), (#""root": "/", "pattern": "a", "limit": 0"#, "limit"),
        (#""root": "/", "pattern": "a", "limit": -1"#, "limit"),
        (#""root": "/", "pattern": "a", "limit": 10001"#, "limit"),
    ])
    func badGlobsAreRefused(_ body: String, _ field: String) async throws {
        let error = await #expect(throws: HTTPProblem.self) { _ = try await SearchService().glob("{\(body)}") }
        #expect(error?.status == .badRequest)
        #expect(error?.validations.map(\.field) == [field])
    }

    @Test func rootsMustBeAbsoluteDirectories() async throws {
        let tree = try SearchTree(["f": ""])
        let service = SearchService()
        let relative = await #expect(throws: HTTPProblem.self) {
            try await service.glob(#"{"root": "a", "pattern": "a"}"#)
        }
        #expect(relative?.message == #"file path must be absolute: "a""#)
        for (path, code, text) in [
            ("f", FilesError.Code.invalid, "path \"\(tree.root)/f\" is not a directory"),
            ("none", .notFound, "open \(tree.root)/none: no such file or directory"),
            ("f/x", .invalid, "open \(tree.root)/f/x: not a directory"),
        ] {
            let error = await #expect(throws: FilesError.self) {
                try await service.glob(#"{"root": "\#(tree.root)/\#(path)", "pattern": "a"}"#)
            }
            #expect(error?.code == code)
            #expect(error?.message == text)
        }
    }

    // MARK: - grep

    private func grep(_ tree: SearchTree, _ body: String) async throws -> SearchRoutes.GrepAnswer {
        try await SearchService().grep(#"{"root": "\#(tree.root)", \#(body)}"#)
    }

    @Test func grepTellsPathsLinesAndColumns() async throws {
        let tree = try SearchTree(["b": "x\nfoo\n", "a/c": "é foo\n", "a.c": "foo", "none": "bar"])
        let answer = try await grep(tree, #""pattern": "fo+""#)
        #expect(
            answer.matches == [
                .init(path: "\(tree.root)/a.c", line: 1, column: 1, text: "foo"),
                .init(path: "\(tree.root)/a/c", line: 1, column: 3, text: "é foo"),
                .init(path: "\(tree.root)/b", line: 2, column: 1, text: "foo"),
            ])
        #expect(!answer.truncated)
        #expect(try await grep(tree, #""pattern": "FO+", "ignore_case": true, "glob": "*.c""#).matches.count == 1)
        #expect(try await grep(tree, #""pattern": "fo+", "fixed": true"#).matches.isEmpty)
        let context = try await grep(tree, #""pattern": "foo", "context": 1, "glob": "/b""#).matches
        #expect(context.map(\.before) == [["x"]])
        #expect(context.map(\.after) == [[]])
    }

    @Test func matchesAreLimited() async throws {
        let tree = try SearchTree(["a": "x\nx\n", "b": "x\n"])
        for (limit, truncated) in [(2, true), (3, false), (4, false)] {
            let answer = try await grep(tree, #""pattern": "x", "limit": \#(limit)"#)
            #expect(answer.matches.count == min(limit, 3))
            #expect(answer.truncated == truncated)
        }
        let many = try SearchTree(["a": String(repeating: "x\n", count: 300)])
        let answer = try await grep(many, #""pattern": "x""#)
        #expect(answer.matches.map(\.line) == Array(1...200))
        #expect(answer.truncated)
    }

    @Test func binaryLargeAndIgnoredFilesAreLeftOut() async throws {
        let tree = try SearchTree([".gitignore": "ignored\n", "ignored": "needle", "text": "needle"])
        try tree.write("binary", Array("needle\u{0}".utf8))
        let size = FilesLimits.grepFileBytes
        try tree.write("fits", "needle" + String(repeating: "\n", count: size - 6))
        try tree.write("large", "needle" + String(repeating: "\n", count: size - 5))
        try tree.write("late", "needle" + String(repeating: "\n", count: FilesLimits.binaryBytes - 6) + "\u{0}")
        try tree.write("early", "needle" + String(repeating: "\n", count: FilesLimits.binaryBytes - 7) + "\u{0}")
        let names = try await grep(tree, #""pattern": "needle""#).matches.map { LexicalPath.name($0.path) }
        #expect(names == ["fits", "late", "text"])
        let all = try await grep(tree, #""pattern": "needle", "gitignore": false"#).matches.count
        #expect(all == 4)
    }

    @Test func onlyRegularFilesAreRead() async throws {
        let tree = try SearchTree(["d/a": "needle"])
        tree.link("link", to: "d/a")
        tree.link("up", to: "d")
        tree.fifo("fifo")
        #expect(try await grep(tree, #""pattern": "needle""#).matches.map(\.path) == ["\(tree.root)/d/a"])
    }

    @Test func theRootMayBeAFile() async throws {
        let tree = try SearchTree([".gitignore": "*", "a.c": "x\nneedle"])
        let service = SearchService()
        let body = { (more: String) in #"{"root": "\#(tree.root)/a.c", "pattern": "needle"\#(more)}"# }
        #expect(try await service.grep(body("")).matches.map(\.path) == ["\(tree.root)/a.c"])
        #expect(try await service.grep(body(#", "glob": "*.c""#)).matches.count == 1)
        #expect(try await service.grep(body(#", "glob": "*.h""#)).matches.isEmpty)
        tree.fifo("fifo")
        let error = await #expect(throws: FilesError.self) {
            try await service.grep(#"{"root": "\#(tree.root)/fifo", "pattern": "x"}"#)
        }
        #expect(error?.message == "open \(tree.root)/fifo: not a regular file")
    }

    @Test(arguments: [
        (#""pattern": """#, "pattern"), (#""pattern": "(""#, "pattern"), (#""pattern": "(a)\\1""#, "pattern"),
        (#""pattern": "a\nb""#, "pattern"), (#""pattern": "a", "glob": "{a""#, "glob"),
        (#""pattern": "a", "limit": 0"#, "limit"),
        (#""pattern": "a", "limit": 10001"#, "limit"), (#""pattern": "a", "context": -1"#, "context"),
        (#""pattern": "a", "context": 21"#, "context"),
    ])
    func badGrepsAreRefused(_ body: String, _ field: String) async throws {
        let tree = try SearchTree()
        let error = await #expect(throws: HTTPProblem.self) { _ = try await grep(tree, body) }
        #expect(error?.status == .badRequest)
        #expect(error?.validations.map(\.field) == [field])
    }

    /// A pattern and a text that keep a matcher busy for ever that goes back to try again.
    @Test func hostilePatternsEnd() async throws {
        let tree = try SearchTree(["a": String(repeating: "a", count: 100_000)])
        #expect(try await grep(tree, #""pattern": "(a*)*(a|a)*(a|aa)+b""#).matches.isEmpty)
    }

    // MARK: - Ends

    @Test func aClientThatIsGoneEndsTheWork() async throws {
        let tree = try SearchTree(Dictionary(uniqueKeysWithValues: (0..<50).map { ("d\($0)/f", "needle") }))
        let service = SearchService()
        service.caller.markGone()
        let answer = try await service.grep(#"{"root": "\#(tree.root)", "pattern": "needle"}"#)
        #expect(answer.truncated)
        #expect(answer.matches.isEmpty)
    }

    @Test func aSearchEndsWithItsTime() async throws {
        let clock = ManualClock()
        let tree = try SearchTree(["a": "", "d/b": ""])
        let work = DiskWork(clock: AgentClock(clock), executor: BlockingExecutor.shared, health: HealthRegistry())
        let root = try #require(try TreeRoot(tree.root, pattern: nil, ignoreFiles: nil))
        let waiting = Waiting()
        let walk = TreeWalk(root, pattern: nil, ignoreFiles: nil, visitor: waiting)
        waiting.walk.withLock { $0 = walk }
        async let run: Void = TreeSearch.run(walk, tree.root, work, CallerPresence())
        await waiting.began.valueIgnoringCancellation
        #expect(!walk.isIncomplete)
        // The time limit, what is left behind after it, and the look for calls that hang.
        await clock.sleepers(3)
        clock.advance(by: .milliseconds(FilesLimits.searchMilliseconds))
        try await run
        #expect(walk.isIncomplete)
        waiting.walk.withLock { $0 = nil }
    }

    /// Holds a walk up at its first entry until it is stopped.
    private final class Waiting: TreeVisitor {
        let began = Promise<Void>()
        let walk = Mutex<TreeWalk?>(nil)

        func visit(
            _ entry: TreeEntry, _ buffer: inout ScratchBuffer, until end: ContinuousClock.Instant
        ) -> TreeVisit {
            began.fulfill()
            while walk.withLock({ $0?.isIncomplete }) == false { sched_yield() }
            return .done
        }
    }
}
