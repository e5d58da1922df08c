import AgentCore
import AgentHTTP
import Glibc
import NIOCore

/// Waits until a condition of a process holds. It costs promises and a timer, no thread.
struct ConditionWait {
    enum Outcome {
        case met(LineMatcher.Match?)
        case unmet
    }

    private struct Signals {
        /// Something may have changed.
        var isNews = true
        /// The process has ended, the time is over, the client has gone or the daemon is shutting down.
        var isOver = false
    }

    /// How often a file is looked for by itself: file systems of other machines report no events.
    private static let fileInterval = Duration.seconds(1)
    /// Between two looks at who listens on a port that others may hold.
    private static let portPatience = Duration.milliseconds(250)

    let manager: ProcessManager
    let process: ManagedProcess
    let pool: BlockingPool

    func run(_ condition: WaitCondition, atMost time: Duration, _ caller: CallerPresence) async -> Outcome {
        switch condition {
        case .exit:
            await manager.awaitEnd(of: process, atMost: time, caller)
            return process.exit == nil ? .unmet : .met(nil)
        case .output(let pattern): return await output(LineMatcher(pattern), time, caller)
        case .port(let port): return await untilOver(time, caller) { await listens(port, $0) } ? .met(nil) : .unmet
        case .file(let path): return await untilOver(time, caller) { await exists(path, $0) } ? .met(nil) : .unmet
        }
    }

    // MARK: Output

    private func output(_ matcher: LineMatcher, _ time: Duration, _ caller: CallerPresence) async -> Outcome {
        let follower = OutputFollower(process, pool: pool)
        // A process that ends is read to its end, which the follower reports.
        let end = manager.atEnd(of: process, atMost: time, caller) { if process.exit == nil { follower.stop() } }
        defer {
            end()
            follower.stop()
        }
        var matcher = matcher
        while true {
            switch await follower.next(from: matcher.offset) {
            case .bytes(let bytes):
                // Not on the event loop: a pattern may take its time, though never more than in proportion to the text.
                let before = matcher
                let found = try? await pool.run {
                    var matcher = before
                    let match = bytes.withUnsafeReadableBytes { matcher.feed($0) }
                    return (matcher, match)
                }
                guard let found else { return .unmet }
                matcher = found.0
                if let match = found.1 { return .met(match) }
            case .gone(let count): matcher.skip(count)
            case .quiet: break
            case .ended, .stopped: return .unmet
            }
        }
    }

    // MARK: Ports and files

    /// Runs the body until it returns, or looks one last time after the end.
    private func untilOver(
        _ time: Duration, _ caller: CallerPresence, _ body: (Watched<Signals>) async -> Bool
    ) async -> Bool {
        let signals = Watched(Signals())
        let end = manager.atEnd(of: process, atMost: time, caller) { signals.update { $0.isOver = true } }
        defer { end() }
        return await body(signals)
    }

    /// Returns when something may have changed, or it is over.
    private static func news(_ signals: Watched<Signals>) async {
        await signals.takeIgnoringCancellation { signals -> Void? in
            guard signals.isOver || signals.isNews else { return nil }
            signals.isNews = false
            return ()
        }
    }

    private func listens(_ port: Int, _ signals: Watched<Signals>) async -> Bool {
        let session = process.session
        let token = manager.ports.add(port) { signals.update { $0.isNews = true } }
        defer { manager.ports.remove(token) }
        var lastLook: Duration?
        while true {
            await Self.news(signals)
            let isOver = signals.value.isOver
            let now = manager.configuration.clock.now()
            // Others may listen on it for long, and finding out whose a socket is takes a look at every process.
            if isOver || lastLook.map({ now - $0 >= Self.portPatience }) ?? true {
                lastLook = now
                if (try? await pool.run { PortWatch.listens(on: port, session) }) == true { return true }
            }
            if isOver { return false }
        }
    }

    private func exists(_ path: String, _ signals: Watched<Signals>) async -> Bool {
        let whole = path.hasPrefix("/") ? path : "\(process.description.workdir)/\(path)"
        let wake: @Sendable () -> Void = { signals.update { $0.isNews = true } }
        let looks = manager.heartbeat(each: Self.fileInterval, wake)
        defer { looks.cancel() }
        let files = manager.files
        while true {
            let isOver = signals.value.isOver
            let look = try? await pool.run { isOver ? FileLook.now(whole) : FileLook.watching(whole, files, wake) }
            switch look {
            case nil: return false
            case .there: return true
            case .missing(let registration):
                if isOver { return false }
                await Self.news(signals)
                if let registration { files.remove(registration) }
            }
        }
    }
}

/// Whether a file is there, and what tells when it may be. Everything here blocks.
private enum FileLook: Sendable {
    case there
    case missing(FileWatch.Registration?)

    static func now(_ path: String) -> FileLook { isThere(path) ? .there : .missing(nil) }

    static func watching(_ path: String, _ files: FileWatch, _ wake: @escaping @Sendable () -> Void) -> FileLook {
        if isThere(path) { return .there }
        let (directory, name) = nextStep(to: path)
        let registration = files.add(directory, name: name, wake)
        // It may have come before the watch did.
        guard isThere(path) else { return .missing(registration) }
        if let registration { files.remove(registration) }
        return .there
    }

    private static func isThere(_ path: String) -> Bool {
        var info = stat()
        return stat(path, &info) == 0
    }

    /// The deepest directory of the path that exists, and the name that is missing in it.
    private static func nextStep(to path: String) -> (directory: String, name: String) {
        let parts = path.split(separator: "/")
        for count in stride(from: parts.count - 1, through: 1, by: -1) {
            let directory = "/" + parts[..<count].joined(separator: "/")
            var info = stat()
            if stat(directory, &info) == 0, info.st_mode & S_IFMT == S_IFDIR {
                return (directory, String(parts[count]))
            }
        }
        return ("/", parts.first.map(String.init) ?? "")
    }
}

extension ProcessManager {
    /// Calls the closure once at the end of the process, of the time, of the client's connection or of the daemon.
    /// - Returns: what makes it happen at once.
    func atEnd(
        of process: ManagedProcess, atMost time: Duration, _ caller: CallerPresence,
        _ body: @escaping @Sendable () -> Void
    ) -> @Sendable () -> Void {
        let over = Promise<Void>()
        let token = caller.onGone { over.fulfill() }
        Task(executorPreference: executor) {
            await self.wait(for: process, atMost: time, orUntil: over)
            caller.remove(token)
            body()
        }
        return { over.fulfill() }
    }

    /// Returns at the end of the process or of the time, or when the client has gone.
    func awaitEnd(of process: ManagedProcess, atMost time: Duration, _ caller: CallerPresence) async {
        let over = Promise<Void>()
        let token = caller.onGone { over.fulfill() }
        await wait(for: process, atMost: time, orUntil: over)
        caller.remove(token)
    }
}
