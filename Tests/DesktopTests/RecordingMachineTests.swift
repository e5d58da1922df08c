import AgentCore
import FoundationEssentials
import Testing

@testable import Desktop

@Suite struct RecordingMachineTests {
    private typealias Phase = RecordingMachine.Phase

    private func machine(_ phase: String) -> RecordingMachine {
        var machine = RecordingMachine()
        let steps = ["waiting", "launching", "starting", "running", "stopping", "checking"]
        let wanted = steps.firstIndex(of: phase) ?? 0
        if wanted >= 1 { #expect(machine.desktopReady() == .launch(0)) }
        if wanted >= 2 { #expect(machine.launched() == .none) }
        if wanted >= 3 { #expect(machine.firstFrame() == .ready) }
        if wanted >= 4 { #expect(machine.stop() == .interrupt) }
        if wanted >= 5 { #expect(machine.exited(isLast: true) == .check) }
        return machine
    }

    @Test func aWholeLife() {
        var machine = machine("checking")
        #expect(machine.checked(isComplete: true) == .end(.finished))
        #expect(!machine.endedByItself && !machine.wasKilled && machine.isOver && !machine.isActive)
    }

    @Test func anUnfinishedVideoIsCorrupted() {
        var machine = machine("checking")
        #expect(machine.checked(isComplete: false) == .end(.corrupted))
    }

    @Test func aKilledRecorderIsCorruptedWhateverItLeft() {
        var machine = machine("stopping")
        #expect(machine.stopTimedOut() == .kill)
        #expect(machine.stopTimedOut() == .none)
        #expect(machine.exited(isLast: true) == .end(.corrupted))
    }

    /// The time for its end passed while it was being started.
    @Test func aRecorderThatComesTooLateIsKilled() {
        var machine = machine("launching")
        #expect(machine.stop() == .none)
        #expect(machine.stopTimedOut() == .kill)
        #expect(machine.launched() == .kill)
        #expect(machine.exited(isLast: true) == .end(.failed))
    }

    @Test func aRecorderThatEndsByItselfIsLookedAt() {
        var machine = machine("running")
        #expect(machine.exited(isLast: true) == .check)
        #expect(machine.endedByItself)
        #expect(machine.stop() == .none)
        #expect(machine.checked(isComplete: true) == .end(.finished))
    }

    @Test func theNextRecorderIsTriedUntilOneBegins() {
        var machine = machine("starting")
        #expect(machine.exited(isLast: false) == .launch(1))
        #expect(machine.launchFailed(isLast: false) == .launch(2))
        #expect(machine.launched() == .none)
        #expect(machine.exited(isLast: true) == .end(.failed))
    }

    @Test func oneThatWritesNothingIsKilledAndNoOtherTried() {
        var machine = machine("starting")
        #expect(machine.startTimedOut() == .kill)
        #expect(machine.exited(isLast: false) == .end(.failed))
    }

    @Test func aStopBeforeTheFirstFrameFailsTheStart() {
        var waiting = machine("waiting")
        #expect(waiting.stop() == .end(.failed))
        #expect(waiting.desktopReady() == .none)

        var launching = machine("launching")
        #expect(launching.stop() == .none)
        #expect(launching.launched() == .interrupt)
        #expect(launching.firstFrame() == .none)
        #expect(launching.exited(isLast: false) == .end(.failed))

        var unlaunched = machine("launching")
        #expect(unlaunched.stop() == .none)
        #expect(unlaunched.launchFailed(isLast: false) == .end(.failed))

        var starting = machine("starting")
        #expect(starting.stop() == .interrupt)
        #expect(starting.exited(isLast: false) == .end(.failed))
    }

    @Test func whatCannotBeginIsOver() {
        var machine = machine("waiting")
        #expect(machine.cannotBegin() == .end(.failed))
        #expect(machine.cannotBegin() == .none)
    }

    @Test func givingUpEndsEveryPhase() {
        for phase in ["waiting", "launching", "starting"] {
            var machine = machine(phase)
            #expect(machine.giveUp() == .end(.failed))
            #expect(machine.giveUp() == .none)
        }
        for phase in ["running", "stopping", "checking"] {
            var machine = machine(phase)
            #expect(machine.giveUp() == .end(.corrupted))
            #expect(machine.checked(isComplete: true) == .none)
        }
    }

    @Test func aRecorderThatStartsAfterTheEndIsKilled() {
        var machine = machine("launching")
        #expect(machine.giveUp() == .end(.failed))
        #expect(machine.launched() == .kill)
    }

    @Test func eventsOutOfPlaceChangeNothing() {
        typealias Event = (String, (inout RecordingMachine) -> RecordingMachine.Action)
        let events: [Event] = [
            ("desktopReady", { $0.desktopReady() }), ("launched", { $0.launched() }),
            ("launchFailed", { $0.launchFailed(isLast: true) }), ("firstFrame", { $0.firstFrame() }),
            ("startTimedOut", { $0.startTimedOut() }), ("stopTimedOut", { $0.stopTimedOut() }),
            ("exited", { $0.exited(isLast: true) }), ("checked", { $0.checked(isComplete: true) }),
            ("cannotBegin", { $0.cannotBegin() }), ("stop", { $0.stop() }),
        ]
        let fitting: [String: Set<String>] = [
            "waiting": ["desktopReady", "cannotBegin", "stop"],
            "launching": ["launched", "launchFailed", "cannotBegin", "stop"],
            "starting": ["firstFrame", "startTimedOut", "exited", "stop"],
            "running": ["exited", "stop"],
            // A recorder whose launch ends after the stop gets SIGINT then.
            "stopping": ["stopTimedOut", "exited", "launched", "launchFailed"],
            "checking": ["checked"],
        ]
        for (phase, fits) in fitting {
            for (name, event) in events where !fits.contains(name) {
                var machine = machine(phase)
                let before = machine
                #expect(event(&machine) == .none, "\(name) in \(phase)")
                #expect(machine == before, "\(name) in \(phase)")
            }
        }
    }
}

@Suite struct RecordingTextTests {
    @Test func theFirstFrameIsFoundHoweverTheOutputIsCut() {
        let header = "frame=1\nfps=0.00\ntotal_size=48\nprogress=continue\n"
        let unsized = "frame=0\ntotal_size=N/A\nprogress=continue\n"
        let first = "frame=    1\nfps=0.00\ntotal_size=3864\nout_time_us=65\nprogress=continue\n"
        let bytes = Array((unsized + header + first + first).utf8)
        let end = (unsized + header + first).utf8.count
        for step in [1, 2, 3, 7, 50, bytes.count] {
            var scanner = ProgressScanner()
            var found: [Int] = []
            for start in stride(from: 0, to: bytes.count, by: step) {
                let part = bytes[start..<min(start + step, bytes.count)]
                if scanner.take(part) { found.append(start + part.count) }
            }
            // Once, with the part that has the end of the block.
            #expect(found.count == 1, "step \(step)")
            #expect(found.allSatisfy { $0 >= end && $0 - step < end }, "step \(step): \(found)")
        }
    }

    @Test func endlessLinesTakeNoMemory() {
        var scanner = ProgressScanner()
        for _ in 0..<100 { _ = scanner.take(Array(repeating: UInt8(ascii: "x"), count: 10_000)) }
        #expect(!scanner.hasFrame)
        let found = scanner.take(Array("\nframe=2\ntotal_size=500\nprogress=continue\n".utf8))
        #expect(found)
    }

    @Test func spellingsOfOneIdentifierAreOne() {
        let id = UUID(uuidString: "0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f")
        for spelling in [
            "0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f", "0C5D1F2E-8A67-4B21-9F3D-5B8E7A1C2D3F",
            "{0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f}", "urn:uuid:0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f",
            "URN:UUID:0c5d1f2e-8A67-4b21-9f3d-5b8e7a1c2d3f", "0c5d1f2e8a674b219f3d5b8e7a1c2d3f",
        ] { #expect(RecordingID.parse(spelling) == id, "\(spelling)") }
        for wrong in [
            "", "x", "0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3", "0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f0",
            "0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3g", "{0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f",
            "0c5d1f2e8a674b219f3d5b8e7a1c2d3g", "urn:uuid:0c5d1f2e8a674b219f3d5b8e7a1c2d3f",
            "0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f\u{0}", " 0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f",
        ] { #expect(RecordingID.parse(wrong) == nil, "\(wrong)") }
    }
}
