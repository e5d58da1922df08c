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

    private func paths(_ names: String...) -> [GitPath] { names.map { Array($0.utf8) } }

    /// Plans and adds, as the engine and the worker do.
    private func add(_ watches: inout FileWatches, _ names: String..., adding: Bool = true) -> String? {
        let plan = watches.plan(
            directory.path, directories: names.map { Array($0.utf8) }, git: [], adding: adding, reserved: 0)
        if let problem = plan.problem { return problem }
        let descriptors = FileWatches.add(plan.wanted, directory.path, inotify: watches.descriptor)
        return watches.added(directory.path, plan.wanted, descriptors).problem
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
        let first = watches.plan(directory.path, directories: paths("a", "b"), git: [], adding: true, reserved: 0)
        #expect(first.wanted.count == 2 && budget.used == 2)
        _ = watches.plan("/other", directories: paths("c"), git: [], adding: true, reserved: 2)
        #expect(budget.used == 3)
        watches.discard([-2])
        #expect(budget.used == 2)
        // The worker ended before it answered: nothing is under way.
        _ = watches.plan("/other", directories: paths("c"), git: [], adding: true, reserved: 0)
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
}
