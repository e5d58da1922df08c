import AgentCore
import FoundationEssentials
import Logging
import Synchronization

/// Manages the recordings of the desktop (docs/contracts/desktop.md#recording). There is no timer and no directory
/// before the first start.
package final class RecordingManager: Sendable {
    package struct Configuration: Sendable {
        /// For the files; created at the first start.
        package var directory: String
        package var environment: EnvironmentBuilder
        /// The desktop program's `record` subcommand, to which flags are added; nil when the program is not
        /// installed. Called on a blocking thread at each start.
        package var fallback: @Sendable () -> [String]?
        package var limits = RecordingLimits()

        package init(
            directory: String, environment: EnvironmentBuilder,
            fallback: @escaping @Sendable () -> [String]? = { nil }
        ) {
            self.directory = directory
            self.environment = environment
            self.fallback = fallback
        }
    }

    private struct Entry {
        var recording: ScreenRecording
        /// On ``AgentClock``.
        var startedAt: Duration
        var stopRequested = false
        /// When it ended, and the bytes that it keeps on disk.
        var ended: (at: Duration, bytes: Int)?
    }

    private struct State {
        var entries: [UUID: Entry] = [:]
        var serial = 0
        var lastActivity = Duration.zero
        var timer: Task<Void, Never>?
        var timerDeadline = Duration.zero
        var shuttingDown = false
        var cleaning: Task<Void, Never>?

        var active: Int { entries.values.count { $0.ended == nil } }
    }

    let context: ScreenRecording.Context
    private let metrics: RecordingMetrics
    private let state = Mutex(State())
    private var limits: RecordingLimits { context.configuration.limits }

    /// - Parameters:
    ///   - provider: asked for the desktop at each start.
    ///   - runner: starts the recorders.
    ///   - pool: where files are read and removed.
    ///   - executor: runs the tasks of recordings.
    package init(
        configuration: Configuration, provider: any DesktopProvider, runner: any CommandRunner, pool: BlockingPool,
        executor: any TaskExecutor, clock: AgentClock, metrics: MetricsRegistry, logger: Logger
    ) {
        context = ScreenRecording.Context(
            configuration: configuration, provider: provider, runner: runner, pool: pool, executor: executor,
            clock: clock, logger: logger)
        self.metrics = RecordingMetrics(metrics)
        self.metrics.observe { [weak self] in self?.running ?? 0 }
    }

    /// Recordings that run, or begin or end at the moment.
    package var running: Int { state.withLock { $0.active } }

    /// An action was performed: recordings go on for another ``RecordingLimits/idle``.
    package func noteActivity() {
        let now = context.clock.now()
        state.withLock { $0.lastActivity = now }
    }

    /// Ends the recorders of an earlier run of the agent and removes its recordings, once. The first start does it
    /// at the latest.
    package func removeLeftovers() async {
        let cleaning = state.withLock { state in
            if let cleaning = state.cleaning { return cleaning }
            let (pool, directory) = (context.pool, context.configuration.directory)
            let recorders = LeftoverRecorders(
                directory: directory, pool: pool, clock: context.clock, logger: context.logger, grace: limits.kill)
            let cleaning = Task(executorPreference: context.executor) {
                await recorders.end()
                _ = try? await pool.runToEnd { removeOwnTree(directory) }
            }
            state.cleaning = cleaning
            return cleaning
        }
        await cleaning.value
    }

    /// Starts a recording of the desktop, which is started when there is none. Returns when the first frame is on
    /// disk. A recording of this id that runs already goes on; one that is over is discarded.
    /// - Throws: ``DesktopError``: `.tooMany`, `.shuttingDown`, `.failed`.
    package func start(_ id: UUID) async throws {
        await removeLeftovers()
        while true {
            switch try decide(id) {
            case .join(let recording): return try await recording.ready()
            case .waitForEnd(let recording): await recording.over()
            case .begin(let recording, let old):
                discard(old.map { [$0] } ?? [])
                recording.begin()
                scheduleTimer()
                try await recording.ready()
                metrics.started.increment()
                context.logger.info("recording started", metadata: ["recording": "\(id.lowercased)"])
                return
            }
        }
    }

    /// Ends a recording, if it still runs, and returns the video; repeatable.
    /// - Throws: ``DesktopError``: `.notFound`, `.shuttingDown`, `.failed` when it is corrupted.
    package func stop(_ id: UUID) async throws -> RecordedVideo {
        let recording: ScreenRecording? = try state.withLock { state in
            if state.shuttingDown { throw DesktopSession.shuttingDown }
            return state.entries[id]?.recording
        }
        guard let recording else { throw DesktopError(.notFound, ScreenRecording.notFound) }
        // A stop that comes before the start is finished waits for it; without a start there is nothing to stop.
        try? await recording.ready()
        state.withLock { if $0.entries[id]?.recording === recording { $0.entries[id]?.stopRequested = true } }
        recording.stop(.request)
        return try await recording.result()
    }

    /// Stops all recordings, kills recorders that have not ended after ``RecordingLimits/shutdown``, and removes all
    /// files. Clients that wait for a stop still get their video.
    package func shutdown() async {
        let (recordings, timer, wasUsed) = state.withLock { state in
            state.shuttingDown = true
            defer { state.timer = nil }
            return (state.entries.values.map(\.recording), state.timer, state.cleaning != nil)
        }
        timer?.cancel()
        for recording in recordings { recording.stop(.shutdown) }
        let (clock, limits) = (context.clock, limits)
        let timeout = Task(executorPreference: context.executor) {
            guard (try? await clock.sleep(limits.shutdown)) != nil else { return }
            for recording in recordings { recording.kill() }
            guard (try? await clock.sleep(limits.kill)) != nil else { return }
            for recording in recordings { recording.giveUp() }
        }
        for recording in recordings { await recording.over() }
        timeout.cancel()
        state.withLock { $0.entries = [:] }
        guard wasUsed else { return }
        let directory = context.configuration.directory
        _ = try? await context.pool.runToEnd { removeOwnTree(directory) }
    }

    // MARK: The table

    private enum Decision {
        case join(ScreenRecording)
        case waitForEnd(ScreenRecording)
        case begin(ScreenRecording, discarding: ScreenRecording?)
    }

    private func decide(_ id: UUID) throws -> Decision {
        let now = context.clock.now()
        return try state.withLock { state in
            if state.shuttingDown { throw DesktopSession.shuttingDown }
            let old = state.entries[id]
            if let old, old.ended == nil {
                let isLive = !old.stopRequested && old.recording.isStartingOrRunning
                return isLive ? .join(old.recording) : .waitForEnd(old.recording)
            }
            guard state.active < limits.running else {
                throw DesktopError(
                    .tooMany, "Too many recordings.",
                    detail: "\(limits.running) run already; stop one of them first.")
            }
            state.serial += 1
            let recording = ScreenRecording(
                id: id, files: .init(directory: "\(context.configuration.directory)/\(id.lowercased)-\(state.serial)"),
                context: context, onEnd: { [weak self] in self?.ended($0, $1) })
            state.entries[id] = Entry(recording: recording, startedAt: now)
            return .begin(recording, discarding: old?.recording)
        }
    }

    private func ended(_ recording: ScreenRecording, _ ended: ScreenRecording.Ended) {
        count(ended)
        log(recording, ended)
        let now = context.clock.now()
        let gone = state.withLock { state -> [ScreenRecording] in
            guard state.entries[recording.id]?.recording === recording else { return [recording] }
            guard ended.end != .failed else {
                state.entries[recording.id] = nil
                return [recording]
            }
            state.entries[recording.id]?.ended = (now, ended.bytes)
            // A corrupted one is remembered for the stop's answer, without its files.
            return evictOldest(&state) + (ended.end == .corrupted ? [recording] : [])
        }
        discard(gone)
        scheduleTimer()
    }

    /// Removes the oldest finished recordings from the table until the rest is within the limits.
    /// - Returns: the removed ones.
    private func evictOldest(_ state: inout State) -> [ScreenRecording] {
        var over = state.entries.values.compactMap { entry in entry.ended.map { (entry.recording, $0.at, $0.bytes) } }
            .sorted { $0.1 < $1.1 }
        var bytes = over.reduce(0) { $0 + $1.2 }
        var gone: [ScreenRecording] = []
        while let oldest = over.first, over.count > limits.kept || bytes > limits.keptBytes, over.count > 1 {
            over.removeFirst()
            bytes -= oldest.2
            state.entries[oldest.0.id] = nil
            gone.append(oldest.0)
        }
        return gone
    }

    private func discard(_ recordings: [ScreenRecording]) {
        guard !recordings.isEmpty else { return }
        let (pool, files) = (context.pool, recordings.map(\.files))
        Task(executorPreference: context.executor) {
            _ = try? await pool.runToEnd { for files in files { files.remove() } }
        }
    }

    private func count(_ ended: ScreenRecording.Ended) {
        switch ended.end {
        case .finished: break
        case .failed: metrics.failed.with(RecordingMetrics.Failure.start.rawValue).increment()
        case .corrupted:
            let reason: RecordingMetrics.Failure = ended.byItself ? .died : .stop
            metrics.failed.with(reason.rawValue).increment()
        }
    }

    private func log(_ recording: ScreenRecording, _ ended: ScreenRecording.Ended) {
        let metadata: Logger.Metadata = [
            "recording": "\(recording.id.lowercased)", "bytes": "\(ended.bytes)",
            "ended_by": "\(ended.byItself ? "itself" : ended.cause?.rawValue ?? "unknown")",
        ]
        switch ended.end {
        case .finished: context.logger.info("recording ended", metadata: metadata)
        case .corrupted: context.logger.warning("recording is corrupted", metadata: metadata)
        case .failed:
            let why = ended.failure.map { "\($0.message) \($0.detail ?? "")" } ?? ""
            context.logger.warning(
                "recording did not start", metadata: ["recording": "\(recording.id.lowercased)", "error": "\(why)"])
        }
    }

    // MARK: Time

    /// Sets the one timer to when the next recording is idle for too long or has been kept long enough. Actions
    /// only make that later, which the timer finds when it fires.
    private func scheduleTimer() {
        let now = context.clock.now()
        state.withLock { state in
            guard !state.shuttingDown, let next = nextDeadline(state) else { return }
            if state.timer != nil, state.timerDeadline <= next { return }
            state.timer?.cancel()
            state.timerDeadline = next
            let clock = context.clock
            state.timer = Task(executorPreference: context.executor) { [weak self] in
                guard (try? await clock.sleep(max(.zero, next - now))) != nil else { return }
                self?.timerFired()
            }
        }
    }

    private func nextDeadline(_ state: State) -> Duration? {
        state.entries.values.compactMap { deadline($0, state.lastActivity) }.min()
    }

    private func deadline(_ entry: Entry, _ lastActivity: Duration) -> Duration? {
        if let ended = entry.ended { return ended.at + limits.retention }
        return entry.stopRequested ? nil : max(entry.startedAt, lastActivity) + limits.idle
    }

    private func timerFired() {
        let now = context.clock.now()
        let (idle, old) = state.withLock { state in
            state.timer = nil
            var idle: [ScreenRecording] = []
            var old: [ScreenRecording] = []
            for (id, entry) in state.entries {
                guard let deadline = deadline(entry, state.lastActivity), deadline <= now else { continue }
                if entry.ended == nil {
                    state.entries[id]?.stopRequested = true
                    idle.append(entry.recording)
                } else {
                    state.entries[id] = nil
                    old.append(entry.recording)
                }
            }
            return (idle, old)
        }
        for recording in idle { recording.stop(.idle) }
        discard(old)
        scheduleTimer()
    }
}
