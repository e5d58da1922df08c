import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Desktop

/// Starts that fail leave nothing, and have their time, over real Xtigervnc and openbox.
@Suite(.timeLimit(.minutes(15))) struct FailedStartTests {
    private static func failure(_ world: SessionWorld) async -> DesktopError? {
        do {
            _ = try await world.session.desktop()
            return nil
        } catch {
            return error as? DesktopError
        }
    }

    @Test(arguments: [
        ("unclear", "printed no JSON"), ("stateless", "printed no JSON"), ("dead", "no VNC server of ours"),
        ("open", "without a password"),
    ])
    func oneThatFailsLeavesNothing(fault: String, detail: String) async throws {
        try await withWorld(SessionWorld(fault: fault)) { world in
            let error = await Self.failure(world)
            #expect(error?.detail?.contains(detail) ?? false, "\(error?.detail ?? "nil")")
            #expect(world.displays.count == 1)
            try await eventuallyNothingLeft(of: world)
        }
    }

    /// The real driver and the program's own subcommands wait for it in vain.
    @Test func aServerThatAnswersNothingLeavesNothing() async throws {
        var limits = SessionWorld.patientLimits
        limits.start = .seconds(12)
        let world = try SessionWorld(fault: "mute", limits: limits) {
            var options = RFBDriver.Options($0)
            options.budget = .seconds(3)
            return try await RFBDriver.connect(to: $0.endpoint, options)
        }
        try await withWorld(world) { world in
            let error = await Self.failure(world)
            #expect(error?.code == .failed)
            try await eventuallyNothingLeft(of: world)
        }
    }

    @Test func aMissingProgramLeavesNoDirectory() async throws {
        try await withWorld(SessionWorld(hasProgram: false)) { world in
            #expect(await Self.failure(world) != nil)
            try await eventuallyNothingLeft(of: world)
        }
    }

    /// What cannot be read is not "no other machine can reach it".
    @Test func aServerThatCannotBeLookedAtIsRefused() async throws {
        let procfs = try TemporaryDirectory()
        try await withWorld(SessionWorld(procfs: procfs.path)) { world in
            let error = await Self.failure(world)
            #expect(error?.code == .failed && error?.message == "Failed to start desktop session.")
            let detail = error?.detail ?? ""
            #expect(detail.contains("cannot read \(procfs.path)/net/tcp"), "\(detail)")
            #expect(world.displays.count == 1 && world.session.current == nil)
            try await eventuallyNothingLeft(of: world)
        }
    }

    // MARK: Time

    /// The end of the desktop before it takes of the time that the start has.
    @Test func cleaningUpCountsToo() async throws {
        /// One that never ends.
        final class Endless: DesktopDriver {
            let isClosing = Atomic(false)
            var size: DesktopSize { DesktopSize(width: 1, height: 1) }
            var isAlive: Bool { true }
            func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult {
                ActionResult()
            }
            func probe(within budget: Duration) async throws {}
            func viewerCame() {}
            func viewerSentInput() {}
            func viewerHolds(_ holds: Bool) {}
            func viewerLeft(heldButtons: Bool) async {}
            func releaseAll() async {}
            func close() async {
                isClosing.store(true, ordering: .relaxed)
                await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
            }
        }
        let directory = try TemporaryDirectory()
        let gate = "\(directory.path)/gate"
        close(creat(gate, 0o600))
        var limits = SessionWorld.patientLimits
        limits.start = .seconds(600)
        limits.stopGrace = .seconds(400)
        let (time, driver) = (ForwardTime(), Endless())
        let world = try SessionWorld(
            fault: "gate", environment: ["PORTABLEDESKTOP_GATE": gate], directory: directory, limits: limits,
            forward: time, connect: { _ in driver })
        try await withWorld(world) { world in
            _ = try await world.session.desktop()
            let xvnc = try world.xvnc()
            kill(xvnc, SIGKILL)
            try await eventually("it is gone") { !ProcFS.runs(xvnc) }
            unlink(gate)
            let second = Task { await Self.failure(world) }
            try await eventually("the first is being ended") {
                driver.isClosing.load(ordering: .relaxed) && time.sleeps(longerThan: .seconds(300))
            }
            time.advance(by: .seconds(400))
            try await eventually("up waits at the gate") { world.calls("up") == 2 }
            // Of 600 s it has 200 left.
            time.advance(by: .seconds(200))
            let error = await second.value
            #expect(error?.detail?.contains("did not finish") ?? false, "\(error?.detail ?? "nil")")
            // So that the end of the world takes no 400 s.
            let stop = Task { await world.stop() }
            try await eventually("it has ended", within: .seconds(120)) {
                time.advance(by: .seconds(400))
                return world.processes().isEmpty && access(world.state, F_OK) != 0
            }
            await stop.value
        }
    }

    /// An answer does not wait until what has failed is gone; the next use does.
    @Test func theAnswerDoesNotWaitForTheCleaning() async throws {
        var limits = SessionWorld.patientLimits
        limits.start = .seconds(600)
        limits.upGrace = .seconds(400)
        let time = ForwardTime()
        try await withWorld(SessionWorld(fault: "stubborn", limits: limits, forward: time)) { world in
            let first = Task { await Self.failure(world) }
            try await eventually("up hangs") {
                world.processes().contains { ProcFS.text("/proc/\($0)/cmdline") == "sleep\0100000\0" }
            }
            time.advance(by: limits.start)
            #expect(await first.value?.detail?.contains("did not finish") ?? false)
            #expect(!world.processes().isEmpty)
            let second = Task { await Self.failure(world) }
            try await eventually("up is waited for") { time.sleeps(longerThan: .seconds(300)) }
            #expect(world.calls("up") == 1)
            time.advance(by: limits.upGrace)
            try await eventually("the next start") { world.calls("up") == 2 }
            world.session.beginShutdown()
            #expect(await second.value?.code == .shuttingDown)
            time.advance(by: limits.upGrace)
            try await eventually("both are gone", within: .seconds(120)) {
                time.advance(by: limits.upGrace)
                return world.processes().isEmpty
            }
        }
    }

    /// Whatever a start hangs in, it has an answer.
    @Test func aStartThatHangsElsewhereIsAnswered() async throws {
        /// Starts nothing, and never says so.
        struct Stuck: CommandRunner {
            func start(
                _ command: Command, output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
            ) async throws -> any RunningCommand {
                await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
                throw CancellationError()
            }
        }
        let world = try SessionWorld()
        var limits = SessionWorld.patientLimits
        limits.start = .milliseconds(100)
        limits.startSlack = .milliseconds(100)
        var configuration = world.session.launcher.configuration
        configuration.limits = limits
        let session = DesktopSession(
            configuration: configuration, runner: Stuck(), pool: world.pool, executor: world.executor,
            clock: world.clock, metrics: MetricsRegistry(), logger: .init(label: "test") { _ in MemoryLog() },
            connect: { _ in throw CancellationError() })
        let error = await #expect(throws: DesktopError(.failed, "")) { try await session.desktop() }
        #expect(error?.detail?.contains("was not up within") ?? false, "\(error?.detail ?? "nil")")
        await world.stop()
    }

    // MARK: The record

    @Test func aRecordThatCannotBeWrittenIsToldRightly() async throws {
        let directory = try TemporaryDirectory()
        let gate = "\(directory.path)/gate"
        let world = try SessionWorld(fault: "gate", environment: ["PORTABLEDESKTOP_GATE": gate], directory: directory)
        let record = "\(world.state)/session.json"
        try await withWorld(world) { world in
            let start = Task { try await world.session.desktop().display }
            try await eventually("up waits at the gate") { world.calls("up") == 1 }
            unlink(record)
            mkdir(record, 0o700)
            close(creat(gate, 0o600))
            _ = try await start.value
            let text = world.log.text
            #expect(text.contains("warning the desktop's record cannot be written"), "\(text)")
            #expect(text.contains("cannot replace \(record): Is a directory"), "\(text)")
        }
        rmdir(record)
        rmdir(world.state)
        try await eventuallyNothingLeft(of: world)
    }
}
