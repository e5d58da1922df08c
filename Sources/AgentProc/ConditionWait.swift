import AgentCore
import AgentHTTP
import Glibc
import NIOCore

/// Waits until a condition of a process holds. It costs promises and timers, no thread.
struct ConditionWait: Sendable {
    enum Outcome {
        case met(LineMatcher.Match?)
        /// The process ended first, or the time is over.
        /// - Parameter isCutShort: not all that there was could be looked at in time.
        case unmet(isCutShort: Bool)
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
    /// Where the spool is read.
    let pool: BlockingPool
    let work: WaitWork

    /// Returns soon after the time or the client's leaving, and at once when shutdown begins, whatever is under way.
    /// - Throws: ``CoreError`` `.noThread`.
    func run(_ condition: WaitCondition, atMost time: Duration, _ caller: CallerPresence) async throws -> Outcome {
        switch condition {
        case .exit:
            await manager.awaitEnd(of: process, atMost: time, caller)
            return process.exit == nil ? .unmet(isCutShort: false) : .met(nil)
        case .output(let pattern):
            let follower = OutputFollower(process, pool: pool)
            defer { follower.stop() }
            // A process that ends is read to its end, which the follower reports.
            let takeBack = manager.configuration.clock.after(time) { follower.stopWhenRead() }
            defer { takeBack() }
            return try await leavingBehind(time, caller) { try await output(LineMatcher(pattern), follower) }
        case .port(let port):
            return try await untilOver(time, caller) { try await listens(port, $0) }
        case .file(let path):
            return try await untilOver(time, caller) { try await exists(path, $0) }
        }
    }

    /// Runs the body, but leaves it behind, cancelled, when the client has gone, shutdown begins, or a little after the
    /// time.
    private func leavingBehind(
        _ time: Duration, _ caller: CallerPresence, _ body: @escaping @Sendable () async throws -> Outcome
    ) async throws -> Outcome {
        let outcome = Promise<Result<Outcome, any Error>>()
        let leave: @Sendable () -> Void = { outcome.fulfill(.success(.unmet(isCutShort: true))) }
        let token = caller.onGone(leave)
        let takeBack = manager.configuration.clock.after(time + ProcLimits.lookGrace, leave)
        let shutdown = Task(executorPreference: manager.executor) {
            if (try? await manager.shutdownBegan.valueUnlessCancelled()) != nil { leave() }
        }
        let task = Task(executorPreference: manager.executor) {
            do {
                outcome.fulfill(.success(try await body()))
            } catch is CancellationError {
                leave()
            } catch {
                outcome.fulfill(.failure(error))
            }
        }
        defer {
            caller.remove(token)
            takeBack()
            shutdown.cancel()
            task.cancel()
        }
        return try await outcome.valueIgnoringCancellation.get()
    }

    // MARK: Output

    private func output(_ matcher: LineMatcher, _ follower: OutputFollower) async throws -> Outcome {
        var matcher = matcher
        while true {
            // Those who wait for their turn hold no output.
            let hasMore = matcher.offset < process.totalBytes
            if hasMore { try await work.turns.take() }
            defer { if hasMore { work.turns.give() } }
            switch await follower.next(from: matcher.offset) {
            case .bytes(let bytes):
                if let match = try await look(at: bytes, &matcher) { return .met(match) }
            case .gone(let count): matcher.skip(count)
            case .quiet: break
            case .ended, .stopped: return .unmet(isCutShort: false)
            }
        }
    }

    /// In pieces, so that others get their turn on the threads.
    private func look(at bytes: ByteBuffer, _ matcher: inout LineMatcher) async throws -> LineMatcher.Match? {
        let isLatest = matcher.offset + bytes.readableBytes >= process.totalBytes
        var rest = bytes
        while rest.readableBytes > 0 {
            let (before, given) = (matcher, rest)
            let (after, match) = try await work.matching.run {
                var matcher = before
                let end = ContinuousClock.now + .milliseconds(ProcLimits.matchPieceMilliseconds)
                let match = given.withUnsafeReadableBytes { bytes in
                    matcher.feed(bytes, isLatest: isLatest) { ContinuousClock.now >= end }
                }
                return (matcher, match)
            }
            if let match { return match }
            matcher = after
            rest.moveReaderIndex(forwardBy: after.offset - before.offset)
        }
        return nil
    }

    // MARK: Ports and files

    /// Runs the body until it returns, or looks one last time after the end.
    private func untilOver(
        _ time: Duration, _ caller: CallerPresence, _ body: @escaping @Sendable (Watched<Signals>) async throws -> Bool
    ) async throws -> Outcome {
        let signals = Watched(Signals())
        let end = manager.atEnd(of: process, atMost: time, caller) { signals.update { $0.isOver = true } }
        defer { end() }
        return try await leavingBehind(time, caller) {
            try await body(signals) ? .met(nil) : .unmet(isCutShort: false)
        }
    }

    /// Returns when something may have changed, or it is over.
    private static func news(_ signals: Watched<Signals>) async throws {
        try await signals.take { signals -> Void? in
            guard signals.isOver || signals.isNews else { return nil }
            signals.isNews = false
            return ()
        }
    }

    private func listens(_ port: Int, _ signals: Watched<Signals>) async throws -> Bool {
        let session = process.session
        let token = manager.ports.add(port) { signals.update { $0.isNews = true } }
        defer { manager.ports.remove(token) }
        var lastLook: Duration?
        while true {
            try await Self.news(signals)
            let isOver = signals.value.isOver
            let now = manager.configuration.clock.now()
            // Others may listen on it for long, and finding out whose a socket is takes a look at every process.
            if isOver || lastLook.map({ now - $0 >= Self.portPatience }) ?? true {
                lastLook = now
                if try await work.ports.run({ PortWatch.listens(on: port, session) }) { return true }
            }
            if isOver { return false }
        }
    }

    private func exists(_ path: String, _ signals: Watched<Signals>) async throws -> Bool {
        let whole = path.hasPrefix("/") ? path : "\(process.description.workdir)/\(path)"
        let wake: @Sendable () -> Void = { signals.update { $0.isNews = true } }
        let looks = manager.heartbeat(each: Self.fileInterval, wake)
        defer { looks.cancel() }
        let files = manager.files
        while true {
            let isOver = signals.value.isOver
            switch try await work.files.run({ isOver ? FileLook.now(whole) : FileLook.watching(whole, files, wake) }) {
            case .there: return true
            case .missing(let registration):
                defer { if let registration { files.remove(registration) } }
                if isOver { return false }
                try await Self.news(signals)
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
