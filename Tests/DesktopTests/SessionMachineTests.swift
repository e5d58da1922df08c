import Testing

@testable import Desktop

@Suite struct SessionMachineTests {
    @Test func firstUsesAtOnceStartOne() {
        var machine = SessionMachine()
        #expect(machine.use() == .begin(1))
        #expect(machine.use() == .wait)
        #expect(machine.use() == .wait)
        #expect(machine.started(1) == true)
        #expect(machine.use() == .use(1))
    }

    @Test func afterAFailureTheNextUseStartsAgain() {
        var machine = SessionMachine()
        _ = machine.use()
        machine.failed(1)
        #expect(machine.use() == .begin(2))
    }

    @Test func aLossIsNewsOnce() {
        var machine = SessionMachine()
        _ = machine.use()
        #expect(machine.lost(1) == false)
        _ = machine.started(1)
        #expect(machine.lost(1) == true)
        #expect(machine.lost(1) == false)
        #expect(machine.use() == .begin(2))
    }

    @Test func lateNewsOfAnEarlierDesktopChangesNothing() {
        var machine = SessionMachine()
        _ = machine.use()
        _ = machine.started(1)
        _ = machine.lost(1)
        _ = machine.use()
        #expect(machine.lost(1) == false)
        machine.failed(1)
        #expect(machine.started(1) == false)
        #expect(machine.started(2) == true)
        #expect(machine.lost(1) == false)
        #expect(machine.use() == .use(2))
    }

    @Test func shutdownRefusesAndTellsWhatToEnd() {
        var machine = SessionMachine()
        #expect(machine.shutdown() == .idle)
        #expect(machine.use() == .refuse)

        var running = SessionMachine()
        _ = running.use()
        _ = running.started(1)
        #expect(running.shutdown() == .running(1))
        #expect(running.shutdown() == .idle)
        #expect(running.lost(1) == false)
        #expect(running.use() == .refuse)
    }

    @Test func aStartThatEndsAfterShutdownIsNotKept() {
        var machine = SessionMachine()
        _ = machine.use()
        #expect(machine.shutdown() == .starting(1))
        #expect(machine.started(1) == false)
        #expect(machine.phase == .idle)
        #expect(machine.use() == .refuse)
    }
}
