import AgentTestSupport
import Testing

@testable import GitWatch

@Suite struct RepositoryMonitorTests {
    private func path(_ name: String) -> GitPath { Array(name.utf8) }

    @Test func scansAtOnceWhenItAppears() {
        var monitor = RepositoryMonitor(now: .seconds(5))
        #expect(monitor.start(now: .seconds(5)) == .init(full: true, paths: []))
        #expect(monitor.start(now: .seconds(9)) == nil, "one at a time")
        #expect(monitor.deadline == nil)
    }

    @Test func anEditWaitsForItsFriendsAndForTheSecond() {
        var monitor = RepositoryMonitor(now: .zero)
        _ = monitor.start(now: .zero)
        monitor.finished()
        monitor.trigger(.changed([path("b")]), now: .milliseconds(500))
        monitor.trigger(.changed([path("a")]), now: .milliseconds(700))
        #expect(monitor.deadline == .seconds(1))
        #expect(monitor.start(now: .milliseconds(999)) == nil)
        #expect(monitor.start(now: .seconds(1)) == .init(full: false, paths: [path("a"), path("b")]))
        monitor.finished()
        monitor.trigger(.changed([path("a")]), now: .seconds(3))
        #expect(monitor.deadline == .milliseconds(3100), "100 ms after the first event, however many follow")
        monitor.trigger(.changed([path("a")]), now: .milliseconds(3090))
        #expect(monitor.deadline == .milliseconds(3100))
    }

    @Test func theLastTriggerIsNeverLost() {
        var monitor = RepositoryMonitor(now: .zero)
        _ = monitor.start(now: .zero)
        monitor.trigger(.changed([path("x")]), now: .milliseconds(10))
        monitor.finished()
        #expect(monitor.deadline == .seconds(1))
        #expect(monitor.start(now: .seconds(1)) == .init(full: false, paths: [path("x")]))
        monitor.finished()
        #expect(monitor.deadline == .seconds(31))
    }

    @Test func pollsEvery30Seconds() {
        var monitor = RepositoryMonitor(now: .zero)
        _ = monitor.start(now: .zero)
        monitor.finished()
        #expect(monitor.start(now: .milliseconds(29_999)) == nil)
        #expect(monitor.start(now: .seconds(30)) == .init(full: true, paths: []))
    }

    @Test func tooManyPathsBecomeEverything() {
        for (count, full) in [(999, false), (1_000, false), (1_001, true)] {
            var monitor = RepositoryMonitor(now: .zero)
            _ = monitor.start(now: .zero)
            monitor.finished()
            monitor.trigger(.changed((0..<count).map { path("\($0)") }), now: .seconds(2))
            #expect(monitor.start(now: .seconds(3))?.full == full)
        }
    }

    @Test func aPassingFailureIsTriedOnceMore() {
        var monitor = RepositoryMonitor(now: .zero)
        _ = monitor.start(now: .zero)
        monitor.failedInPassing(now: .milliseconds(50))
        #expect(monitor.deadline == .milliseconds(250))
        #expect(monitor.start(now: .milliseconds(249)) == nil)
        #expect(monitor.start(now: .milliseconds(250))?.full == true)
        monitor.failedInPassing(now: .milliseconds(300))
        #expect(monitor.deadline == .seconds(30), "skipped until the next trigger")
    }

    @Test func neverTwoScansWithinASecond() {
        var generator = SeededGenerator("scans of a monitor")
        var monitor = RepositoryMonitor(now: .zero)
        var starts: [Duration] = []
        var last = Duration.zero
        var pendingSince: Duration?
        for step in 1..<20_000 {
            let now = Duration.milliseconds(step * 7)
            switch Int.random(in: 0..<40, using: &generator) {
            case 0:
                monitor.trigger(.now, now: now)
                pendingSince = pendingSince ?? now
            case 1...5:
                monitor.trigger(.changed([path("\(step % 9)")]), now: now)
                pendingSince = pendingSince ?? now
            case 6: if monitor.isScanning { monitor.finished() }
            default: break
            }
            if let since = pendingSince, !monitor.isScanning, let deadline = monitor.deadline {
                #expect(deadline <= max(since + .milliseconds(100), last + .seconds(1)))
            }
            if monitor.start(now: now) != nil {
                if let previous = starts.last { #expect(now - previous >= .seconds(1)) }
                starts.append(now)
                last = now
                pendingSince = nil
            }
        }
        #expect(starts.count > 20)
    }
}

@Suite struct WorkerSupervisorTests {
    private func scan(_ root: String) -> WorkerRequest { WorkerRequest(id: 0, kind: .scan, root: root) }

    @Test func blamesWhatLibgitWasAt() throws {
        var worker = WorkerSupervisor()
        let aAdmitted = worker.admit(scan("/a"), now: .zero)
        let a = try #require(aAdmitted)
        let bAdmitted = worker.admit(scan("/b"), now: .zero)
        let b = try #require(bAdmitted)
        worker.started()
        #expect(a.id != b.id)
        #expect(worker.answered(WorkerReply(id: b.id, body: .started(inLibgit: true)), now: .zero) == nil)
        let loss = worker.ended(crashed: true, now: .seconds(1))
        #expect(loss.blamed == ["/b"])
        #expect(loss.owed.map(\.root) == ["/a", "/b"])
        #expect(loss.restart == .seconds(1))
        #expect(worker.deadline(now: .seconds(1)) == nil)
    }

    @Test func noRepositoryIsBlamedForAKill() throws {
        var worker = WorkerSupervisor()
        let aAdmitted = worker.admit(scan("/a"), now: .zero)
        let a = try #require(aAdmitted)
        worker.started()
        _ = worker.answered(WorkerReply(id: a.id, body: .started(inLibgit: true)), now: .zero)
        #expect(worker.ended(crashed: false, now: .zero).blamed.isEmpty)
    }

    @Test func pausesAfterTooManyEnds() {
        var worker = WorkerSupervisor()
        for count in 1...GitWatchLimits.crashes {
            worker.started()
            #expect(worker.ended(crashed: false, now: .seconds(count)).restart == .seconds(count))
        }
        worker.started()
        #expect(worker.ended(crashed: false, now: .seconds(30)).restart == .seconds(90))
        #expect(worker.admit(scan("/a"), now: .seconds(89)) == nil)
        #expect(worker.admit(scan("/a"), now: .seconds(90)) != nil)
    }

    @Test func aHangingScanIsOverdue() throws {
        var worker = WorkerSupervisor()
        let admitted = worker.admit(scan("/a"), now: .zero)
        let a = try #require(admitted)
        _ = worker.admit(scan("/b"), now: .seconds(10))
        worker.started()
        _ = worker.answered(WorkerReply(id: a.id, body: .started(inLibgit: false)), now: .seconds(5))
        #expect(worker.slow(now: .milliseconds(34_999)).isEmpty)
        #expect(worker.deadline(now: .seconds(5)) == .seconds(35))
        #expect(worker.slow(now: .seconds(35)) == ["/a"])
        #expect(worker.deadline(now: .seconds(41)) == .seconds(125))
        #expect(worker.overdue(now: .milliseconds(124_999)).isEmpty)
        #expect(worker.overdue(now: .seconds(135)).map(\.root) == ["/a"], "the other waits for a thread")
        worker.giveUp(worker.overdue(now: .seconds(135)))
        #expect(worker.overdue(now: .seconds(135)).map(\.root) == ["/b"], "nothing comes at all")
    }

    @Test func aPathIsLookedUpInLessTime() throws {
        var worker = WorkerSupervisor()
        let path = WorkerRequest(id: 0, kind: .resolve, root: "/a")
        let admitted = worker.admit(path, now: .zero)
        let asked = try #require(admitted)
        worker.started()
        _ = worker.answered(WorkerReply(id: asked.id, body: .started(inLibgit: false)), now: .zero)
        #expect(worker.overdue(now: .milliseconds(29_999)).isEmpty)
        #expect(worker.overdue(now: .seconds(30)).map(\.root) == ["/a"])
    }

    @Test func theWaitDoublesUpToItsLimit() {
        var hang: Hang?
        var waits: [Int64] = []
        for _ in 0..<14 {
            let next = Hang(after: hang, AnswerTimes(), now: .seconds(7))
            waits.append(next.retryAt.components.seconds - 7)
            hang = next
        }
        #expect(waits.prefix(6) == [30, 60, 120, 240, 480, 600] && waits.last == 600)
    }
}
