import AgentCore
import AgentTestSupport
import Foundation
import Testing

@testable import GitWatch

/// What is watched: where git would report a change.
@Suite struct WatchListingTests {
    private func onThread<T: Sendable>(_ body: @Sendable () throws -> T) async throws -> T {
        try await withTaskExecutorPreference(BlockingExecutor.shared) { try body() }
    }

    private func trees(_ targets: [WatchTarget]) -> Set<String> {
        Set(targets.compactMap { if case .tree(let path) = $0 { String(decoding: path, as: UTF8.self) } else { nil } })
    }

    private func inner(_ targets: [WatchTarget]) -> Set<String> {
        Set(targets.compactMap { if case .inner(let path) = $0 { String(decoding: path, as: UTF8.self) } else { nil } })
    }

    /// Both ways of listing.
    private func listings(_ scene: Scene, below tops: [String] = []) throws -> [[WatchTarget]] {
        let tree = try #require(Discovery.workTree(at: scene.root), "\(scene.output)")
        let tops = tops.map { Array($0.utf8) }
        return [
            try TestLibgit.with {
                try PlainRepository($0, tree, command: scene.command).targets(below: tops, limit: 8_192)
            },
            try CLIRepository(command: scene.command, tree: tree).targets(below: tops, limit: 8_192),
        ]
    }

    @Test func trackedFilesCountWhateverIsIgnored() async throws {
        try await onThread {
            let scene = try Scene(
                """
                mk r; printf 'build/\\nvendor/*\\n*.o\\nlogs/*\\nnode_modules/\\n' > .gitignore
                mkdir -p build/deep/empty build/other vendor/keep/sub vendor/no logs objects/only d/node_modules/x
                echo '!keep/' > vendor/.gitignore
                for f in build/deep/t build/other/z vendor/keep/sub/f vendor/no/f logs/x objects/only/b.o d/node_modules/x/y
                do echo 1 > $f; done
                git add -f build/deep/t; git commit -qm c
                """)
            for listing in try listings(scene) {
                #expect(
                    trees(listing) == [
                        "", "build", "build/deep", "vendor", "vendor/keep", "vendor/keep/sub", "logs", "objects",
                        "objects/only", "d",
                    ])
            }
            // New directories, one of them in a directory that is watched for its tracked file.
            try scene.run("mkdir -p build/deep/new d/new/node_modules logs/new; touch d/new/f")
            for listing in try listings(scene, below: ["build/deep/new", "d/new", "logs/new", "gone", "d/new/.git"]) {
                #expect(trees(listing) == ["d/new"])
            }
        }
    }

    @Test func anyNameCanBeIgnored() async throws {
        try await onThread {
            let scene = try Scene(
                "mk r; echo 1 > a; ci; for n in ':(glob)x' '*' 'sp ace' ü \"$(printf '\\377')\" '!n' '[a]' -z; do mkdir -p -- \"$n/in\" \"k$n/in\"; echo 1 > \"./$n/in/f\"; done; printf '/:(glob)x/\\n/\\\\*/\\nsp ace/\\n/ü/\\n/\\377/\\n/\\\\!n/\\n/\\\\[a]/\\n/-z/\\n' > .gitignore"
            )
            for listing in try listings(scene) {
                let found = trees(listing)
                #expect(
                    found.count == 1 + 2 * 8 && found.allSatisfy { $0.isEmpty || $0.hasPrefix("k") },
                    "\(found.sorted())")
            }
        }
    }

    /// Another repository inside is not looked into, what only looks like one is.
    @Test func repositoriesInside() async throws {
        try await onThread {
            let scene = try Scene(
                """
                mk r; echo 1 > a; ci; mkdir -p real/sub unborn empty/.git empty/sub text/sub
                (cd real; git init -q; echo 1 > f; git add f; git commit -qm c); (cd unborn; git init -q)
                echo garbage > text/.git; git worktree add -q linked
                """)
            for listing in try listings(scene) {
                #expect(trees(listing) == ["", "empty", "empty/sub", "text", "text/sub"])
                #expect(inner(listing) == ["real", "unborn", "linked"])
            }
        }
    }

    @Test func submodulesAreWatchedWithTheirGitDirectories() async throws {
        try await onThread {
            let scene = try Scene(
                """
                mk deep; echo 1 > f; ci; cd ..; mk s; mkdir d out; echo 1 > d/f; echo out/ > .gitignore; ci
                git submodule --quiet add ../deep in; ci; cd ..
                mk r; mkdir top; git submodule --quiet add ../s top/sub; git submodule --quiet update --init --recursive; ci
                mkdir top/sub/out
                """)
            let tree = try #require(Discovery.workTree(at: scene.root), "\(scene.output)")
            for tops in [[], ["top/sub/d"], ["top"]] {
                let targets = try CLIRepository(command: scene.command, tree: tree).targets(
                    below: tops.map { Array($0.utf8) }, limit: 8_192)
                #expect(trees(targets) == ["", "top", "top/sub", "top/sub/d", "top/sub/in"])
                let git = "\(scene.root)/.git/modules/top/sub"
                for directory in [git, "\(git)/refs/heads", "\(git)/modules/in"] {
                    #expect(targets.contains(.git(directory)))
                }
            }
        }
    }

    /// A branch far down in refs, beside more directories than are watched.
    @Test func theDirectoriesThatLeadToTheBranchAreWatched() throws {
        let scene = try Scene(
            """
            mk r; echo 1 > a; ci; for i in $(seq 100 200); do git branch aa$i/x; done
            git checkout -q -b z/y/x; git symbolic-ref refs/heads/alias/a refs/heads/z/y/x; git symbolic-ref HEAD refs/heads/alias/a
            """)
        let tree = try #require(Discovery.workTree(at: scene.root), "\(scene.output)")
        let heads = "\(scene.root)/.git/refs/heads"
        let found = GitDirectories.of(tree)
        for directory in [heads, "\(heads)/alias", "\(heads)/z", "\(heads)/z/y"] { #expect(found.contains(directory)) }
        #expect(found.count < 10)
    }

    /// Random ignore files: a file in any directory that git would list or follow lies in a watched one.
    @Test(arguments: 0..<8) func nothingThatGitReportsIsUnwatched(_ part: Int) async throws {
        try await onThread {
            var generator = SeededGenerator("ignore files, part \(part)")
            func pick(_ values: [String]) -> String { values[Int.random(in: 0..<values.count, using: &generator)] }
            let names = ["a", "b", "keep", "out"]
            var directories = [""]
            for _ in 0..<25 { directories.append(pick(directories) + pick(names) + "/") }
            directories = Array(Set(directories)).sorted()
            let patterns = [
                "a/", "/b", "b/*", "!keep/", "*.o", "*", "!*/", "!.gitignore", "out", "a/b/", "**/out/", "!out/keep",
                "keep/**", "/*/", "!/a", "*/b", "x.o",
            ]
            var script = "mk r\n"
            for directory in directories where !directory.isEmpty { script += "mkdir -p \(directory)\n" }
            for directory in directories where Int.random(in: 0..<4, using: &generator) == 0 {
                for _ in 0..<Int.random(in: 1...3, using: &generator) {
                    script += "echo '\(pick(patterns))' >> \(directory).gitignore\n"
                }
            }
            for directory in directories {
                if Int.random(in: 0..<3, using: &generator) == 0 { script += "echo 1 > \(directory)x.o\n" }
                if Int.random(in: 0..<6, using: &generator) == 0 {
                    script += "echo 1 > \(directory)t; git add -f \(directory)t\n"
                }
            }
            script += "echo 1 > first; git add -f first; git commit -qm c\n"
            let scene = try Scene(script)
            let watched = try listings(scene).map(trees)
            #expect(watched[0] == watched[1])
            for directory in directories where !directory.isEmpty { try scene.run("echo new > \(directory)new.c") }
            let reported = try scene.run(
                "{ git ls-files -o --exclude-standard; git ls-files; } | while read f; do case $f in */*) echo \"${f%/*}\";; esac; done | sort -u"
            )
            let ignored = try scene.run(
                "find . -mindepth 1 -type d -not -path './.git*' | sed 's,^./,,' | git check-ignore --stdin; true")
            for directory in reported.split(separator: "\n") {
                #expect(watched[0].contains(String(directory)), "\(directory) of\n\(script)")
            }
            for directory in ignored.split(separator: "\n") {
                #expect(!watched[0].contains(String(directory)), "\(directory) of\n\(script)")
            }
        }
    }
}
