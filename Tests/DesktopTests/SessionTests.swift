import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Desktop

/// The session over real Xtigervnc and openbox.
@Suite(.timeLimit(.minutes(15))) struct SessionTests {
    private static func failure(_ body: () async throws -> some Any) async -> DesktopError? {
        do {
            _ = try await body()
            return nil
        } catch {
            return error as? DesktopError
        }
    }

    private static let click = DesktopAction(
        name: "left_click", work: .driver(.click(.left, times: 1, at: DesktopPoint(x: 5, y: 5), modifiers: [])))

    @Test func nothingExistsBeforeTheFirstUse() async throws {
        try await withWorld(SessionWorld()) { world in
            #expect(world.session.current == nil)
            #expect(world.processes().isEmpty && access(world.state, F_OK) != 0)
            #expect(world.session.health == nil)
        }
    }

    @Test func twentyFirstUsesAtOnceAreOneStart() async throws {
        let world = try SessionWorld()
        try await withWorld(world) { world in
            let displays = try await withThrowingTaskGroup(of: String.self) { group in
                for _ in 0..<20 { group.addTask { try await world.session.desktop().display } }
                return try await group.reduce(into: Set()) { $0.insert($1) }
            }
            #expect(displays.count == 1 && world.calls("up") == 1)
            _ = try await world.session.perform(Self.click)
            let desktop = try #require(world.session.current)
            #expect(desktop.driver.size == DesktopSize(width: 640, height: 480))
            #expect(desktop.endpoint == .unix("\(world.state)/rfb.sock"))
            #expect(world.metrics.render().contains("agent_desktop_running 1"))
            #expect(world.metrics.render().contains(#"agent_desktop_starts_total{result="started"} 1"#))
        }
        try await eventuallyNothingLeft(of: world)
        #expect(world.calls("up") == 1 && world.calls("down") == 0)
        #expect(await Self.failure { try await world.session.desktop() }?.code == .shuttingDown)
    }

    @Test func otherMachinesCannotReachIt() async throws {
        try await withWorld(SessionWorld()) { world in
            let desktop = try await world.session.desktop()
            let xvnc = try world.xvnc()
            let own = ListeningSockets.inodes(of: xvnc)
            let listeners = try ListeningSockets.all(of: xvnc).filter { own.contains($0.inode) }
            #expect(!listeners.isEmpty && listeners.allSatisfy(\.isLoopback))
            #expect(listeners.contains { $0.port == desktop.vncPort })
            #expect(try ListeningSockets.exposed(port: desktop.vncPort, of: xvnc).isEmpty)
            var info = stat()
            stat("\(world.state)/rfb.sock", &info)
            #expect(info.st_mode & 0o777 == 0o600)
            stat(world.state, &info)
            #expect(info.st_mode & 0o777 == 0o700)
        }
    }

    @Test func aServerThatOtherMachinesCanReachIsRefused() async throws {
        let world = try SessionWorld(fault: "open")
        try await withWorld(world) { world in
            let error = await Self.failure { try await world.session.desktop() }
            #expect(error?.code == .failed && error?.message == "Failed to start desktop session.")
            #expect(error?.detail?.contains("without a password") ?? false)
            try await eventuallyNothingLeft(of: world)
            #expect(world.session.health?.degrades ?? false)
        }
    }

    // MARK: Programs that fail

    @Test func aMissingProgramIsNamed() async throws {
        try await withWorld(SessionWorld(hasProgram: false)) { world in
            let error = await Self.failure { try await world.session.desktop() }
            #expect(error?.code == .failed)
            #expect(error?.detail?.contains("portabledesktop was found neither on PATH") ?? false)
        }
    }

    @Test func theScriptDirectoryIsLookedIntoToo() async throws {
        let world = try SessionWorld(hasProgram: false)
        symlink("\(SessionWorld.fixtures)/portabledesktop", "\(world.directory.path)/none/portabledesktop")
        try await withWorld(world) { world in _ = try await world.session.desktop() }
        try await eventuallyNothingLeft(of: world)
    }

    @Test(arguments: [
        ("fail", "exited with status 3: portabledesktop: cannot find Xvnc"), ("silent", "printed nothing"),
        ("garbage", "printed no JSON"), ("ghost", "xvncPid 4194303"),
    ])
    func aProgramThatFailsIsQuoted(fault: String, detail: String) async throws {
        try await withWorld(SessionWorld(fault: fault)) { world in
            let error = await Self.failure { try await world.session.desktop() }
            #expect(error?.code == .failed && error?.detail?.contains(detail) ?? false, "\(error?.detail ?? "")")
            try await eventuallyNothingLeft(of: world)
            #expect(world.session.health?.text.contains("the last start failed") ?? false)
            // The next use tries again.
            _ = await Self.failure { try await world.session.desktop() }
            #expect(world.calls("up") == 2)
        }
    }

    @Test(arguments: ["hang", "stubborn", "hangup", "halfway"])
    func aProgramThatHangsIsEnded(fault: String) async throws {
        var limits = SessionWorld.patientLimits
        limits.start = .seconds(600)
        limits.upGrace = .milliseconds(200)
        let time = ForwardTime()
        try await withWorld(SessionWorld(fault: fault, limits: limits, forward: time)) { world in
            let first = Task { await Self.failure { try await world.session.desktop() } }
            // The last thing that each of them does.
            try await eventually("up hangs") {
                world.processes().contains { ProcFS.text("/proc/\($0)/cmdline") == "sleep\0100000\0" }
            }
            try await eventually("its time runs") { time.sleeps(longerThan: .seconds(60)) }
            #expect(world.calls("up") == 1 && world.session.current == nil)
            time.advance(by: limits.start)
            let error = await first.value
            #expect(error?.detail?.contains("did not finish within 600 s") ?? false, "\(error?.detail ?? "")")
            try await eventuallyNothingLeft(of: world)
        }
    }

    @Test(arguments: ["warn", "noisy", "late", "tcp", "string"])
    func whatIsOnlyOddWorks(fault: String) async throws {
        let world = try SessionWorld(fault: fault, environment: ["PORTABLEDESKTOP_DELAY": "1"])
        try await withWorld(world) { world in
            let desktop = try await world.session.desktop()
            if fault == "tcp" { #expect(desktop.endpoint == .tcp(host: "127.0.0.1", port: desktop.vncPort)) }
            _ = try await world.session.perform(Self.click)
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func aDirectoryOfTheUsersIsNotRemoved() async throws {
        let precious = try TemporaryDirectory()
        let file = "\(precious.path)/thesis"
        // From long before, as far as a directory's birth can tell.
        try await eventually("another second") { Int64(time(nil)) > Int64(try Self.birth(precious.path)) + 2 }
        close(creat(file, 0o600))
        let world = try SessionWorld(fault: "foreign", environment: ["PORTABLEDESKTOP_FOREIGN": precious.path])
        try await withWorld(world) { world in _ = try await world.session.desktop() }
        #expect(access(file, F_OK) == 0)
        #expect(world.log.text.contains("will not be removed"))
    }

    private static func birth(_ path: String) throws -> Int {
        let attributes = try FileManager.default.attributesOfItem(atPath: path)
        return Int((attributes[.modificationDate] as? Date)?.timeIntervalSince1970 ?? 0)
    }

    @Test func aServerThatNeverAnswersIsGivenUp() async throws {
        var limits = SessionWorld.patientLimits
        limits.start = .seconds(600)
        let time = ForwardTime()
        let isAsked = Atomic(false)
        let world = try SessionWorld(limits: limits, forward: time) { _ in
            isAsked.store(true, ordering: .relaxed)
            return try await withUnsafeThrowingContinuation { (_: UnsafeContinuation<any DesktopDriver, any Error>) in }
        }
        try await withWorld(world) { world in
            let start = Task { await Self.failure { try await world.session.desktop() } }
            try await eventually("the server is asked, and its time runs") {
                isAsked.load(ordering: .relaxed) && time.sleeps(longerThan: .seconds(60))
            }
            time.advance(by: limits.start)
            let error = await start.value
            #expect(error?.detail?.contains("did not answer in time") ?? false)
            try await eventuallyNothingLeft(of: world)
        }
    }

    // MARK: Clients that disconnect

    @Test func aClientThatDisconnectsLeavesTheStartToOthers() async throws {
        let directory = try TemporaryDirectory()
        let gate = "\(directory.path)/gate"
        let world = try SessionWorld(fault: "gate", environment: ["PORTABLEDESKTOP_GATE": gate], directory: directory)
        try await withWorld(world) { world in
            let first = Task { try await world.session.desktop().display }
            try await eventually("up runs") { world.calls("up") == 1 }
            let second = Task { try await world.session.desktop().display }
            first.cancel()
            await #expect(throws: CancellationError.self) { try await first.value }
            close(creat(gate, 0o600))
            _ = try await second.value
            #expect(world.calls("up") == 1)
        }
    }

    // MARK: Death

    @Test func aKilledServerIsReplaced() async throws {
        let world = try SessionWorld()
        try await withWorld(world) { world in
            let first = try await world.session.desktop()
            let old = try world.xvnc()
            kill(old, SIGKILL)
            try await eventually("it is gone") { !ProcFS.runs(old) }
            #expect(world.session.current == nil)
            _ = try await world.session.perform(Self.click)
            #expect(world.calls("up") == 2)
            #expect(try world.xvnc() != old)
            #expect(world.log.text.contains("warning the desktop is lost and a new one is started"))
            #expect(world.log.text.contains("why=Xvnc has ended"))
            // The first one's display is gone, or taken again.
            let second = try #require(world.session.current)
            if first.display != second.display {
                // Another test's server may have the number for a while, and end between two looks.
                try await eventually("no trace of the display") {
                    world.remains(of: first.display).isEmpty
                }
            }
        }
        try await eventuallyNothingLeft(of: world)
    }

    /// Nor does it leave its display's socket, when no other server takes the number.
    @Test func aKilledServerLeavesNoSocket() async throws {
        let world = try SessionWorld()
        try await withWorld(world) { world in
            _ = try await world.session.desktop()
            kill(try world.xvnc(), SIGKILL)
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func aStoppedServerIsKilledAndReplaced() async throws {
        var limits = SessionWorld.patientLimits
        limits.probeAfter = .zero
        limits.probe = .seconds(8)
        let world = try SessionWorld(limits: limits)
        try await withWorld(world) { world in
            _ = try await world.session.desktop()
            let old = try world.xvnc()
            kill(old, SIGSTOP)
            let displays = try await withThrowingTaskGroup(of: String.self) { group in
                for _ in 0..<5 { group.addTask { try await world.session.desktop().display } }
                return try await group.reduce(into: Set()) { $0.insert($1) }
            }
            #expect(displays.count == 1 && world.calls("up") == 2)
            #expect(!ProcFS.runs(old))
            #expect(world.log.text.contains("why=it does not answer"))
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func aLongActionIsNotTakenForSilence() async throws {
        /// Performs for as long as the test wants, and answers no probe meanwhile.
        final class Busy: DesktopDriver {
            let gate = Promise<Void>()
            let entered = Atomic<Bool>(false)
            var size: DesktopSize { DesktopSize(width: 1, height: 1) }
            var isAlive: Bool { true }
            func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult {
                entered.store(true, ordering: .relaxed)
                await gate.valueIgnoringCancellation
                return ActionResult()
            }
            func probe(within budget: Duration) async throws { throw DesktopError(.connectionLost, "busy") }
            func viewerCame() {}
            func viewerSentInput() {}
            func viewerHolds(_ holds: Bool) {}
            func viewerLeft(heldButtons: Bool) async {}
            func releaseAll() async {}
            func close() async {}
        }
        var limits = SessionWorld.patientLimits
        limits.probeAfter = .zero
        let busy = Busy()
        try await withWorld(SessionWorld(limits: limits, connect: { _ in busy })) { world in
            let action = Task { try await world.session.perform(Self.click) }
            try await eventually("the action is under way") { busy.entered.load(ordering: .relaxed) }
            // A viewer that comes meanwhile finds the same desktop.
            for _ in 0..<3 { _ = try await world.session.desktop() }
            #expect(world.calls("up") == 1)
            busy.gate.fulfill()
            _ = try await action.value
        }
    }

    @Test func theEndOfTheWindowManagerIsReported() async throws {
        try await withWorld(SessionWorld()) { world in
            _ = try await world.session.desktop()
            // The process is reported before it has executed openbox.
            var found: pid_t?
            try await eventually("a window manager") {
                found = world.processes().first { ProcFS.text("/proc/\($0)/comm").hasPrefix("openbox") }
                return found != nil
            }
            let openbox = try #require(found)
            #expect(world.session.health == nil)
            kill(openbox, SIGKILL)
            try await eventually("its end is known") { world.session.health != nil }
            let report = try #require(world.session.health)
            #expect(report.text.contains("openbox") && !report.degrades)
        }
    }

    // MARK: Shutdown

    @Test func shutdownDuringAHangingStartIsQuick() async throws {
        let world = try SessionWorld(fault: "hang")
        let waiting = Task { await Self.failure { try await world.session.desktop() } }
        try await eventually("up runs") { world.calls("up") == 1 }
        let began = ContinuousClock.now
        world.session.beginShutdown()
        #expect(await waiting.value?.code == .shuttingDown)
        await world.stop()
        #expect(ContinuousClock.now - began < .seconds(120))
        try await eventuallyNothingLeft(of: world)
    }

    @Test func aServerThatIgnoresTheEndIsKilled() async throws {
        var limits = SessionWorld.patientLimits
        limits.stopGrace = .milliseconds(300)
        let world = try SessionWorld(limits: limits)
        _ = try await world.session.desktop()
        let xvnc = try world.xvnc()
        kill(xvnc, SIGSTOP)
        await world.stop()
        #expect(!ProcFS.runs(xvnc))
        try await eventuallyNothingLeft(of: world)
    }

    @Test func recordingsEndWhileTheDesktopStillRuns() async throws {
        let world = try SessionWorld()
        _ = try await world.session.desktop()
        let xvnc = try world.xvnc()
        let ran = Promise<Bool>()
        await world.session.shutdown(recordings: { _ = ran.fulfill(ProcFS.runs(xvnc)) })
        #expect(await ran.valueIgnoringCancellation)
        await world.abandon()
        try await eventuallyNothingLeft(of: world)
    }
}
