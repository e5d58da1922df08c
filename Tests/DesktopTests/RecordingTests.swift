import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// Recordings of a real X server with the real ffmpeg.
@Suite(.serialized, .timeLimit(.minutes(15)), .blocking) struct RecordingTests {
    @Test func fiveSecondsBecomeAVideoAndAThumbnail() async throws {
        // Odd, which 4:2:0 cannot have.
        try await withWorld("1281x721") { world, display in
            let id = UUID()
            #expect(access(world.recordings, F_OK) != 0)
            try await world.manager.start(id)
            let directory = try #require(world.kept.first)
            // The promise of the first 200: a frame is on the disk.
            #expect(fileSize("\(world.recordings)/\(directory)/video.mp4") > 128)
            #expect(world.manager.running == 1)
            let began = ContinuousClock.now
            try await offPool { try display.wriggle(seconds: 5) }
            let seconds = (ContinuousClock.now - began) / .seconds(1)
            let video = try await world.manager.stop(id)
            #expect(world.manager.running == 0)

            let path = "\(world.recordings)/\(directory)/video.mp4"
            let probed = try await offPool { try Probed(path) }
            #expect(probed.width == 1282 && probed.height == 722)
            // A hundred moves in five seconds and a little, each a picture of its own; a busy machine grabs
            // few of them.
            #expect(probed.frames > 3 && probed.frames < 400, "\(probed.frames) frames")
            #expect(probed.seconds > seconds - 0.8, "\(probed) of \(seconds) s")
            #expect(try video.video.count == fileSize(path))
            let size = try #require(jpegSize(try video.thumbnail))
            #expect(size == (1281, 721))
            for name in ["video.mp4", "thumbnail.jpg"] {
                #expect(mode("\(world.recordings)/\(directory)/\(name)") == 0o600)
            }
            #expect(mode("\(world.recordings)/\(directory)") == 0o700)
            // As often as one likes.
            let again = try await world.manager.stop(id)
            #expect(try again.video == video.video)
            #expect(try again.thumbnail == video.thumbnail)
            #expect(world.counter("agent_desktop_recordings_started_total") == 1)
        }
    }

    @Test func aStillPictureIsSpedUpFromTheFourthSecondOn() async throws {
        // Two minutes in earnest; six seconds without the variable.
        let seconds = ProcessInfo.processInfo.environment["WA_LONG_RECORDING"] == nil ? 6 : 120
        try await withWorld("1920x1080") { world, _ in
            let id = UUID()
            let start = ContinuousClock.now
            try await world.manager.start(id)
            try await offPool { _ = try CommandResult.of(["/bin/sleep", "\(seconds)"]) }
            let begin = ContinuousClock.now
            let video = try await world.manager.stop(id)
            let (took, whole) = (ContinuousClock.now - begin, (ContinuousClock.now - start) / .seconds(1))
            let directory = try #require(world.kept.first)
            let probed = try await offPool { try Probed("\(world.recordings)/\(directory)/video.mp4") }
            func shown(_ real: Double) -> Double { min(real, 3) + max(0, real - 3) / 20 }
            // Up to a beat is missing at the end. Seconds in which this test did not run are recorded, too.
            let bounds = shown(Double(seconds) - 0.7)...shown(whole) + 0.1
            #expect(bounds.contains(probed.seconds), "\(probed), not \(bounds)")
            print("still picture: \(seconds) s, \(probed), \(video.videoBytes) bytes, stopped in \(took)")
        }
    }

    /// A clock, and two characters a second: no stretch of three seconds is still.
    @Test(arguments: ["while :; do date +%T; sleep 1; done", "exec cat"])
    func slowActivityKeepsItsPace(program: String) async throws {
        try await withWorld { world, display in
            let environment = ["DISPLAY": display.display, "PATH": "/usr/bin:/bin"]
            let xterm = try DaemonProcess.spawn(["xterm", "-fn", "fixed", "-e", "/bin/sh", "-c", program], environment)
            defer {
                kill(xterm, SIGTERM)
                waitpid(xterm, nil, 0)
            }
            let find = "xdotool search --sync --onlyvisible --class xterm windowfocus --sync"
            #expect(try CommandResult.of(["/bin/sh", "-c", find], environment: environment).code == 0)
            let id = UUID()
            let start = ContinuousClock.now
            try await world.manager.start(id)
            let began = ContinuousClock.now
            let typing =
                program == "exec cat"
                ? "for c in s i x t e e n c h a r a c t r; do xdotool key $c; sleep 0.5; done" : "sleep 8"
            #expect(try CommandResult.of(["/bin/sh", "-c", typing], environment: environment).code == 0)
            let real = (ContinuousClock.now - began) / .seconds(1)
            _ = try await world.manager.stop(id)
            let whole = (ContinuousClock.now - start) / .seconds(1)
            let directory = try #require(world.kept.first)
            let path = "\(world.recordings)/\(directory)/video.mp4"
            let probed = try Probed(path)
            let bounds = real - 0.8...whole + 0.1
            #expect(real > 7 && bounds.contains(probed.seconds), "\(probed), not \(bounds)")
            // Beats are 2/3 s apart; no frame was shown sooner after the one before than it was grabbed.
            let times = try frameTimes(path)
            let changes = zip(times, times.dropFirst()).count { $1 - $0 < 0.65 }
            #expect(changes >= 6, "\(times)")
        }
    }

    /// Also a wholly still one that is over before the first beat.
    @Test func aVeryShortOneCanBePlayed() async throws {
        try await withWorld { world, _ in
            let id = UUID()
            try await world.manager.start(id)
            let video = try await world.manager.stop(id)
            let directory = try #require(world.kept.first)
            let probed = try Probed("\(world.recordings)/\(directory)/video.mp4")
            #expect(probed.frames >= 1 && probed.seconds > 0, "\(probed)")
            #expect(try #require(jpegSize(try video.thumbnail)) == (640, 480))
        }
    }

    @Test func aStartWhileItRunsDoesNothing() async throws {
        try await withWorld { world, _ in
            let id = UUID()
            // Together, and again.
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<5 { group.addTask { try await world.manager.start(id) } }
                try await group.waitForAll()
            }
            try await world.manager.start(id)
            #expect(world.recorders.count == 1)
            #expect(world.manager.running == 1)
            #expect(world.counter("agent_desktop_recordings_started_total") == 1)
        }
    }

    @Test func aStopThatComesWithTheStartWaitsForIt() async throws {
        try await withWorld { world, _ in
            let id = UUID()
            let start = Task { try await world.manager.start(id) }
            try await eventually("it is known") { world.manager.running == 1 }
            let videos = try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<3 { group.addTask { try await world.manager.stop(id).videoBytes } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            try await start.value
            #expect(Set(videos).count == 1 && videos[0] > 0)
        }
    }

    @Test func fiveRunAtOnceAndNoSixth() async throws {
        try await withWorld("320x240") { world, _ in
            let ids = (0..<5).map { _ in UUID() }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for id in ids { group.addTask { try await world.manager.start(id) } }
                try await group.waitForAll()
            }
            #expect(world.manager.running == 5)
            await #expect(throws: DesktopError(.tooMany, "")) { try await world.manager.start(UUID()) }
            // One of the five is no sixth.
            try await world.manager.start(ids[2])
            _ = try await world.manager.stop(ids[0])
            let sixth = UUID()
            try await world.manager.start(sixth)
            await #expect(throws: DesktopError(.tooMany, "")) { try await world.manager.start(ids[0]) }
            // What was refused took nothing away.
            #expect(try await world.manager.stop(ids[0]).videoBytes > 0)
            for id in ids + [sixth] { #expect(try await world.manager.stop(id).videoBytes > 0) }
            #expect(world.manager.running == 0 && world.recorders.isEmpty)
        }
    }

    @Test func aStartAfterTheStopDiscardsTheOldOne() async throws {
        try await withWorld { world, display in
            let id = UUID()
            try await world.manager.start(id)
            let old = try await world.manager.stop(id)
            let directory = try #require(world.kept.first)
            try await world.manager.start(id)
            try await eventually("the old files are gone") { !world.kept.contains(directory) }
            try await offPool { try display.wriggle(seconds: 1) }
            let new = try await world.manager.stop(id)
            #expect(try new.video != old.video)
            // Held open it can still be sent to the end.
            #expect(try old.video.count == old.videoBytes)
            #expect(world.kept.count == 1)
        }
    }

    @Test func aKilledRecorderIsCorruptedAndCounted() async throws {
        try await withWorld { world, _ in
            let id = UUID()
            try await world.manager.start(id)
            kill(try #require(world.recorders.first), SIGKILL)
            try await eventually("it is noticed") { world.manager.running == 0 }
            for _ in 0..<2 {
                let error = await #expect(throws: DesktopError(.failed, "")) { try await world.manager.stop(id) }
                #expect(error?.message == "Recording is corrupted.")
            }
            #expect(world.counter("agent_desktop_recordings_failed_total{reason=\"died\"}") == 1)
            #expect(world.log.text.contains("a recorder ended by itself"))
            try await eventually("a corrupted recording takes no space") { world.kept.isEmpty }
            try await world.manager.start(id)
            #expect(try await world.manager.stop(id).videoBytes > 0)
        }
    }

    @Test func whatWasRecordedUntilTheServerDiedIsKept() async throws {
        let display = try RecordedDisplay()
        let world = try RecordingWorld(display)
        let id = UUID()
        try await world.manager.start(id)
        kill(display.pid, SIGKILL)
        try await eventually("it is noticed") { world.manager.running == 0 }
        #expect(try await world.manager.stop(id).videoBytes > 0)
        await world.end()
        unlink("/tmp/.X\(display.display.dropFirst())-lock")
        unlink("/tmp/.X11-unix/X\(display.display.dropFirst())")
    }

    @Test func tenMinutesWithoutAnActionEndIt() async throws {
        let clock = ManualClock()
        try await withWorld(clock: clock) { world, _ in
            let id = UUID()
            try await world.manager.start(id)
            await clock.sleepers(1)
            clock.advance(by: .seconds(599))
            world.manager.noteActivity()
            clock.advance(by: .seconds(1))
            // It woke, found the action, and sleeps until ten minutes after that.
            try await eventually("it sleeps again") {
                clock.sleeping == 1 && clock.nextDeadline?.offset == .seconds(1199)
            }
            #expect(world.manager.running == 1 && world.recorders.count == 1)
            clock.advance(by: .milliseconds(598_999))
            #expect(world.manager.running == 1 && clock.sleeping == 1)
            clock.advance(by: .milliseconds(1))
            try await eventually("it has ended") { world.manager.running == 0 }
            #expect(world.log.text.contains("ended_by=idle"))
            #expect(try await world.manager.stop(id).videoBytes > 0)
            // And is kept for an hour.
            try await eventually("the hour runs") { clock.nextDeadline?.offset == .seconds(1199 + 3600) }
            clock.advance(by: .milliseconds(3_599_999))
            #expect(try await world.manager.stop(id).videoBytes > 0)
            clock.advance(by: .milliseconds(1))
            try await eventually("it is gone") { world.kept.isEmpty }
            await #expect(throws: DesktopError(.notFound, "")) { try await world.manager.stop(id) }
            #expect(clock.sleeping == 0)
        }
    }

    @Test func shutdownFinishesAll() async throws {
        // Enough for a recorder on a busy machine; one that takes longer than the limit is killed.
        var limits = RecordingLimits()
        limits.shutdown = .seconds(60)
        try await withWorld(limits: limits) { world, display in
            let ids = (0..<3).map { _ in UUID() }
            for id in ids { try await world.manager.start(id) }
            try await offPool { try display.wriggle(seconds: 1) }
            let waiting = Task { try await world.manager.stop(ids[0]) }
            await world.manager.shutdown()
            #expect(world.recorders.isEmpty && world.launcher.running == 0)
            #expect(access(world.recordings, F_OK) != 0)
            // A stop under way still gets its video, one that comes too late does not.
            do {
                #expect(try await waiting.value.video.count > 0)
            } catch let error as DesktopError {
                #expect(error.code == .shuttingDown)
            }
            await #expect(throws: DesktopError(.shuttingDown, "")) { try await world.manager.stop(ids[1]) }
            await #expect(throws: DesktopError(.shuttingDown, "")) { try await world.manager.start(UUID()) }
        }
    }

    @Test func aLargeRecordingEndsByItself() async throws {
        var limits = RecordingLimits()
        limits.videoBytes = 50_000
        try await withWorld("1280x720", limits: limits) { world, display in
            let id = UUID()
            try await world.manager.start(id)
            // Noise, which no encoder makes small.
            let environment = ["DISPLAY": display.display]
            for seed in 0..<50 where world.manager.running == 1 {
                try await offPool {
                    _ = try CommandResult.of(
                        [
                            "/bin/sh", "-c",
                            "convert -seed \(seed) -size 640x360 xc: +noise Random png:- | display -window root png:-",
                        ],
                        environment: environment)
                }
            }
            #expect(world.manager.running == 0)
            let video = try await world.manager.stop(id)
            #expect(video.videoBytes > limits.videoBytes)
            #expect(video.videoBytes < 4_000_000)
        }
    }

    @Test func theOldestOfManyStoppedOnesGoes() async throws {
        var limits = RecordingLimits()
        limits.kept = 2
        try await withWorld("320x240", limits: limits) { world, _ in
            let ids = (0..<3).map { _ in UUID() }
            for id in ids {
                try await world.manager.start(id)
                _ = try await world.manager.stop(id)
            }
            await #expect(throws: DesktopError(.notFound, "")) { try await world.manager.stop(ids[0]) }
            for id in ids.dropFirst() { #expect(try await world.manager.stop(id).videoBytes > 0) }
            try await eventually("its files are gone") { world.kept.count == 2 }
        }
    }

    /// The last one is kept, however large it is.
    @Test func theOldestGoesWhenAllAreTooLargeTogether() async throws {
        var limits = RecordingLimits()
        limits.keptBytes = 1
        try await withWorld("320x240", limits: limits) { world, _ in
            let ids = (0..<2).map { _ in UUID() }
            for id in ids {
                try await world.manager.start(id)
                #expect(try await world.manager.stop(id).videoBytes > limits.keptBytes)
            }
            await #expect(throws: DesktopError(.notFound, "")) { try await world.manager.stop(ids[0]) }
            #expect(try await world.manager.stop(ids[1]).videoBytes > 0)
            try await eventually("its files are gone") { world.kept.count == 1 }
        }
    }
}
