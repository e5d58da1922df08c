import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// Waiting until a real Xtigervnc shows no change, with xev and xsetroot as what changes it.
@Suite(.timeLimit(.minutes(15))) struct StillScreenTests {
    private static func isStill(
        _ xvnc: Xvnc, still: Duration, timeout: Duration, region: DesktopRegion? = nil
    ) async throws -> Bool {
        try await screen(xvnc, still: still, timeout: timeout, region: region).wait()
    }

    private static func screen(
        _ xvnc: Xvnc, still: Duration, timeout: Duration, region: DesktopRegion? = nil
    ) -> StillScreen {
        StillScreen(
            endpoint: xvnc.endpoint, area: { region ?? DesktopRegion($0) }, still: still, timeout: timeout)
    }

    /// A window that changes about 20 times a second, in the upper left corner.
    private static func clock(_ xvnc: Xvnc) async throws {
        let script = "i=0; while :; do i=$((i+1)); printf '\\r%s' $i; sleep 0.05; done"
        try xvnc.start(["xterm", "-geometry", "20x2+0+0", "-e", "/bin/sh", "-c", script])
        try xvnc.run("xdotool", "search", "--sync", "--onlyvisible", "--class", "xterm")
    }

    @Test func aScreenWithoutChangeIsStill() async throws {
        try await withDesktop { xvnc, _ in
            let began = ContinuousClock.now
            let answer1 = try await Self.isStill(xvnc, still: .milliseconds(300), timeout: .seconds(60))
            #expect(answer1)
            #expect(ContinuousClock.now - began >= .milliseconds(300))
            let answer2 = try await Self.isStill(xvnc, still: .zero, timeout: .seconds(60))
            #expect(answer2)
            // The time is over before it can be still for so long.
            let answer3 = try await Self.isStill(xvnc, still: .milliseconds(50), timeout: .milliseconds(10))
            #expect(!answer3)
        }
    }

    @Test func aScreenThatChangesIsNot() async throws {
        try await withDesktop { xvnc, _ in
            try await Self.clock(xvnc)
            let answer4 = try await Self.isStill(xvnc, still: .seconds(30), timeout: .seconds(1))
            #expect(!answer4)
            // Beside it nothing changes.
            let beside = DesktopRegion(x: 640, y: 400, width: 640, height: 400)
            let answer5 = try await Self.isStill(xvnc, still: .milliseconds(500), timeout: .seconds(60), region: beside)
            #expect(answer5)
        }
    }

    @Test func theTimeBeginsAnewWithAChange() async throws {
        try await withDesktop { xvnc, _ in
            let began = ContinuousClock.now
            let wait = Task { try await Self.screen(xvnc, still: .seconds(2), timeout: .seconds(100)).wait() }
            var last = began
            for color in ["red", "green", "blue"] {
                let next = last + .milliseconds(700)
                try await eventually("some time") { .now >= next }
                try xvnc.run("xsetroot", "-solid", color)
                last = .now
            }
            let isStill = try await wait.value
            #expect(isStill)
            #expect(ContinuousClock.now - last >= .seconds(2) - .milliseconds(100))
        }
    }

    @Test func aNewSizeIsAChange() async throws {
        try await withDesktop { xvnc, _ in
            let wait = Task { try await Self.screen(xvnc, still: .seconds(2), timeout: .seconds(100)).wait() }
            try xvnc.run("xrandr", "-s", "800x600")
            let changed = ContinuousClock.now
            let isStill = try await wait.value
            #expect(isStill)
            #expect(ContinuousClock.now - changed >= .milliseconds(1_500))
        }
    }

    @Test func endsWhenItIsCancelledAndWithTheServer() async throws {
        try await withDesktop { xvnc, _ in
            let cancelled = Task { try await Self.screen(xvnc, still: .seconds(50), timeout: .seconds(60)).wait() }
            cancelled.cancel()
            await #expect(throws: CancellationError.self) { try await cancelled.value }
            let lost = Task { try await Self.screen(xvnc, still: .seconds(50), timeout: .seconds(60)).wait() }
            try await eventually("a second connection") { Self.connections(xvnc.socket) == 2 }
            kill(xvnc.pid, SIGKILL)
            await #expect(throws: DesktopError(.connectionLost, "")) { try await lost.value }
        }
    }

    @Test func leavesNothing() async throws {
        try await withDesktop { xvnc, driver in
            for _ in 0..<50 { _ = try await Self.screen(xvnc, still: .zero, timeout: .seconds(60)).wait() }
            try await eventually("only the driver's connection") { Self.connections(xvnc.socket) == 1 }
            #expect(driver.isAlive)
        }
    }

    /// How many connections the server has.
    private static func connections(_ socket: String) -> Int {
        // The first one listens.
        ProcFS.text("/proc/net/unix").components(separatedBy: " \(socket)\n").count - 2
    }

    @Test func whatExceedsTheLimitIsRefused() async throws {
        try await withWorld(SessionWorld(connect: SessionWorld.rfb)) { world in
            _ = try await world.session.desktop()
            let long = try action(#"{"action":"wait_stable","ms":60000,"timeout_ms":60000}"#)
            let short = try action(#"{"action":"wait_stable","ms":0,"timeout_ms":60000}"#)
            func codes(_ count: Int) async throws {
                let waits = (0..<count).map { _ in Task { try await world.session.perform(long) } }
                // Beside that of the driver.
                try await eventually("\(count) waits") { Self.connections("\(world.state)/rfb.sock") == count + 1 }
                let refused = count == DesktopLimits.stillnessWaits
                do {
                    #expect(try await world.session.perform(short).met == true && !refused)
                } catch let error as DesktopError {
                    #expect(refused && error.code == .tooMany, "\(error)")
                }
                for wait in waits { wait.cancel() }
                for wait in waits { _ = await wait.result }
                // The server's ends close later; the next count must not take them for new ones.
                try await eventually("no wait") { Self.connections("\(world.state)/rfb.sock") == 1 }
            }
            try await codes(DesktopLimits.stillnessWaits - 1)
            try await codes(DesktopLimits.stillnessWaits)
            let answer = try await world.session.perform(short)
            #expect(answer.met == true)
        }
    }
}
