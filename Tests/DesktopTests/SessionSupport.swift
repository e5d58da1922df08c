import AgentCore
import AgentHTTP
import AgentProc
import AgentTestSupport
import CPlatform
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

    /// Long enough for a machine that stands still at times; who is not silent never waits for so long.
    static var patientLimits: SessionLimits {
        var limits = SessionLimits()
        limits.startSlack = .seconds(3_600)
        limits.naming = .seconds(30)
        limits.adoption = .seconds(60)
        limits.probe = .seconds(60)
        return limits
    }

    /// - Parameters:
    ///   - fault: what `up` does wrong; see the fixture.
    ///   - directory: of an earlier world, whose life goes on in this one.
    ///   - hasProgram: false leaves portabledesktop out of PATH.
    ///   - procfs: where the session looks who can reach the VNC server.
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

    /// Ends the session in order, and what runs programs.
    func stop() async {
        await session.shutdown()
        await abandon()
    }

    /// As a daemon that is killed: nothing of the session is told.
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
            // Looked at once more after a deadline that passed while nobody ran us.
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

    /// Whether anybody is going to sleep for longer than that, and less than an hour, as what only looks after a
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
            // Short, as nobody tells when the time is moved.
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

/// A small driver over real RFB: enough to see that a server answers, and to move its pointer.
final class PlainDriver: DesktopDriver {
    let size: DesktopSize
    private let connection: RawRFB
    // Apart from the threads on which test bodies block.
    private static let threads = BlockingExecutor(threads: 16)

    init(_ connection: RawRFB) {
        self.connection = connection
        size = connection.size
    }

    static func connect(to endpoint: RFBEndpoint) async throws -> any DesktopDriver {
        let task = Task(executorPreference: Self.threads) {
            let connection =
                switch endpoint {
                case .unix(let path): try RawConnection(unix: path, timeout: 30)
                case .tcp(_, let port): try RawConnection(port: port, timeout: 30)
                }
            return PlainDriver(try RawRFB(connection))
        }
        return try await task.value
    }

    var isAlive: Bool { connection.isOpen }

    func perform(_ action: DesktopAction) async throws -> ActionResult {
        try await ask(seconds: 30) { rfb in
            if let point = action.coordinate {
                try rfb.pointer(action.kind == .leftMouseDown ? 1 : 0, point.x, point.y)
            }
            try rfb.roundTrip()
        }
        return ActionResult(output: "\(action.kind.rawValue) action performed")
    }

    func probe(within budget: Duration) async throws {
        try await ask(seconds: max(1, Int(budget.components.seconds))) { try $0.roundTrip() }
    }

    private func ask(seconds: Int, _ body: @escaping @Sendable (RawRFB) throws -> Void) async throws {
        let connection = connection
        let task = Task(executorPreference: Self.threads) {
            do {
                connection.setTimeout(seconds)
                try body(connection)
            } catch {
                throw DesktopError(.connectionLost, "\(error)")
            }
        }
        try await task.value
    }

    func pointerMovedByViewer() {}
    func viewerLeft(heldButtons: Bool) async {}
    func releaseAll() async {}
    func close() async { connection.end() }
}

/// What RFB is spoken over.
protocol RFBTransport {
    var descriptor: CInt { get }
    func send(_ data: Data) throws
    func receive(exactly count: Int) throws -> Data
}

extension RawConnection: RFBTransport {}

/// A blocking RFB client over a connection. One thread at a time, which its users see to.
// @unchecked: the lock is held for each exchange.
final class RawRFB: @unchecked Sendable {
    let connection: any RFBTransport
    private let lock = NSLock()
    let size: DesktopSize

    init(_ connection: any RFBTransport) throws {
        self.connection = connection
        _ = try connection.receive(exactly: 12)
        try connection.send(Data("RFB 003.008\n".utf8))
        let types = try connection.receive(exactly: Int(try connection.receive(exactly: 1)[0]))
        guard types.contains(1) else { throw DeadlineExceeded(what: "no security type None") }
        try connection.send(Data([1]))
        _ = try connection.receive(exactly: 4)
        try connection.send(Data([1]))
        let initial = [UInt8](try connection.receive(exactly: 24))
        size = DesktopSize(
            width: Int(initial[0]) << 8 | Int(initial[1]), height: Int(initial[2]) << 8 | Int(initial[3]))
        _ = try connection.receive(exactly: Int(initial[23]))
        // Raw alone.
        try connection.send(Data([2, 0, 0, 1, 0, 0, 0, 0]))
    }

    var isOpen: Bool {
        var byte: UInt8 = 0
        let count = recv(connection.descriptor, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR))
    }

    func setTimeout(_ seconds: Int) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(connection.descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
    }

    func pointer(_ mask: UInt8, _ x: Int, _ y: Int) throws {
        try connection.send(Data(RFBClientInspectorTests.pointer(mask, UInt16(x), UInt16(y))))
    }

    /// Asks for one pixel and waits for it.
    func roundTrip() throws {
        try lock.withLock {
            try connection.send(Data([3, 0, 0, 0, 0, 0, 0, 1, 0, 1]))
            try readUpdate()
        }
    }

    /// Asks for the whole picture, so often.
    func requestFrames(_ count: Int) throws {
        let sides = [size.width, size.height].flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] }
        for _ in 0..<count { try connection.send(Data([3, 0, 0, 0, 0, 0] + sides)) }
    }

    /// Reads one whole picture.
    func frame() throws {
        try lock.withLock {
            try requestFrames(1)
            try readUpdate()
        }
    }

    private func readUpdate() throws {
        while true {
            switch try connection.receive(exactly: 1)[0] {
            case 0:
                let head = [UInt8](try connection.receive(exactly: 3))
                for _ in 0..<(Int(head[1]) << 8 | Int(head[2])) {
                    let rectangle = [UInt8](try connection.receive(exactly: 12))
                    let width = Int(rectangle[4]) << 8 | Int(rectangle[5])
                    let height = Int(rectangle[6]) << 8 | Int(rectangle[7])
                    _ = try connection.receive(exactly: width * height * 4)
                }
                return
            case 2: continue
            case 3:
                let head = [UInt8](try connection.receive(exactly: 7))
                let count = head[3...6].reduce(0) { $0 << 8 | Int($1) }
                _ = try connection.receive(exactly: count)
            case let other: throw DeadlineExceeded(what: "server message \(other)")
            }
        }
    }

    func end() { shutdown(connection.descriptor, Int32(SHUT_RDWR)) }
}
