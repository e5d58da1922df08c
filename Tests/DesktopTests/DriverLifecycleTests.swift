import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// Servers that die, hang or never were.
@Suite(.timeLimit(.minutes(15))) struct DriverLifecycleTests {
    @Test func noticesADeadServerAtOnce() async throws {
        try await withDesktop { xvnc, driver in
            #expect(driver.isAlive)
            try await driver.probe(within: .seconds(20))
            kill(xvnc.pid, SIGKILL)
            try await eventually("noticed", within: .seconds(120)) { !driver.isAlive }
            await #expect(throws: DesktopError(.connectionLost, "")) {
                try await driver.perform(#"{"action":"screenshot"}"#)
            }
            await #expect(throws: DesktopError(.connectionLost, "")) { try await driver.probe(within: .seconds(1)) }
            await driver.releaseAll()
            await driver.viewerLeft(heldButtons: true)
        }
    }

    @Test func anActionInFlightFailsWhenTheServerDies() async throws {
        try await withDesktop { xvnc, driver in
            let hold = Task { try await driver.perform(#"{"action":"hold_key","text":"a","duration":60000}"#) }
            let queued = Task { try await driver.perform(#"{"action":"key","text":"b"}"#) }
            try await driver.probe(within: .seconds(20))
            kill(xvnc.pid, SIGKILL)
            await #expect(throws: DesktopError(.connectionLost, "")) { try await hold.value }
            await #expect(throws: DesktopError(.connectionLost, "")) { try await queued.value }
            #expect(!driver.isAlive)
        }
    }

    /// The daemon ignores SIGPIPE; nothing here relies on it.
    @Test func writingToADeadServerRaisesNoSignal() async throws {
        await #expect(processExitsWith: .success) {
            signal(SIGPIPE, SIG_DFL)
            for _ in 0..<10 {
                let xvnc = try Xvnc("640x480")
                let driver = try await xvnc.driver()
                let text = Task { try await driver.type(String(repeating: "a", count: 1 << 20)) }
                try await driver.probe(within: .seconds(20))
                kill(xvnc.pid, SIGKILL)
                await #expect(throws: DesktopError(.connectionLost, "")) { try await text.value }
            }
        }
    }

    @Test func aStoppedServerFailsAProbeInTime() async throws {
        try await withDesktop { xvnc, driver in
            kill(xvnc.pid, SIGSTOP)
            let took = await ContinuousClock().measure {
                await #expect(throws: DesktopError(.connectionLost, "")) {
                    try await driver.probe(within: .milliseconds(300))
                }
            }
            #expect(took >= .milliseconds(300) && took < .seconds(120), "\(took)")
            // A cancelled caller does not wait for it.
            let action = Task { try await driver.perform(#"{"action":"mouse_move","coordinate":[1,1]}"#) }
            action.cancel()
            await #expect(throws: CancellationError.self) { try await action.value }
            kill(xvnc.pid, SIGCONT)
            try await driver.probe(within: .seconds(20))
            try await driver.perform(#"{"action":"mouse_move","coordinate":[7,8]}"#)
            #expect(try xvnc.pointer() == DesktopPoint(x: 7, y: 8))
        }
    }

    @Test func anActionOnAStoppedServerFails() async throws {
        try await withDesktop { xvnc, driver in
            kill(xvnc.pid, SIGSTOP)
            let took = await ContinuousClock().measure {
                await #expect(throws: DesktopError(.connectionLost, "")) {
                    try await driver.perform(#"{"action":"mouse_move","coordinate":[1,1]}"#)
                }
            }
            #expect(took >= DesktopLimits.answerBudget && took < .seconds(120), "\(took)")
            #expect(!driver.isAlive)
        }
    }

    @Test func closesWhileTheServerHangs() async throws {
        try await withDesktop { xvnc, driver in
            try await driver.perform(#"{"action":"key_down","text":"ctrl"}"#)
            kill(xvnc.pid, SIGSTOP)
            let hold = Task { try await driver.perform(#"{"action":"hold_key","text":"a","duration":60000}"#) }
            let took = await ContinuousClock().measure { await driver.close() }
            #expect(took < .seconds(120), "\(took)")
            await #expect(throws: DesktopError(.connectionLost, "")) { try await hold.value }
            await driver.close()
            #expect(!driver.isAlive)
        }
    }

    @Test func doesThingsInOrder() async throws {
        try await withDesktop { xvnc, driver in
            // Many at once; the last that was asked for is where the pointer stays.
            for round in 0..<20 {
                var tasks: [Task<ActionResult, any Error>] = []
                for x in 0..<10 {
                    let action = DesktopAction(
                        name: "mouse_move", work: .driver(.move(DesktopPoint(x: 10 * x, y: round))))
                    tasks.append(Task { try await driver.perform(action) })
                    if x == 8 { for task in tasks { _ = try await task.value } }
                }
                for task in tasks { _ = try await task.value }
                #expect(try xvnc.pointer() == DesktopPoint(x: 90, y: round))
            }
        }
    }

    @Test func refusesMoreThanTheQueueHolds() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[100,100]}"#)
            let hold = Task { try await driver.perform(#"{"action":"hold_key","text":"a","duration":60000}"#) }
            // It is performed, and waits no more.
            try await eventually("the key is down") { window.keys("KeyPress").contains("a") }
            var waiting: [Task<ActionResult, any Error>] = []
            for _ in 0..<DesktopLimits.queuedActions + 1 {
                waiting.append(Task { try await driver.perform(#"{"action":"cursor_position"}"#) })
            }
            // Exactly one too many, whichever it is.
            let refused = await withTaskGroup(of: Bool.self) { group in
                for task in waiting {
                    group.addTask {
                        do { _ = try await task.value } catch let error as DesktopError {
                            return error.code == .tooMany
                        } catch {}
                        return false
                    }
                }
                let first = await group.next() ?? false
                hold.cancel()
                var count = first ? 1 : 0
                for await refused in group where refused { count += 1 }
                return count
            }
            #expect(refused == 1)
        }
    }

    @Test func namesServersThatAreNotThere() async throws {
        let directory = try TemporaryDirectory()
        await #expect(throws: DesktopError(.connectionLost, "")) {
            _ = try await RFBDriver.connect(to: .unix("\(directory.path)/none"))
        }
        await #expect(throws: DesktopError(.connectionLost, "")) {
            _ = try await RFBDriver.connect(to: .tcp(host: "127.0.0.1", port: 1))
        }
        await #expect(throws: DesktopError(.connectionLost, "")) {
            _ = try await RFBDriver.connect(to: .tcp(host: "no.such.host.invalid", port: 1))
        }
        let long = "/tmp/" + String(repeating: "x", count: 200)
        await #expect(throws: DesktopError(.failed, "")) {
            _ = try await RFBDriver.connect(to: .unix(long))
        }
    }

    @Test func worksOverTCPAsWell() async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let (xvnc, driver) = try await Self.overTCP()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[3,4]}"#)
            #expect(try xvnc.pointer() == DesktopPoint(x: 3, y: 4))
            await driver.close()
        }
    }

    private static func overTCP() async throws -> (Xvnc, RFBDriver) {
        var triesLeft = 3
        while true {
            triesLeft -= 1
            do {
                let port = try LoopbackSocket.freePort()
                let xvnc = try Xvnc(arguments: ["-rfbport=\(port)", "-rfbunixpath="])
                let endpoint = RFBEndpoint.tcp(host: "localhost", port: port)
                return (xvnc, try await RFBDriver.connect(to: endpoint))
            } catch {
                // Another process may have taken the port meanwhile.
                if triesLeft == 0 { throw error }
            }
        }
    }

    /// Nothing stays behind a connection, whether it is closed, forgotten or refused.
    @Test func leavesNothingBehind() async throws {
        await #expect(processExitsWith: .success) {
            let xvnc = try Xvnc("640x480")
            func cycle(_ index: Int) async throws {
                var driver: RFBDriver? = try await xvnc.driver()
                try await driver?.perform(#"{"action":"mouse_move","coordinate":[1,1]}"#)
                if index % 5 == 0 { try await driver?.perform(#"{"action":"screenshot"}"#) }
                if index % 2 == 0 { await driver?.close() }
                driver = nil
                _ = try? await RFBDriver.connect(to: .unix("/nonexistent"))
            }
            for index in 0..<5 { try await cycle(index) }
            let quiet = { ProcFS.threads(getpid()) }
            try await eventually("the first threads to end") { !Self.hasDesktopThread() }
            let (threads, descriptors) = (quiet(), ProcFS.descriptors(getpid()))
            for index in 0..<50 { try await cycle(index) }
            try await eventually("threads and descriptors as before") {
                !Self.hasDesktopThread() && quiet() <= threads + 1 && ProcFS.descriptors(getpid()) <= descriptors
            }
        }
    }

    private static func hasDesktopThread() -> Bool {
        directoryEntries("/proc/self/task").contains {
            ProcFS.text("/proc/self/task/\($0)/comm").hasPrefix("desktop")
        }
    }

    /// Without calls nothing wakes the thread, however much changes on the desktop.
    @Test func anIdleConnectionSleeps() async throws {
        await #expect(processExitsWith: .success) {
            let xvnc = try Xvnc("640x480")
            let driver = try await xvnc.driver()
            try await driver.perform(#"{"action":"screenshot"}"#)
            try xvnc.run("xsetroot", "-solid", "red")
            let task = try #require(
                directoryEntries("/proc/self/task").first {
                    ProcFS.text("/proc/self/task/\($0)/comm").hasPrefix("desktop")
                })
            func switches() -> Int {
                let status = ProcFS.text("/proc/self/task/\(task)/status")
                let line = status.split(separator: "\n").first { $0.hasPrefix("voluntary_ctxt_switches") } ?? ""
                return Int(line.split(separator: "\t").last ?? "") ?? -1
            }
            // The end of the last action, and what the server still had to say of it, may come late.
            var round = 0
            try await eventually("it rests while the desktop moves") {
                let last = switches()
                round += 1
                try xvnc.run("xsetroot", "-solid", round % 2 == 0 ? "red" : "white")
                try xvnc.run("xdotool", "mousemove", "\(round % 99)", "9")
                return switches() == last
            }
            let before = switches()
            for index in 0..<50 {
                try xvnc.run("xsetroot", "-solid", index % 2 == 0 ? "blue" : "green")
                try xvnc.run("xdotool", "mousemove", "\(index)", "7")
            }
            // One that could run but does not get to it sleeps a little later, which counts; a hundred
            // changes would have woken it as often.
            #expect(before >= 0 && switches() - before <= 5)
            await driver.close()
        }
    }
}
