import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Files

/// The kernel queues events before the call that caused them returns, so nothing here waits.
@Suite(.timeLimit(.minutes(10)), .blocking) struct WatchedTreeTests {
    private let directory: TemporaryDirectory
    private let budget = WatchBudget(limit: 100)

    init() throws { directory = try TemporaryDirectory() }

    private func watch(_ name: String = "", recursive: Bool = false, limit: Int = 1_000) throws -> WatchedTree {
        let tree = WatchedTree(directory.path + name, isRecursive: recursive, budget: budget, limit: limit)
        try tree.begin()
        while try tree.watchSome() {}
        return tree
    }

    private func events(_ tree: WatchedTree) throws -> [String] {
        var events: [String] = []
        while true {
            let look = try tree.look()
            events += look.events.map { event in
                "\(event.op) \(event.from.map { "\($0) " } ?? "")\(event.path)".replacing(
                    "\(directory.path)/", with: "")
            }
            if look.overflows { events.append("overflow") }
            if look.isOver { events.append("over") }
            if !look.hasMore { return events }
        }
    }

    private func run(_ script: String) throws {
        let result = try CommandResult.of(["sh", "-c", "set -e; cd \(directory.path); \(script)"])
        try #require(result.code == 0, "\(result.errors)")
    }

    @Test func aDirectory() throws {
        try run("touch old; mkdir d")
        let tree = try watch()
        #expect(try events(tree) == [])
        try run("echo a > new; echo b >> old; rm old; echo c > 'é x'; touch d/inside")
        #expect(try events(tree) == ["create new", "delete old", "create é x"])
        try run("mv new newer; chmod 600 newer; mv newer d/; mv d/newer back; mkdir e; rmdir d/ 2>/dev/null || rm -r d")
        #expect(try events(tree) == ["delete new", "delete newer", "create back", "create e", "delete d"])
        try run("echo x >> back")
        #expect(try events(tree) == ["modify back"])
        // Gone, and another one in its place.
        try run("mkdir f; mv back f/; touch back")
        #expect(try events(tree) == ["create f", "modify back"])
        try run("mv back e2; chmod 700 .")
        #expect(try events(tree) == ["move back e2", "modify \(directory.path)"])
        #expect(budget.used == 1)
        tree.end()
        #expect(budget.used == 0)
    }

    @Test func allBelow() throws {
        try run("mkdir -p a/b; ln -s a link")
        let tree = try watch(recursive: true)
        #expect(budget.used == 3)
        try run("touch a/b/f; touch link/g")
        #expect(try events(tree) == ["create a/b/f", "create a/g"])
        // What lies in a new directory is told, whenever it came.
        try run("mkdir -p new/deep/er; touch new/deep/f; ln -s / new/root")
        #expect(
            try Set(events(tree)) == [
                "create new", "create new/deep", "create new/deep/er", "create new/deep/f", "create new/root",
            ])
        #expect(budget.used == 6)
        try run("touch new/deep/er/g")
        #expect(try events(tree) == ["create new/deep/er/g"])
        try run("rm -r new")
        #expect(try events(tree).last == "delete new")
        #expect(budget.used == 3)
    }

    @Test func directoriesThatMove() throws {
        try run("mkdir -p t/a/b/c out/x/y; touch out/x/y/f")
        let tree = try watch("/t", recursive: true)
        #expect(budget.used == 4)
        try run("mv t/a t/z; touch t/z/b/c/f")
        #expect(try events(tree) == ["move t/a t/z", "create t/z/b/c/f"])
        // Out of the tree.
        try run("mv t/z/b out/b; touch out/b/c/g")
        #expect(try events(tree) == ["delete t/z/b"])
        #expect(budget.used == 2)
        // With something that came from elsewhere in the tree.
        try run("mkdir t/g; touch t/one; mv t/one t/g/one")
        #expect(try events(tree) == ["create t/g", "create t/g/one"])
        try run("touch t/two")
        #expect(try events(tree) == ["create t/two"])
        try run("mv t/two t/g/two; mv t/g out/g")
        #expect(try events(tree) == ["delete t/two", "delete t/g"])
        // Into it.
        try run("mv out/x t/x")
        #expect(try Set(events(tree)) == ["create t/x", "create t/x/y", "create t/x/y/f"])
        try run("echo more >> t/x/y/f; mv t/x/y t/z/y; rm t/z/y/f")
        #expect(try events(tree) == ["modify t/x/y/f", "move t/x/y t/z/y", "delete t/z/y/f"])
        #expect(budget.used == 4)
    }

    @Test func aFile() throws {
        try run("echo a > f; ln -s f link")
        for name in ["/f", "/link"] {
            let tree = try watch(name)
            let shown = String(name.dropFirst())
            try run("echo b >> f; touch other")
            #expect(try events(tree) == ["modify \(shown)"])
            // As editors save.
            try run("echo c > tmp; mv tmp f")
            #expect(try events(tree) == ["modify \(shown)"])
            try run("rm f; echo d > f")
            #expect(try events(tree) == ["modify \(shown)"])
            try run("rm f")
            #expect(try events(tree) == ["delete \(shown)", "over"])
            try run("echo a > f")
        }
        let tree = try watch("/f")
        try run("mv f elsewhere")
        #expect(try events(tree) == ["delete f", "over"])
    }

    @Test func whatIsWatchedGoes() throws {
        for script in ["rm -r t", "mv t gone; rm -rf gone", "mkdir -p u; mv t u/t; rm -r u"] {
            try run("mkdir -p t/d")
            let tree = try watch("/t", recursive: true)
            try run(script)
            #expect(
                try events(tree).suffix(2) == [
                    "delete \(directory.path)/t".replacing("\(directory.path)/", with: ""), "over",
                ])
        }
        #expect(failure { _ = try watch("/none") } == "watch \(directory.path)/none: no such file or directory")
    }

    @Test func theBudget() throws {
        try run("mkdir -p a/b")
        let small = WatchBudget(limit: 3)
        let tree = WatchedTree(directory.path, isRecursive: true, budget: small)
        try tree.begin()
        while try tree.watchSome() {}
        #expect(small.used == 3)
        #expect(try events(tree) == [])
        // Another one gets none.
        let refusal =
            "watch \(directory.path): the budget of 3 inotify watches is used up; watch fewer directories, or raise "
            + "WORKSPACE_AGENT_GIT_WATCH_BUDGET"
        let other = WatchedTree(directory.path, isRecursive: false, budget: small)
        #expect(failure { try other.begin() } == refusal)
        try run("mkdir c")
        #expect(failure { _ = try tree.look() } == refusal)
        tree.end()
        #expect(small.used == 0)
        try other.begin()
        #expect(small.used == 1)
        other.end()
        for limit in [2, 3] {
            let budget = WatchBudget(limit: limit)
            #expect(budget.take(limit) && !budget.take())
            budget.give()
            #expect(budget.take() && !budget.take(2) && budget.used == limit)
        }
    }

    @Test func tooManyChangesAtOnce() throws {
        let tree = try watch(limit: 5)
        try run("touch 1 2 3 4 5")
        #expect(try events(tree).count == 5)
        try run("mkdir d; touch a b c d/x e f")
        #expect(try events(tree) == ["overflow"])
        try run("touch g")
        #expect(try events(tree) == ["create g"])
    }

    @Test func theKernelsQueueRunsOver() throws {
        let queue = readTextFile("/proc/sys/fs/inotify/max_queued_events").flatMap { Int($0.prefix { $0.isNumber }) }
        let count = (queue ?? 16_384) + 10
        try #require(count < 1_000_000)
        try run("mkdir old")
        let tree = try watch(recursive: true, limit: count * 2)
        for index in 0..<count / 2 {
            try directory.write("f", [])
            rename("\(directory.path)/f", "\(directory.path)/\(index % 2)")
        }
        try run("mkdir new; mv old older")
        #expect(try events(tree) == ["overflow"])
        // Those that came meanwhile are watched.
        try run("touch new/f older/f")
        #expect(try Set(events(tree)) == ["create new/f", "create older/f"])
        #expect(budget.used == 3)
    }
}
