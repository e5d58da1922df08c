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

/// A real X server that ends with the value.
final class RecordedDisplay: Sendable {
    let display: String
    let pid: pid_t
    private let directory: TemporaryDirectory

    init(_ geometry: String = "640x480") throws {
        directory = try TemporaryDirectory()
        var fds: [CInt] = [0, 0]
        guard pipe(&fds) == 0 else { throw DeadlineExceeded(what: "pipe") }
        for descriptor in fds { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        defer { close(fds[0]) }
        let line =
            "exec Xtigervnc -displayfd 3 -geometry \(geometry) -depth 24 -SecurityTypes None -rfbport -1 -noreset "
            + "-rfbunixpath \(directory.path)/rfb >\(directory.path)/log 2>&1"
        pid = try DaemonProcess.spawn(
            ["/bin/sh", "-c", line], ProcessInfo.processInfo.environment, descriptors: [fds[1]])
        close(fds[1])
        var number: [UInt8] = []
        var byte: UInt8 = 0
        while read(fds[0], &byte, 1) == 1, byte != UInt8(ascii: "\n") { number.append(byte) }
        guard !number.isEmpty else {
            kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
            throw DeadlineExceeded(what: "Xtigervnc: \(ProcFS.text("\(directory.path)/log"))")
        }
        display = ":\(String(decoding: number, as: UTF8.self))"
    }

    deinit {
        kill(pid, SIGTERM)
        waitpid(pid, nil, 0)
    }

    /// Moves the pointer about for so many seconds and returns at the end.
    func wriggle(seconds: Int) throws {
        let script =
            "i=0; while [ $i -lt \(seconds * 20) ]; do xdotool mousemove $((i * 3 % 600)) $((i * 7 % 400)); "
            + "sleep 0.05; i=$((i + 1)); done"
        _ = try CommandResult.of(["/bin/sh", "-c", script], environment: ["DISPLAY": display])
    }
}

/// A desktop that is up, or cannot be had.
struct FixedDesktop: DesktopProvider {
    var display: String
    var failure: DesktopError?

    func desktop() async throws -> RunningDesktop {
        if let failure { throw failure }
        return RunningDesktop(
            display: display, endpoint: .tcp(host: "localhost", port: 0), vncPort: 0, since: 0, driver: NoDriver())
    }

    var current: RunningDesktop? { nil }

    private struct NoDriver: DesktopDriver {
        var size: DesktopSize { DesktopSize(width: 1, height: 1) }
        var isAlive: Bool { true }
        func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult { ActionResult() }
        func probe(within budget: Duration) async throws {}
        func viewerCame() {}
        func viewerSentInput() {}
        func viewerHolds(_ holds: Bool) {}
        func viewerLeft(heldButtons: Bool) async {}
        func releaseAll() async {}
        func close() async {}
    }
}

/// A manager over the real launcher.
final class RecordingWorld: Sendable {
    let directory: TemporaryDirectory
    let manager: RecordingManager
    let launcher: CommandLauncher
    let pool = BlockingPool(threads: 4)
    let metrics = MetricsRegistry()
    let log = LogLines()
    /// In front of PATH, for programs in ffmpeg's place.
    var bin: String { "\(directory.path)/bin" }
    var recordings: String { "\(directory.path)/state/desktop/recordings" }
    private let reactor: Reactor
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    init(
        _ display: RecordedDisplay?, clock: any Clock<Duration> = ContinuousClock(), path: String? = nil,
        limits: RecordingLimits = RecordingLimits(), failure: DesktopError? = nil,
        fallback: @escaping @Sendable () -> [String]? = { nil }
    ) throws {
        directory = try TemporaryDirectory()
        let bin = "\(directory.path)/bin"
        mkdir(bin, 0o755)
        reactor = try Reactor()
        _ = reactor.start()
        let executor = EventLoopTaskExecutor(group.next())
        let isManual = clock is ManualClock
        let clock = AgentClock(clock)
        let log = log
        let logger = Logger(label: "test") { _ in log }
        launcher = CommandLauncher(
            launcher: try Launcher(), reactor: reactor, pool: pool, executor: executor, clock: clock,
            metrics: metrics, logger: logger)
        var configuration = RecordingManager.Configuration(
            directory: "\(directory.path)/state/desktop/recordings",
            environment: EnvironmentBuilder(base: ["PATH": path ?? "\(bin):/usr/bin:/bin", "HOME": directory.path]),
            fallback: fallback)
        configuration.limits = limits
        // Real time also passes while the recorder is not scheduled.
        if !isManual { configuration.limits.start = .seconds(120) }
        manager = RecordingManager(
            configuration: configuration,
            provider: FixedDesktop(display: display?.display ?? ":none", failure: failure),
            runner: launcher, pool: pool, executor: executor, clock: clock, metrics: metrics, logger: logger)
    }

    func end() async {
        await manager.shutdown()
        await launcher.shutdown()
        await reactor.stop()
        await pool.shutdown()
        try? await group.shutdownGracefully()
    }

    /// Puts a script in the place of a program.
    func script(_ name: String, _ text: String) throws {
        let path = "\(bin)/\(name)"
        unlink(path)
        try Data("#!/bin/sh\n\(text)\n".utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o755)
    }

    /// The recorders that run, by what they write to.
    var recorders: [pid_t] {
        ProcFS.children(of: getpid()).filter { !$0.isZombie }.map(\.pid).filter {
            ProcFS.text("/proc/\($0)/cmdline").contains(directory.path)
        }
    }

    /// The directories of recordings that are there.
    var kept: [String] { directoryEntries(recordings) }

    func counter(_ series: String) -> Int? {
        let line = metrics.render().split(separator: "\n").first { $0.hasPrefix("\(series) ") }
        return line.flatMap { Int($0.dropFirst(series.count + 1)) }
    }

    /// Serves the routes; the socket.
    func serve(_ limits: RecordingLimits = RecordingLimits()) async throws -> (socket: String, server: HTTPServer) {
        let routes = AgentRoutes()
        RecordingRoutes(manager: manager, pool: pool, limits: limits).add(to: routes)
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let metrics = MetricsRegistry()
        let server = HTTPServer(group: group, metrics: metrics, logger: logger)
        server.start(HTTPService(routes: routes, metrics: metrics, logger: logger))
        let socket = "\(directory.path)/\(UUID().uuidString.prefix(8))"
        try await server.serve(
            try UnixListener.bind(path: socket), policy: AccessPolicy(tokenRule: .none, ownUID: geteuid()))
        return (socket, server)
    }
}

/// What was logged.
final class LogLines: LogHandler, Sendable {
    private let lines = Mutex<[String]>([])
    var text: String { lines.withLock { $0.joined(separator: "\n") } }

    func log(event: LogEvent) {
        let metadata = (event.metadata ?? [:]).map { "\($0)=\($1)" }.sorted().joined(separator: " ")
        lines.withLock { $0.append("\(event.level) \(event.message) \(metadata)") }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { nil }
        set {}
    }
    var metadata: Logger.Metadata {
        get { [:] }
        set {}
    }
    var logLevel: Logger.Level {
        get { .debug }
        set {}
    }
}

/// What ffprobe says of a file.
struct Probed {
    var width = 0
    var height = 0
    var frames = 0
    var seconds = 0.0

    init(_ path: String) throws {
        let result = try CommandResult.of([
            "ffprobe", "-v", "error", "-count_frames", "-show_entries",
            "stream=width,height,nb_read_frames:format=duration", "-of", "default=noprint_wrappers=1", path,
        ])
        guard result.code == 0, result.errors.isEmpty else { throw DeadlineExceeded(what: "ffprobe: \(result.errors)") }
        for line in result.output.split(separator: "\n") {
            let parts = line.split(separator: "=")
            guard parts.count == 2 else { continue }
            switch parts[0] {
            case "width": width = Int(parts[1]) ?? 0
            case "height": height = Int(parts[1]) ?? 0
            case "nb_read_frames": frames = Int(parts[1]) ?? 0
            case "duration": seconds = Double(parts[1]) ?? 0
            default: break
            }
        }
    }
}

/// When each frame of a video is shown, in seconds.
func frameTimes(_ path: String) throws -> [Double] {
    let result = try CommandResult.of([
        "ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "packet=pts_time", "-of", "csv=p=0", path,
    ])
    guard result.code == 0, result.errors.isEmpty else { throw DeadlineExceeded(what: "ffprobe: \(result.errors)") }
    return result.output.split(separator: "\n").compactMap { Double($0.prefix { $0 != "," }) }
}

extension RecordedVideo {
    var video: [UInt8] { get throws { Array(buffer: try readVideo(at: 0, count: videoBytes)) } }
    var thumbnail: [UInt8] { get throws { Array(buffer: try readThumbnail(at: 0, count: thumbnailBytes)) } }
}
