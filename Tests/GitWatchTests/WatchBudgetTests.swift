import AgentCore
import AgentTestSupport
import Glibc
import Testing

@testable import GitWatch

/// What the git watcher takes of the budget that it shares with others.
struct WatchBudgetTests {
    private let directory: TemporaryDirectory
    private let budget = WatchBudget(limit: 5)

    init() throws {
        directory = try TemporaryDirectory()
        for name in ["a", "b", "c"] { mkdir("\(directory.path)/\(name)", 0o755) }
    }

    private func trees(_ names: [String]) -> [WatchTarget] { names.map { .tree(Array($0.utf8)) } }

    /// Plans and adds, as the engine and the worker do.
    private func add(_ watches: inout FileWatches, _ names: String..., adding: Bool = true) -> String? {
        let plan = watches.plan(directory.path, trees(names), adding: adding, reserved: 0)
        if let problem = plan.problem { return problem }
        return finish(&watches, directory.path, plan.wanted).problem
    }

    @discardableResult
    private func finish(_ watches: inout FileWatches, _ root: String, _ wanted: [WatchTarget]) -> FileWatches.Added {
        let encoded = wanted.map(\.encoded)
        return watches.added(root, encoded, FileWatches.add(encoded, root, inotify: watches.descriptor))
    }

    @Test func takesWhatItHasAndGivesItBack() {
        var watches = FileWatches(budget: budget)
        #expect(add(&watches, "a", "b") == nil)
        #expect(budget.used == 2)
        // One that is not there takes nothing.
        #expect(add(&watches, "c", "none") == nil)
        #expect(budget.used == 3)
        // Those that are not wanted any more.
        #expect(add(&watches, "a", adding: false) == nil)
        #expect(budget.used == 1)
        watches.unwatch(directory.path)
        #expect(budget.used == 0)
        #expect(add(&watches, "a", "b", "c") == nil)
        rmdir("\(directory.path)/c")
        _ = watches.read(expecting: false)
        #expect(budget.used == 2)
        watches.close()
        #expect(budget.used == 0)
    }

    @Test func whatTheWorkerIsAddingCounts() {
        var watches = FileWatches(budget: budget)
        let first = watches.plan(directory.path, trees(["a", "b"]), adding: true, reserved: 0)
        #expect(first.wanted.count == 2 && budget.used == 2)
        _ = watches.plan("/other", trees(["c"]), adding: true, reserved: 2)
        #expect(budget.used == 3)
        watches.discard([-2])
        #expect(budget.used == 2)
        // The worker ended before it answered: nothing is under way.
        _ = watches.plan("/other", trees(["c"]), adding: true, reserved: 0)
        #expect(budget.used == 1)
        watches.close()
        #expect(budget.used == 0)
    }

    @Test func othersTakeOfItToo() {
        var watches = FileWatches(budget: budget)
        #expect(budget.take(3))
        #expect(add(&watches, "a", "b", "c") == "the budget of 5 inotify watches is used up")
        #expect(budget.used == 3)
        #expect(add(&watches, "a", "b") == nil)
        #expect(budget.used == 5)
        budget.give(3)
        #expect(add(&watches, "a", "b", "c") == nil)
        watches.close()
        #expect(budget.used == 0)
    }

    /// It may be readable only now.
    @Test func aDirectoryWhoseModeChangesIsListedAnew() {
        var watches = FileWatches(budget: budget)
        finish(&watches, directory.path, watches.plan(directory.path, [.tree([])], adding: true, reserved: 0).wanted)
        chmod("\(directory.path)/a", 0o700)
        let changes = watches.read(expecting: false)[directory.path]
        #expect(changes?.directories == [Array("a".utf8)] && changes?.paths == [Array("a".utf8)])
        watches.close()
    }

    /// The kernel has one watch for a directory, however many repositories need it.
    @Test func aSharedDirectoryTellsAllThatWatchIt() throws {
        var watches = FileWatches(budget: budget)
        let shared = "\(directory.path)/c"
        for root in ["a", "b"] {
            let path = "\(directory.path)/\(root)"
            let plan = watches.plan(path, [.git(shared)], adding: true, reserved: 0)
            #expect(finish(&watches, path, plan.wanted).hasGit)
        }
        #expect(budget.used == 1)
        close(open("\(shared)/HEAD", O_CREAT | O_WRONLY, 0o644))
        let changes = watches.read(expecting: false)
        #expect(changes.filter { $0.value.everything }.keys.sorted() == ["a", "b"].map { "\(directory.path)/\($0)" })
        watches.unwatch("\(directory.path)/a")
        #expect(budget.used == 1)
        close(open("\(shared)/index", O_CREAT | O_WRONLY, 0o644))
        #expect(watches.read(expecting: false).keys.sorted() == ["\(directory.path)/b"])
        watches.unwatch("\(directory.path)/b")
        #expect(budget.used == 0)
        watches.close()
    }

    /// One repository lets go of a watch while the worker has been given the same one for another.
    @Test func aWatchThatIsTakenBackMeanwhileIsAddedAgain() throws {
        var watches = FileWatches(budget: budget)
        let shared = WatchTarget.git("\(directory.path)/c")
        finish(&watches, "/a", watches.plan("/a", [shared], adding: true, reserved: 0).wanted)
        let wanted = watches.plan("/b", [shared], adding: true, reserved: 0).wanted.map(\.encoded)
        let descriptors = FileWatches.add(wanted, "/b", inotify: watches.descriptor)
        watches.unwatch("/a")
        let added = watches.added("/b", wanted, descriptors)
        #expect(added.isLost && !added.hasGit && budget.used == 0)
        finish(&watches, "/b", watches.plan("/b", [shared], adding: false, reserved: 0).wanted)
        #expect(budget.used == 1)
        watches.close()
    }
}
