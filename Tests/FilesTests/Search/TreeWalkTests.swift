import AgentCore
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Files

@Suite(.timeLimit(.minutes(10)), .blocking) struct TreeWalkTests {
    @Test func filesAreFoundAtAnyDepth() throws {
        let tree = try SearchTree(["a": "", "d/b": "", "d/e/c": "", ".h/x": "", "empty/": ""])
        #expect(try tree.walk().paths == [".h/x", "a", "d/b", "d/e/c"])
        #expect(try tree.walk("/d").paths == ["b", "e/c"])
    }

    @Test func linksAreNotFollowedAndSpecialFilesLeftOut() throws {
        let tree = try SearchTree(["d/b": ""])
        tree.link("file", to: "d/b")
        tree.link("directory", to: "d")
        tree.link("up", to: "..")
        tree.fifo("fifo")
        #expect(try tree.walk().paths == ["d/b", "directory@", "file@", "up@"])
        // The root itself may be one.
        #expect(try tree.walk("/directory").paths == ["b"])
    }

    @Test func namesMayBeAnyBytes() throws {
        let tree = try SearchTree()
        let name = tree.root + "/x\u{10FEFF}"
        _ = withPath(name) { creat($0, 0o600) }
        #expect(try tree.walk().paths == ["x\u{10FEFF}"])
        #expect(try tree.walk(pattern: "x?").paths == ["x\u{10FEFF}"])
    }

    @Test func patternsLeadTheWalk() throws {
        let tree = try SearchTree(["a/x.c": "", "a/b/y.c": "", "b/z.c": "", "x.c": "", "a/x.h": ""])
        #expect(try tree.walk(pattern: "a/*.c").paths == ["a/x.c"])
        #expect(try tree.walk(pattern: "**/*.c").paths == ["a/b/y.c", "a/x.c", "b/z.c", "x.c"])
        #expect(try tree.walk(pattern: "{a,b}/*.{c,h}").paths == ["a/x.c", "a/x.h", "b/z.c"])
    }

    @Test func ignoredAndGitDirectoriesAreNotEntered() throws {
        let tree = try SearchTree([
            ".git/config": "", ".gitignore": "build/\n*.o\n", "a.o": "", "build/x": "",
            "s/.gitignore": "!keep.o\nlocal\n",
            "s/keep.o": "", "s/drop.o": "", "s/local": "", "s/build/keep.o": "", "local": "",
        ])
        try tree.write(".git/info/exclude", "hidden\n")
        try tree.write("s/hidden")
        #expect(try tree.walk().paths == [".gitignore", "local", "s/.gitignore", "s/keep.o"])
        // Rules of the directories above hold below, too; the root itself is searched in any case.
        #expect(try tree.walk("/s").paths == [".gitignore", "keep.o"])
        #expect(try tree.walk("/build").paths == ["x"])
        let all = try tree.walk(ignoreFiles: nil).paths
        #expect(all.contains("build/x"))
        #expect(!all.contains { $0.hasPrefix(".git/") })
    }

    @Test func aRepositoryInsideHasItsOwnRules() throws {
        let tree = try SearchTree([
            ".git/HEAD": "", ".gitignore": "*.o\n", "in/.git/info/exclude": "x\n", "in/a.o": "", "in/x": "", "x": "",
            "b.o": "",
        ])
        #expect(try tree.walk().paths == [".gitignore", "in/a.o", "x"])
        #expect(try tree.walk("/in").paths == ["a.o"])
    }

    @Test func aLinkedWorkingTreeUsesTheRulesOfItsRepository() throws {
        let tree = try SearchTree([
            "main/.git/info/exclude": "secret\n", "main/.git/worktrees/w/commondir": "../..\n", "w/secret": "",
            "w/open": "",
        ])
        try tree.write("w/.git", "gitdir: \(tree.root)/main/.git/worktrees/w\n")
        #expect(try tree.walk("/w").paths == ["open"])
        try tree.write("w/.git", "gitdir: ../main/.git/worktrees/w\n")
        #expect(try tree.walk("/w").paths == ["open"])
        for broken in ["", "gitdir: ", "gitdir: /nonexistent\n", "nothing", "gitdir: a\u{0}b"] {
            try tree.write("w/.git", broken)
            #expect(try tree.walk("/w").paths == ["open", "secret"])
        }
    }

    @Test func theUsersOwnFileHoldsInRepositories() throws {
        let tree = try SearchTree([
            "home/.config/git/ignore": "*.own\n", "r/.git/HEAD": "", "r/a.own": "", "r/b": "", "n/a.own": "",
        ])
        let home = tree.root + "/home"
        let files = IgnoreFiles { $0 == "HOME" ? home : nil }
        #expect(try tree.walk("/r", ignoreFiles: files).paths == ["b"])
        #expect(try tree.walk("/n", ignoreFiles: files).paths == ["a.own"])
        let base = home + "/.config"
        #expect(try tree.walk("/r", ignoreFiles: .init { $0 == "XDG_CONFIG_HOME" ? base : nil }).paths == ["b"])
    }

    @Test func hostileRuleFilesAreLeftOut() throws {
        let tree = try SearchTree([
            "fifo/x": "", "directory/.gitignore/x": "", "link/x": "", "device/x": "", "rules": "x\n",
        ])
        tree.fifo("fifo/.gitignore")
        tree.link("link/.gitignore", to: "../rules")
        tree.link("device/.gitignore", to: "/dev/zero")
        #expect(try tree.walk(pattern: "**/x").paths == ["device/x", "directory/.gitignore/x", "fifo/x", "link/x"])
    }

    @Test func largeRuleFilesAreLeftOut() throws {
        for (size, isRead) in [(-1, true), (0, true), (1, false)] {
            let tree = try SearchTree(["x": ""])
            try tree.write(".gitignore", "x\n" + String(repeating: "#", count: FilesLimits.ignoreFileBytes + size - 2))
            #expect(try tree.walk(pattern: "x").paths.isEmpty == isRead)
        }
    }

    @Test func aDirectoryThatBecomesALinkIsNotFollowed() throws {
        let tree = try SearchTree(["a": "", "d/inside": ""])
        _ = FileManager.default.createFile(atPath: "\(tree.outside)/secret", contents: nil)
        let (root, outside) = (tree.root, tree.outside)
        // What is in the root is looked at before the walk goes into any of it.
        let paths = try tree.walk { path in
            if path == "a" {
                rename("\(root)/d", "\(outside)/moved")
                symlink(outside, "\(root)/d")
            }
            return true
        }.paths
        #expect(paths == ["a"])
    }

    @Test func unreadableDirectoriesAreLeftOut() throws {
        let tree = try SearchTree(["a": "", "d/b": ""])
        chmod("\(tree.root)/d", 0)
        defer { chmod("\(tree.root)/d", 0o700) }
        // Nothing is unreadable for root.
        let expected = getuid() == 0 ? ["a", "d/b"] : ["a"]
        #expect(try tree.walk().paths == expected)
    }

    @Test func depthIsBounded() throws {
        let tree = try SearchTree()
        let path = { (depth: Int) in String(repeating: "d/", count: depth) + "f" }
        try tree.write(path(FilesLimits.searchDepth))
        let within = try tree.walk()
        #expect(within.paths == [path(FilesLimits.searchDepth)])
        #expect(!within.isIncomplete)
        try tree.write(path(FilesLimits.searchDepth + 1))
        let beyond = try tree.walk()
        #expect(beyond.paths == within.paths)
        #expect(beyond.isIncomplete)
    }

    @Test func twoThreadsFindAllOnce() throws {
        let tree = try SearchTree()
        for outer in 0..<30 {
            for inner in 0..<20 { try tree.write("d\(outer)/e\(inner % 3)/f\(inner)") }
        }
        mkdir("\(tree.root)/flat", 0o755)
        for number in 0..<20_000 { close(creat("\(tree.root)/flat/entry-\(number)", 0o600)) }
        let paths = try tree.walk(threads: 2).paths
        #expect(paths.count == 20_600)
        #expect(Set(paths).count == 20_600)
        #expect(paths == (try tree.walk().paths))
    }

    @Test func aVisitorMayEndTheWalk() throws {
        let tree = try SearchTree(Dictionary(uniqueKeysWithValues: (0..<100).map { ("d\($0)/f", "") }))
        let count = Mutex(0)
        let result = try tree.walk { _ in
            count.withLock { count in
                count += 1
                return count < 10
            }
        }
        #expect(result.paths.count == 10)
        #expect(result.isIncomplete)
    }

    @Test func whatTheKernelMakesUpIsNotEnteredFromOutside() throws {
        let table = """
            22 1 254:0 / / rw - ext4 /dev/vda rw
            23 22 0:21 / /proc rw,nosuid shared:5 - proc proc rw
            24 22 7:300 / /x rw master:1 shared:2 - cgroup2 none rw
            25 22 bad:1 / /y rw - proc none rw
            26 22 0:30 / /z rw -

            """
        let systems = KernelFileSystems(table: table)
        #expect(systems.contain(21))
        #expect(systems.contain(0x10_072C))
        #expect(!systems.contain(0xFE00))
        #expect(!systems.contain(30))

        let pattern = try GlobPattern("proc/self/*")
        let root = try #require(try TreeRoot("/", pattern: pattern, ignoreFiles: nil))
        let search = GlobSearch(limit: 10, prefix: root.prefix)
        let walk = TreeWalk(root, pattern: pattern, ignoreFiles: nil, visitor: search)
        while walk.work(100, .init()) == .more {}
        #expect(search.result().paths.isEmpty)
        #expect(
            try TreeRoot("/proc/self", pattern: nil, ignoreFiles: nil).map { KernelFileSystems().contain($0.device) }
                == true)
    }
}
