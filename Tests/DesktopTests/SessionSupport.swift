import AgentCore
import AgentHTTP
import AgentProc
import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOPosix
import Synchronization

@testable import Desktop

/// A session over the real launcher and the fixture of portabledesktop, with directories of its own.
final class SessionWorld: Sendable {
    let directory: TemporaryDirectory
    let session: DesktopSession
    let metrics = MetricsRegistry()
    let log = MemoryLog()
    let launcher: CommandLauncher
    let pool = BlockingPool(threads: 2)
    let executor: EventLoopTaskExecutor
    let clock: AgentClock
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    private let reactor: Reactor
    private let isOver = Mutex(false)

    static let fixtures = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("Fixtures").path

    /// Long enough for a machine that stalls at times. Only a silent server takes that long.
    static var patientLimits: SessionLimits {
        var limits = SessionLimits()
        limits.startSlack = .seconds(3_600)
        limits.naming = .seconds(30)
        limits.adoption = .seconds(60)
        limits.probe = .seconds(60)
        return limits
    }

    /// The driver that the daemon uses.
    static let rfb: DesktopSession.DriverFactory = { server in
        var options = RFBDriver.Options(server)
        options.budget = .seconds(30)
        return try await RFBDriver.connect(to: server.endpoint, options)
    }

    /// - Parameters:
    ///   - fault: what `up` does wrong; see the fixture.
    ///   - directory: of an earlier world, so that this one is the next run of the agent.
    ///   - hasProgram: false leaves portabledesktop out of PATH.
    ///   - procfs: where the session checks who can reach the VNC server.
    ///   - forward: lets the test move the session's clock.
    init(
        fault: String = "", environment more: [String: String] = [:], directory: TemporaryDirectory? = nil,
        hasProgram: Bool = true, geometry: String = "640x480", limits: SessionLimits = SessionWorld.patientLimits,
        procfs: String = "/proc", forward: ForwardTime? = nil,
        connect: @escaping DesktopSession.DriverFactory = { try await PlainDriver.connect(to: $0.endpoint) }
    ) throws {
        let directory = try directory ?? TemporaryDirectory()
        self.directory = directory
        mkdir("\(directory.path)/tmp", 0o700)
        mkdir("\(directory.path)/none", 0o700)
        reactor = try Reactor()
        _ = reactor.start()
        executor = EventLoopTaskExecutor(group.next())
        let real = EventLoopClock(group: group)
        clock = forward.map { AgentClock(ForwardClock(time: $0, real: real)) } ?? AgentClock(real)
        var logger = Logger(label: "test") { [log] _ in log }
        logger.logLevel = .debug
        launcher = CommandLauncher(
            launcher: try Launcher(priority: nil, descriptorLimit: 1024), reactor: reactor, pool: pool,
            executor: executor, clock: clock, metrics: metrics, logger: logger)
        var environment = ProcessInfo.processInfo.environment
        let path = "/usr/local/bin:/usr/bin:/bin"
        environment["PATH"] = hasProgram ? "\(Self.fixtures):\(path)" : path
        environment["TMPDIR"] = "\(directory.path)/tmp"
        environment["PORTABLEDESKTOP_LOG"] = "\(directory.path)/calls"
        environment["PORTABLEDESKTOP_FAULT"] = fault
        environment.merge(more) { _, new in new }
        var configuration = DesktopSession.Configuration(
            stateDirectory: "\(directory.path)/state", environment: EnvironmentBuilder(base: environment),
            scriptBinDirectory: "\(directory.path)/none")
        configuration.geometry = geometry
        configuration.limits = limits
        configuration.procfs = procfs
        session = DesktopSession(
            configuration: configuration, runner: launcher, pool: pool, executor: executor, clock: clock,
            metrics: metrics, logger: logger, connect: connect)
    }

    /// Shuts the session down, and then what runs programs.
    func stop() async {
        await session.shutdown()
        await abandon()
    }

    /// As a daemon that is killed: the session is not shut down.
    func abandon() async {
        guard
            !isOver.withLock({ over in
                defer { over = true }; return over
            })
        else { return }
        await launcher.shutdown()
        await reactor.stop()
        await pool.shutdown()
        try? await group.shutdownGracefully()
    }

    var state: String { "\(directory.path)/state/desktop" }

    /// How often a subcommand was called.
    func calls(_ subcommand: String) -> Int {
        ProcFS.text("\(directory.path)/calls").split(separator: "\n").count { line in
            line.split(separator: " ").dropFirst().first == subcommand[...]
        }
    }

    /// The displays that were started, in order.
    var displays: [String] {
        ProcFS.text("\(directory.path)/calls").split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            return words.count == 3 && words[1] == "display" ? String(words[2]) : nil
        }
    }

    /// The processes that have something to do with this world.
    func processes() -> [pid_t] {
        directoryEntries("/proc").compactMap { pid_t($0) }.filter { pid in
            guard ProcFS.runs(pid), pid != getpid() else { return false }
            return ProcFS.text("/proc/\(pid)/cmdline").contains(directory.path)
                || ProcFS.text("/proc/\(pid)/environ").contains("TMPDIR=\(directory.path)/tmp")
        }
    }

    /// What a desktop may leave but its display: processes, files of ours and of the program.
    func remains() -> [String] {
        var result = processes().map { "pid \($0) \(ProcFS.text("/proc/\($0)/cmdline"))" }
        var info = stat()
        if lstat(state, &info) == 0 { result += [state] + directoryEntries(state).map { "\(state)/\($0)" } }
        return result + directoryEntries("\(directory.path)/tmp").map { "tmp/\($0)" }
    }

    /// Lock and socket of a display that has no server any more.
    func remains(of display: String) -> [String] {
        let number = display.dropFirst()
        return ["/tmp/.X\(number)-lock", "/tmp/.X11-unix/X\(number)"].filter { path in
            guard access(path, F_OK) == 0 else { return false }
            // Another server may have the number by now, which it takes before it writes the lock.
            let owner = ProcFS.text("/tmp/.X\(number)-lock").trimmingCharacters(in: .whitespacesAndNewlines)
            let isListened = ProcFS.text("/proc/net/unix").contains(" /tmp/.X11-unix/X\(number)\n")
            return !isListened && (pid_t(owner).map { !ProcFS.runs($0) } ?? true)
        }
    }

    /// The Xvnc of this world's desktop.
    func xvnc() throws -> pid_t {
        let found = processes().first { ProcFS.text("/proc/\($0)/comm").hasPrefix("Xtigervnc") }
        guard let found else { throw DeadlineExceeded(what: "an Xvnc") }
        return found
    }
}

/// Runs the body with a world and ends the world in order.
func withWorld<T: Sendable>(_ world: SessionWorld, _ body: (SessionWorld) async throws -> T) async throws -> T {
    do {
        let result = try await body(world)
        await world.stop()
        return result
    } catch {
        await world.stop()
        throw error
    }
}

/// Waits until a world has left nothing. A look reads all of /proc, so there are few of them, on a thread
/// that may block.
func eventuallyNothingLeft(of world: SessionWorld) async throws {
    try await offPool {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            // Checked once more after a deadline that passed while this test did not run.
            let late = ContinuousClock.now >= deadline
            let left = world.remains() + Set(world.displays).flatMap { world.remains(of: $0) }
            if left.isEmpty { return }
            if late { throw DeadlineExceeded(what: "nothing is left, but there is \(left)") }
            poll(nil, 0, 50)
        }
    }
}

/// How far a ``ForwardClock`` is ahead, and until when its users sleep.
final class ForwardTime: Sendable {
    private struct State {
        var ahead = Duration.zero
        var next = 0
        var deadlines: [Int: ContinuousClock.Instant] = [:]
    }

    private let state = Mutex(State())

    var now: ContinuousClock.Instant { ContinuousClock.now + state.withLock { $0.ahead } }

    func advance(by duration: Duration) { state.withLock { $0.ahead += duration } }

    /// Whether a task sleeps for longer than that, and less than an hour, as what only looks after a
    /// start as a whole does.
    func sleeps(longerThan duration: Duration) -> Bool {
        let (least, most) = (now + duration, now + .seconds(3_600))
        return state.withLock { state in state.deadlines.values.contains { $0 > least && $0 < most } }
    }

    fileprivate func enter(_ deadline: ContinuousClock.Instant) -> Int {
        state.withLock { state in
            state.next += 1
            state.deadlines[state.next] = deadline
            return state.next
        }
    }

    fileprivate func leave(_ id: Int) { state.withLock { $0.deadlines[id] = nil } }
}

/// The real clock, which a test may move forward: what polls and what gives grace goes on as ever.
struct ForwardClock: Clock {
    typealias Duration = Swift.Duration
    typealias Instant = ContinuousClock.Instant

    let time: ForwardTime
    let real: EventLoopClock

    var now: Instant { time.now }
    var minimumResolution: Duration { .nanoseconds(1) }

    func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        let id = time.enter(deadline)
        defer { time.leave(id) }
        repeat {
            // Short, because there is no signal when the time is moved.
            let slice = min(.milliseconds(10), now.duration(to: deadline))
            try await real.sleep(until: real.now + slice, tolerance: nil)
        } while now < deadline
    }
}

/// Keeps what is logged.
final class MemoryLog: LogHandler {
    private let lines = Mutex<[String]>([])
    var metadata: Logger.Metadata {
        get { [:] }
        set {}
    }
    var logLevel: Logger.Level {
        get { .debug }
        set {}
    }
    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { nil }
        set {}
    }

    func log(event: LogEvent) {
        let rest = (event.metadata ?? [:]).map { "\($0)=\($1)" }.sorted().joined(separator: " ")
        lines.withLock { $0.append("\(event.level) \(event.message) \(rest)") }
    }

    var text: String { lines.withLock { $0.joined(separator: "\n") } }
}
