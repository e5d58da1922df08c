import AgentCore
import AgentTestSupport
import Foundation
import Testing

@testable import GitWatch

/// Changes that only the poll would see if they were not watched for: it comes once an hour here.
@Suite struct WatchEventTests {
    struct Case: Sendable, CustomStringConvertible {
        var name: String
        var start: String
        /// One after the other; each must be shown.
        var changes: [String]
        var root = "r"
        /// Repositories that are watched as well.
        var others: [String] = []
        var description: String { name }
    }

    static let submodule = """
        mk s; echo 1 > f; ci; cd ..; mk r; git submodule --quiet add ../s sub; ci

        """

    static let cases: [Case] = [
        Case(
            name: "a file added by force",
            start:
                "mk r; echo build/ > .gitignore; mkdir -p build/x; echo 1 > build/x/f; echo 1 > a; ci; git add -f build/x/f; git commit -qm f",
            changes: ["echo 2 > build/x/f", "rm -r build", "mkdir -p build/x; echo 3 > build/x/f"]),
        Case(
            name: "a file added by force while it is watched",
            start: "mk r; echo build/ > .gitignore; mkdir -p build/x; echo 1 > build/x/f; echo 1 > a; ci",
            changes: ["git add -f build/x/f", "echo 2 > build/x/f", "git commit -qam c", "echo 3 > build/x/f"]),
        Case(
            name: "a directory that is ignored later", start: "mk r; mkdir -p build; echo 1 > build/f; ci",
            changes: ["echo build/ > .gitignore", "echo 2 > build/f", "echo 3 > build/f"]),
        Case(
            name: "a nested ignore file that takes back",
            start:
                "mk r; mkdir -p vendor/keep/d; echo 'vendor/*' > .gitignore; echo '!keep/' > vendor/.gitignore; git add -f vendor/.gitignore; echo 1 > a; ci",
            changes: ["echo 1 > vendor/keep/d/new", "echo 2 > vendor/keep/d/new"]),
        Case(
            name: "directories whose entries are all ignored",
            start:
                "mk r; echo '*.o' > .gitignore; mkdir -p only; echo 1 > only/a.o; ci; git config core.ignoreCase true",
            changes: ["echo 1 > only/new.c"]),
        Case(
            name: "info/exclude", start: "mk r; mkdir d; echo 1 > a; ci; echo 1 > d/n",
            changes: ["echo d/ >> .git/info/exclude", "echo > .git/info/exclude", "echo 2 > d/n"]),
        Case(
            name: "settings that name ignore rules",
            start: "mk r; mkdir d; echo 1 > a; echo d/ > ../rules; ci; echo 1 > d/n",
            changes: [
                "git config core.excludesFile \"$PWD/../rules\"", "git config --unset core.excludesFile",
                "echo 2 > d/n",
            ]),
        Case(
            name: "staging in a submodule", start: submodule,
            changes: ["cd sub; echo n > n; git add n", "cd sub; git rm -qf n", "echo 2 > sub/f"]),
        Case(
            name: "committing in a submodule", start: submodule,
            changes: [
                "cd sub; echo 2 > f; git commit -qam 2", "cd sub; git reset -q --soft HEAD~1",
                "cd sub; git checkout -q -f HEAD",
            ]),
        Case(
            name: "a submodule that appears", start: submodule + "git submodule --quiet deinit -f sub",
            changes: ["git submodule --quiet update --init; echo 2 > sub/f", "echo 1 > sub/f"]),
        Case(
            name: "a repository inside", start: "mk r; echo 1 > a; ci; mkdir inner; echo 1 > inner/f",
            changes: [
                "cd inner; git init -q", "rm -rf inner/.git", "echo 2 > inner/f", "mkdir inner/.git",
                "echo 3 > inner/f",
            ]),
        Case(
            name: "a branch of a linked work tree beside the main one",
            start: "mk m; echo 1 > a; ci; echo 2 > a; ci; git worktree add -q ../r -b other",
            changes: [
                "git reset -q --soft HEAD~1", "git checkout -q -b deep/down/it", "git reset -q --soft other@{1}",
                "git pack-refs --all; git update-ref HEAD other",
            ],
            others: ["m"]),
        Case(
            name: "a work tree that is another's submodule", start: submodule + "cd sub; echo 2 > f; git add f",
            changes: ["git reset -q", "echo 3 > f", "git commit -qam 3"], root: "r/sub", others: ["r"]),
        Case(
            name: "sparse checkout", start: "mk r; mkdir d e; echo 1 > d/f; echo 1 > e/f; ci",
            changes: [
                "git sparse-checkout set d >/dev/null; echo 2 > d/f", "git sparse-checkout disable; echo 2 > e/f",
                "echo 3 > e/f",
            ]),
        Case(
            name: "a .git file that leads elsewhere",
            start:
                "mk b; echo 1 > f; git add f; git commit -qm b; cd ..; git init -q --separate-git-dir ../r.git r; cd r; echo 2 > f; git add f; git commit -qm a; echo 3 > f",
            changes: ["echo \"gitdir: $PWD/../b/.git\" > .git"]),
    ]

    @Test(arguments: cases) func isSeenWithoutThePoll(_ example: Case) async throws {
        let scene = try Scene(example.start, root: example.root)
        let fixture = try WatcherFixture(environment: scene.environment, pollInterval: .seconds(3_600))
        let others = example.others.map { "\(scene.directory.path)/\($0)" }
        // Those that are there first have the kernel's watches first.
        for other in others { fixture.watcher.add(paths: [other], for: fixture.chat) }
        let reader = try fixture.open()
        try await eventually("the others") { others.allSatisfy { reader.latest($0) != nil } }
        try await quiet(fixture)
        fixture.watcher.add(paths: [scene.root], for: fixture.chat)
        try await eventually("the first snapshot: \(scene.output)") { reader.latest(scene.root) != nil }
        try await quiet(fixture)
        for change in example.changes {
            let output = try scene.run(change)
            try await same(scene, reader, "after \(change): \(output)")
            try await quiet(fixture)
        }
        await fixture.stop()
    }

    private func same(_ scene: Scene, _ reader: WatcherFixture.Reader, _ what: String) async throws {
        let want = try await withTaskExecutorPreference(BlockingExecutor.shared) {
            String(decoding: try scene.oracle(), as: UTF8.self)
        }
        do {
            try await eventually(what, within: .seconds(30)) { reader.diff(scene.root) == want }
        } catch {
            Issue.record("\(what)\n--- shown\n\(reader.diff(scene.root) ?? "nothing")\n--- git\n\(want)")
            throw error
        }
    }

    /// Watches stand and no scan is due.
    private func quiet(_ fixture: WatcherFixture) async throws {
        var scans = -1
        var since = ContinuousClock.now
        try await eventually("quiet") {
            let report = fixture.report
            if report.scans != scans || report.watches == 0 && report.repositories > 0 {
                (scans, since) = (report.scans, .now)
            }
            // Longer than the second between two scans.
            return since.duration(to: .now) > .milliseconds(1_500)
        }
    }
}
