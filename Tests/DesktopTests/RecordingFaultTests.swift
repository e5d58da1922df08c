import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Desktop

/// Recorders that misbehave, and the other recorder.
@Suite(.serialized, .timeLimit(.minutes(15)), .blocking) struct RecordingFaultTests {
    /// Reports a frame, ignores SIGINT and waits without a child: one that is forked in the 10 ms in which its shell
    /// is killed counts as ours below a subreaper only, which the tests are not.
    private static let stubborn = """
        trap '' INT
        mkfifo "$0.wait"
        printf 'frame=1\\ntotal_size=4000\\nprogress=continue\\n'
        read never <>"$0.wait"
        """

    @Test func oneThatDoesNotEndIsKilledAfterFifteenSeconds() async throws {
        let clock = ManualClock()
        try await withWorld(clock: clock) { world, _ in
            try world.script("ffmpeg", Self.stubborn)
            let id = UUID()
            try await world.manager.start(id)
            await clock.sleepers(1)
            let stop = Task { try await world.manager.stop(id) }
            // Beside the timer for actions.
            await clock.sleepers(2)
            clock.advance(by: .milliseconds(14_999))
            #expect(world.manager.running == 1 && world.recorders.count == 1)
            clock.advance(by: .milliseconds(1))
            let error = await #expect(throws: DesktopError(.failed, "")) { try await stop.value }
            #expect(error?.message == "Recording is corrupted.")
            try await eventually("nothing of it is left") { world.recorders.isEmpty && world.launcher.running == 0 }
            #expect(world.counter("agent_desktop_recordings_failed_total{reason=\"stop\"}") == 1)
        }
    }

    /// Starts programs once a test lets it.
    private final class Gate: CommandRunner {
        let inner: any CommandRunner
        let opened = Promise<Void>()
        let entered = Atomic(false)

        init(_ inner: any CommandRunner) { self.inner = inner }

        func start(
            _ command: Command, output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
        ) async throws -> any RunningCommand {
            entered.store(true, ordering: .relaxed)
            await opened.valueIgnoringCancellation
            return Deaf(inner: try await inner.start(command, output: output))
        }
    }

    /// Hears no SIGINT, from the first moment on.
    private struct Deaf: RunningCommand {
        let inner: any RunningCommand
        var pid: Int32 { inner.pid }
        func exit() async -> CommandExit { await inner.exit() }
        func outputEnd() async { await inner.outputEnd() }
        func signal(_ number: Int32) { inner.signal(number) }
        func signalLeader(_ number: Int32) {}
        func abandonOutput() { inner.abandonOutput() }
    }

    /// Its time to end runs from then on, whatever its start still does.
    @Test func oneThatIsStoppedWhileItIsLaunchedIsKilledToo() async throws {
        let clock = ManualClock()
        try await withWorld(clock: clock) { world, display in
            try world.script("ffmpeg", Self.stubborn)
            let gate = Gate(world.launcher)
            var context = world.manager.context
            context.runner = gate
            let id = UUID()
            let recording = ScreenRecording(
                id: id, files: RecordingFiles(directory: "\(world.directory.path)/one"), context: context
            ) { _, _ in }
            recording.begin()
            try await eventually("it is launched") { gate.entered.load(ordering: .relaxed) }
            recording.stop(.request)
            gate.opened.fulfill()
            try await eventually("its time runs") { clock.nextDeadline?.offset == .seconds(15) }
            try await eventually("it runs") { world.recorders.count == 1 }
            clock.advance(by: .seconds(15))
            await recording.over()
            #expect(world.recorders.isEmpty)
        }
    }

    @Test func aSlowStopDelaysNoOther() async throws {
        let clock = ManualClock()
        try await withWorld(clock: clock) { world, _ in
            try world.script("ffmpeg", Self.stubborn)
            let (slow, quick) = (UUID(), UUID())
            try await world.manager.start(slow)
            let stop = Task { try await world.manager.stop(slow) }
            await clock.sleepers(1)
            // The real one from now on.
            unlink("\(world.bin)/ffmpeg")
            try await world.manager.start(quick)
            #expect(try await world.manager.stop(quick).videoBytes > 0)
            world.manager.noteActivity()
            // A start of the one that is being stopped waits for its end, and then begins anew.
            let restart = Task { try await world.manager.start(slow) }
            try await eventually("its time runs") { clock.nextDeadline?.offset == .seconds(15) }
            clock.advance(by: .seconds(15))
            await #expect(throws: DesktopError(.failed, "")) { try await stop.value }
            try await restart.value
            #expect(try await world.manager.stop(slow).videoBytes > 0)
        }
    }

    @Test func shutdownKillsWhatDoesNotEnd() async throws {
        let clock = ManualClock()
        try await withWorld(clock: clock) { world, _ in
            try world.script("ffmpeg", Self.stubborn)
            try await world.manager.start(UUID())
            let shutdown = Task { await world.manager.shutdown() }
            try await eventually("three seconds run") { clock.nextDeadline?.offset == .seconds(3) }
            clock.advance(by: .milliseconds(2_999))
            #expect(world.recorders.count == 1)
            clock.advance(by: .milliseconds(1))
            await shutdown.value
            try await eventually("nothing is left") { world.recorders.isEmpty && world.kept.isEmpty }
        }
    }

    @Test func oneThatWritesNoFrameIsGivenUp() async throws {
        let clock = ManualClock()
        try await withWorld(clock: clock) { world, _ in
            try world.script("ffmpeg", "echo cannot grab >&2; exec sleep 1000")
            let id = UUID()
            let start = Task { try await world.manager.start(id) }
            try await eventually("it runs") { clock.nextDeadline?.offset == .seconds(15) }
            clock.advance(by: .seconds(15))
            let error = await #expect(throws: DesktopError(.failed, "")) { try await start.value }
            #expect(error?.message == "Failed to start recording.")
            #expect(error?.detail?.contains("15") == true, "\(error?.detail ?? "")")
            await #expect(throws: DesktopError(.notFound, "")) { try await world.manager.stop(id) }
            try await eventually("nothing is left") { world.recorders.isEmpty && world.kept.isEmpty }
            #expect(world.manager.running == 0)
            #expect(world.counter("agent_desktop_recordings_failed_total{reason=\"start\"}") == 1)
            #expect(world.counter("agent_desktop_recordings_started_total") == 0)
        }
    }

    @Test func whyItCannotStartIsTold() async throws {
        try await withWorld { world, _ in
            try world.script("ffmpeg", "echo 'no such device' >&2; exit 7")
            let error = await #expect(throws: DesktopError(.failed, "")) { try await world.manager.start(UUID()) }
            #expect(error?.detail?.contains("no such device") == true, "\(error?.detail ?? "")")
            #expect(error?.detail?.contains("7") == true)
            #expect(world.log.text.contains("no such device"))
            // A desktop that is not there, with the real one.
            unlink("\(world.bin)/ffmpeg")
        }
        let world = try RecordingWorld(nil)
        let error = await #expect(throws: DesktopError(.failed, "")) { try await world.manager.start(UUID()) }
        #expect(error?.detail?.contains(":none") == true, "\(error?.detail ?? "")")
        await world.end()
    }

    /// Shutdown waits for no recording that waits for the desktop; what that goes on to do leaves no files.
    @Test func oneThatShutdownOvertakesLeavesNothing() async throws {
        let asked = Atomic(false)
        let goOn = DispatchSemaphore(value: 0)
        let world = try RecordingWorld(nil) {
            asked.store(true, ordering: .relaxed)
            goOn.wait()
            return ["/bin/true"]
        }
        let start = Task { try await world.manager.start(UUID()) }
        try await eventually("it looks for its recorder") { asked.load(ordering: .relaxed) }
        await world.manager.shutdown()
        await #expect(throws: DesktopError(.shuttingDown, "")) { try await start.value }
        goOn.signal()
        // Waits for what runs on it.
        await world.pool.shutdown()
        #expect(access(world.recordings, F_OK) != 0)
        await world.end()
    }

    @Test func withoutADesktopNothingBegins() async throws {
        let world = try RecordingWorld(nil, failure: DesktopError(.failed, "The desktop did not start."))
        for _ in 0..<6 {
            let error = await #expect(throws: DesktopError(.failed, "")) { try await world.manager.start(UUID()) }
            #expect(error?.message == "The desktop did not start.")
        }
        #expect(world.manager.running == 0 && world.kept.isEmpty)
        await world.end()
    }

    @Test func withoutAnyRecorderTheErrorSaysWhatToInstall() async throws {
        let display = try RecordedDisplay()
        let world = try RecordingWorld(display, path: "/nonexistent")
        let error = await #expect(throws: DesktopError(.failed, "")) { try await world.manager.start(UUID()) }
        #expect(error?.detail?.contains("install ffmpeg") == true)
        #expect(world.kept.isEmpty)
        await world.end()
    }

    /// With the desktop program's recorder, whose own PATH has what it needs.
    @Test func withoutFFmpegTheDesktopProgramRecords() async throws {
        try await viaPortableDesktop(path: "/nonexistent")
    }

    @Test func whereFFmpegCannotRecordTheDesktopProgramDoes() async throws {
        let directory = try TemporaryDirectory()
        try Data("#!/bin/sh\necho 'Unknown input format: x11grab' >&2; exit 1\n".utf8)
            .write(to: URL(fileURLWithPath: "\(directory.path)/ffmpeg"))
        chmod("\(directory.path)/ffmpeg", 0o755)
        try await viaPortableDesktop(path: "\(directory.path):/nonexistent")
    }

    private func viaPortableDesktop(path: String) async throws {
        let display = try RecordedDisplay()
        let directory = try TemporaryDirectory()
        let (state, wrapper) = ("\(directory.path)/state.json", "\(directory.path)/portabledesktop")
        try Data("{\"display\":\(display.display.dropFirst())}\n".utf8).write(to: URL(fileURLWithPath: state))
        let program = Self.fixture
        try Data("#!/bin/sh\nPATH=/usr/bin:/bin; export PATH\nexec \(program) \"$@\"\n".utf8)
            .write(to: URL(fileURLWithPath: wrapper))
        chmod(wrapper, 0o755)
        let world = try RecordingWorld(display, path: path, fallback: { [wrapper, "record", "--state-file", state] })
        let id = UUID()
        do {
            try await world.manager.start(id)
            try await offPool { try display.wriggle(seconds: 2) }
            let video = try await world.manager.stop(id)
            let kept = try #require(world.kept.first)
            let probed = try await offPool { try Probed("\(world.recordings)/\(kept)/video.mp4") }
            #expect(probed.width == 640 && probed.frames > 5, "\(probed)")
            #expect(mode("\(world.recordings)/\(kept)/video.mp4") == 0o600)
            #expect(video.thumbnailBytes == 0)
        } catch {
            await world.end()
            throw error
        }
        await world.end()
        #expect(world.recorders.isEmpty)
    }

    private static var fixture: String {
        URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appendingPathComponent("Fixtures/portabledesktop").path
    }
}

/// Runs the body with a display of its own and a manager, and ends both.
func withWorld(
    _ geometry: String = "640x480", clock: any Clock<Duration> = ContinuousClock(),
    limits: RecordingLimits = RecordingLimits(), _ body: (RecordingWorld, RecordedDisplay) async throws -> Void
) async throws {
    let display = try await offPool { try RecordedDisplay(geometry) }
    let world = try RecordingWorld(display, clock: clock, limits: limits)
    let result = await Result { try await body(world, display) }
    let isOver = Atomic(false)
    Task {
        await world.end()
        isOver.store(true, ordering: .relaxed)
    }
    // A failed test leaves recorders whose end waits for the clock.
    try await eventually("the end") {
        _ = (clock as? ManualClock)?.advanceToNext()
        return isOver.load(ordering: .relaxed)
    }
    try result.get()
    #expect(world.recorders.isEmpty)
}

/// Runs the tests of a suite on threads that may block.
struct BlockingTests: SuiteTrait, TestScoping {
    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) { try await function() }
    }
}

extension Trait where Self == BlockingTests {
    static var blocking: Self { Self() }
}

/// Runs what blocks on a thread that may.
func offPool<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
    try await withTaskExecutorPreference(BlockingExecutor.shared) { try body() }
}

func fileSize(_ path: String) -> Int {
    var info = stat()
    return stat(path, &info) == 0 ? Int(info.st_size) : -1
}

func mode(_ path: String) -> mode_t {
    var info = stat()
    return stat(path, &info) == 0 ? info.st_mode & 0o777 : 0
}

/// The size that a JPEG's frame header tells (ITU-T T.81, B.2.2).
func jpegSize(_ bytes: [UInt8]) -> (Int, Int)? {
    guard bytes.starts(with: [0xff, 0xd8]), bytes.suffix(2) == [0xff, 0xd9] else { return nil }
    var at = 2
    while at + 9 < bytes.count, bytes[at] == 0xff {
        let length = Int(bytes[at + 2]) << 8 | Int(bytes[at + 3])
        if (0xc0...0xc2).contains(bytes[at + 1]) {
            return (Int(bytes[at + 7]) << 8 | Int(bytes[at + 8]), Int(bytes[at + 5]) << 8 | Int(bytes[at + 6]))
        }
        at += 2 + length
    }
    return nil
}
