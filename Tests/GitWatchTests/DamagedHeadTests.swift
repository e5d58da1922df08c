import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import GitWatch

/// A HEAD that is no HEAD at the moment is being repaired by the user: the repository stays watched, and the
/// next good state comes by itself.
@Suite struct DamagedHeadTests {
    struct Damage: Sendable, CustomTestStringConvertible {
        var name: String
        /// Run in the git directory, with a good HEAD put aside as `good`.
        var script: String
        var testDescription: String { name }
    }

    static let damages = [
        Damage(name: "garbage", script: "printf 'garbage\\n' > HEAD"),
        Damage(name: "garbage by rename", script: "printf 'garbage\\n' > h; mv h HEAD"),
        Damage(name: "empty", script: ": > HEAD"),
        Damage(name: "no name", script: "printf 'ref: \\n' > HEAD"),
        Damage(name: "no branch name", script: "printf 'ref: refs/heads/\\n' > HEAD"),
        Damage(name: "short commit", script: "printf '1234567\\n' > HEAD"),
        Damage(name: "no such commit", script: "printf '%040d\\n' 7 > HEAD"),
        Damage(name: "missing", script: "rm HEAD"),
        Damage(name: "directory", script: "rm HEAD; mkdir HEAD"),
        Damage(name: "FIFO", script: "rm HEAD; mkfifo HEAD"),
        Damage(name: "link to a FIFO", script: "rm HEAD; mkfifo fifo; ln -s fifo HEAD"),
        Damage(name: "link to nothing", script: "rm HEAD; ln -s nothing HEAD"),
    ]

    static let repairs = [
        "rename": "[ ! -d HEAD ] || rmdir HEAD; mv good HEAD",
        "in place": "[ -f HEAD ] && [ ! -L HEAD ] || rm -rf HEAD; cat good > HEAD",
    ]

    @Test(arguments: damages, ["rename", "in place"])
    func isWaitedFor(_ damage: Damage, _ repair: String) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            // Inside another repository, whose state git would show instead.
            let scene = try Scene("git init -q; mk r; lines 1 20 > a; ci")
            let fixture = try WatcherFixture(environment: scene.environment)
            fixture.watcher.add(paths: [scene.root], for: fixture.chat)
            let reader = try fixture.open()
            try await eventually("the first snapshot") { reader.diff(scene.root) == "" }
            try await eventually("watches, and the scan after them") {
                fixture.report.watches > 0 && fixture.report.scans >= 2
            }
            var scans = fixture.report.scans
            try scene.run("cd .git; cp HEAD good; \(damage.script)")
            try await eventually("a scan of it") { fixture.report.scans > scans }
            scans = fixture.report.scans
            try scene.run("echo edited > a")
            try await eventually("a scan of an edit") { fixture.report.scans > scans }
            #expect(reader.messages.count == 1, "\(reader.messages)")
            #expect(reader.messages.allSatisfy { $0.repositories?.contains { $0.removed == true } == false })
            #expect(fixture.report.repositories == 1 && fixture.report.watches > 0)
            try scene.run("cd .git; \(Self.repairs[repair] ?? "false")")
            // Sooner than the next poll, which would find it, too.
            try await eventually("the good state", within: .seconds(25)) {
                reader.diff(scene.root)?.contains("+edited\n") == true
            }
            #expect(reader.latest(scene.root)?.branch == "main" && reader.messages.count == 2)
            #expect(reader.diff(scene.root) == String(decoding: try scene.oracle(), as: UTF8.self))
            await fixture.stop()
        }
    }

    /// With the git program alone, too.
    @Test(arguments: ["garbage", "missing", "FIFO"]) func isWaitedForByTheGitProgram(_ name: String) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let damage = try #require(Self.damages.first { $0.name == name })
            let scene = try Scene("git init -q; mk r; lines 1 20 > a; ci; git config diff.context 2")
            let fixture = try WatcherFixture(environment: scene.environment)
            fixture.watcher.add(paths: [scene.root], for: fixture.chat)
            let reader = try fixture.open()
            try await eventually("watches, and the scan after them") {
                fixture.report.watches > 0 && fixture.report.scans >= 2
            }
            let scans = fixture.report.scans
            try scene.run("echo edited > a; cd .git; cp HEAD good; \(damage.script)")
            try await eventually("a scan of it") { fixture.report.scans > scans }
            try scene.run("cd .git; rm -rf HEAD; mv good HEAD")
            try await eventually("the good state", within: .seconds(25)) {
                reader.diff(scene.root)?.contains("+edited\n") == true
            }
            #expect(reader.messages.allSatisfy { $0.type == "changes" && $0.repositories?.first?.removed == nil })
            await fixture.stop()
        }
    }

    /// What is really gone is removed: the root, its `.git`, and the git directory that a `.git` file names.
    @Test(arguments: ["cd ..; rm -rf r", "rm -rf .git", "mv .git ../elsewhere", "cd ..; mv r elsewhere"])
    func whatIsGoneIsRemoved(_ script: String) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let scene = try Scene("mk r; lines 1 20 > a; ci")
            let fixture = try WatcherFixture(environment: scene.environment)
            fixture.watcher.add(paths: [scene.root], for: fixture.chat)
            let reader = try fixture.open()
            try await eventually("watches, and the scan after them") {
                fixture.report.watches > 0 && fixture.report.scans >= 2
            }
            try scene.run(script)
            try await eventually("removal") { reader.latest(scene.root)?.removed == true }
            try await eventually("it is forgotten") { fixture.report.repositories == 0 }
            await fixture.stop()
        }
    }

    @Test func aWorkTreeWhoseGitDirectoryIsGoneIsRemoved() throws {
        let scene = try Scene("mk main; echo 1 > a; ci; git worktree add -q ../r -b side")
        #expect(try Discovery.scannable(scene.root).root == scene.root)
        try scene.run("rm -rf ../main/.git/worktrees")
        #expect(throws: ScanError(.gone, "")) { try Discovery.scannable(scene.root) }
        try scene.run("echo nonsense > .git")
        #expect(throws: ScanError(.transient, "")) { try Discovery.scannable(scene.root) }
    }
}
