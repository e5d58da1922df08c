import AgentTestSupport
import Foundation
import Synchronization
import Testing

@testable import GitWatch

/// A directory in which a script has made something.
struct Scene: Sendable {
    let directory: TemporaryDirectory
    let root: String
    let output: String

    init(_ script: String, root: String = "r") throws {
        directory = try TemporaryDirectory()
        output = try Scene.shell(Corpus.prelude + script, in: directory.path)
        self.root = "\(directory.path)/\(root.isEmpty ? "r" : root)"
    }

    var environment: [String: String] {
        ["PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "\(directory.path)/home", "GIT_CONFIG_NOSYSTEM": "1"]
    }

    var command: GitCommand { GitCommand(environment: environment) }

    @discardableResult
    func run(_ script: String) throws -> String {
        try Scene.shell("export HOME='\(directory.path)/home' GIT_CONFIG_NOSYSTEM=1\n" + script, in: root)
    }

    /// What the CLI says.
    func oracle() throws -> [UInt8] {
        let file = "\(directory.path)/oracle"
        try run("exec 2>/dev/null >'\(file)'\n" + Corpus.oracle)
        return [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
    }

    @discardableResult
    static func shell(_ script: String, in directory: String) throws -> String {
        let result = try CommandResult.of(["sh", "-c", "cd '\(directory)' || exit 1\n\(script)"])
        return result.output + result.errors
    }
}

/// libgit2 has one user at a time; its idea of where the user's settings are comes from the process.
enum TestLibgit {
    private struct Loaded: @unchecked Sendable {
        // Used under the lock only.
        var library: Libgit?
    }
    private static let shared = Mutex(Loaded())

    static func with<T: Sendable>(_ body: (Libgit) throws -> T) throws -> T {
        try shared.withLock { shared in
            if shared.library == nil {
                setenv("GIT_CONFIG_NOSYSTEM", "1", 1)
                setenv("HOME", "/nonexistent", 1)
                shared.library = Libgit.load().library
            }
            return try body(try #require(shared.library))
        }
    }
}

@Suite struct DifferentialTests {
    private func expectSame(_ got: [UInt8], _ want: [UInt8], _ what: String) {
        if got == want { return }
        let place = zip(got, want).prefix { $0 == $1 }.count
        Issue.record(
            "\(what): differs at byte \(place)\n--- ours\n\(String(decoding: got.prefix(4000), as: UTF8.self))\n--- git\n\(String(decoding: want.prefix(4000), as: UTF8.self))"
        )
    }

    /// The bodies block, so they run on threads of their own.
    @Test(arguments: Corpus.cases) func saysWhatGitSays(_ example: Corpus.Case) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) { try compare(example) }
    }

    private func compare(_ example: Corpus.Case) throws {
        let scene = try Scene(example.script, root: example.root)
        let want = try scene.oracle()
        let tree = try #require(Discovery.workTree(at: scene.root), "\(scene.output)")
        #expect(want.isEmpty == ["empty", "assume unchanged"].contains(example.name))
        expectSame(try CLIRepository(command: scene.command, tree: tree).snapshot().diff, want, "CLI")
        let plain: [UInt8]? = try TestLibgit.with { library in
            do {
                return try PlainRepository(library, tree, command: scene.command).snapshot().diff
            } catch let error as ScanError where error.code == .needsCLI {
                return nil
            }
        }
        if let plain { expectSame(plain, want, "libgit2") }
        if let expected = example.plain { #expect((plain != nil) == expected) }
        if example.plain == true {
            // As on a machine without git.
            let alone = GitCommand(environment: ["PATH": "/nonexistent", "HOME": "/nonexistent"])
            let got = try TestLibgit.with { try PlainRepository($0, tree, command: alone).snapshot().diff }
            // libgit2 takes a file that a nested rule takes back for ignored.
            if example.name != "ignore rules" { expectSame(got, want, "without git") }
        }
        // To its end, which a repository that turns out to be the CLI's would not let it reach.
        _ = try? CLIListing.Pending(scene.command, tree.root, tracked: Discovery.isBorn(tree)).finish()
        #expect(access("\(scene.directory.path)/ran", F_OK) != 0, "a program of the repository ran")
    }

    /// With `diff.submodule = diff` git starts another git for the submodule, which `--no-ext-diff` does not reach.
    @Test func aSubmodulesDiffProgramDoesNotRun() throws {
        let scene = try Scene(
            "mk s; echo 1 > f; ci; cd ..; mk r; git submodule --quiet add ../s sub; ci; git config diff.submodule diff; cd sub; echo 2 > f; ci; git config diff.external \"touch $PWD/../../ran\"; echo 3 > f"
        )
        let tree = try #require(Discovery.workTree(at: scene.root))
        let text = String(
            decoding: try CLIRepository(command: scene.command, tree: tree).snapshot().diff, as: UTF8.self)
        #expect(text.contains("+Subproject commit ") && text.hasSuffix("-dirty\n"))
        #expect(access("\(scene.directory.path)/ran", F_OK) != 0, "a program of the submodule ran")
    }

    /// Edits whose names the scanner gets, against a scan of everything by git.
    @Test(arguments: 0..<20) func staysRightOverRandomEdits(_ part: Int) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) { try edit(part) }
    }

    private func edit(_ part: Int) throws {
        let base = SeededGenerator("random edits, part \(part)").seed
        for sequence in 0..<25 {
            let seed = base &+ UInt64(sequence)
            let scene = try Scene(RandomEdits.start)
            let tree = try #require(Discovery.workTree(at: scene.root), "\(scene.output)")
            var edits = RandomEdits(seed: seed, root: scene.root)
            var log: [String] = []
            try TestLibgit.with { library in
                var repository = try PlainRepository(library, tree, command: scene.command)
                for _ in 0..<3 {
                    var batch: [RandomEdits.Edit] = []
                    for _ in 0..<3 { batch.append(edits.next()) }
                    log += batch.map(\.script)
                    try scene.run(batch.map(\.script).joined(separator: "\n"))
                    let everything = batch.contains { $0.paths.isEmpty }
                    if try everything || !repository.update(batch.flatMap(\.paths)) {
                        repository = try PlainRepository(library, tree, command: scene.command)
                    }
                    let got = try repository.snapshot().diff
                    expectSame(
                        got, try scene.oracle(), "TEST_SEED=\(base), sequence \(seed):\n\(log.joined(separator: "\n"))")
                }
            }
        }
    }

    @Test func aLinkToADirectoryIsALink() throws {
        // `git diff --no-index` would look into the directory.
        let scene = try Scene("mk r; mkdir d; echo 1 > d/a; ci; ln -s d l")
        let tree = try #require(Discovery.workTree(at: scene.root))
        let text = String(
            decoding: try CLIRepository(command: scene.command, tree: tree).snapshot().diff, as: UTF8.self)
        #expect(text.contains("new file mode 120000\n") && text.hasSuffix("+d\n\\ No newline at end of file\n"))
        let plain = try TestLibgit.with { try PlainRepository($0, tree, command: scene.command).snapshot().diff }
        #expect(String(decoding: plain, as: UTF8.self) == text)
    }

    @Test func neverWritesTheIndexOrObjects() throws {
        let scene = try Scene("mk r; echo 1 > a; echo 1 > b; ci; touch -d 2001-01-01 a; echo 2 > b; echo n > n; : > e")
        let list = "find .git -printf '%p %T@ %s\\n' | sort"
        let before = try scene.run(list)
        let tree = try #require(Discovery.workTree(at: scene.root))
        _ = try CLIRepository(command: scene.command, tree: tree).snapshot()
        _ = try TestLibgit.with { try PlainRepository($0, tree, command: scene.command).snapshot() }
        #expect(try scene.run(list) == before)
    }
}
