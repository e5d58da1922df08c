import AgentCore
import FoundationEssentials
import Glibc
import Logging
import Synchronization

/// One recording: drives the recorder as ``RecordingMachine`` decides. Events come from any thread.
final class ScreenRecording: Sendable {
    struct Context: Sendable {
        var configuration: RecordingManager.Configuration
        var provider: any DesktopProvider
        var runner: any CommandRunner
        var pool: BlockingPool
        var executor: any TaskExecutor
        var clock: AgentClock
        var logger: Logger
    }

    /// Why it was stopped.
    enum Cause: String, Sendable {
        case request
        /// There was no action for ``RecordingLimits/idle``.
        case idle
        case shutdown
    }

    /// How a recording ended, for the manager.
    struct Ended: Sendable {
        var end: RecordingMachine.End
        var bytes: Int
        var byItself: Bool
        var cause: Cause?
        /// Why it did not begin.
        var failure: DesktopError?
    }

    struct State {
        var machine = RecordingMachine()
        var cause: Cause?
        var display = ""
        var commands: [RecorderCommand] = []
        /// The number of the recorder whose output counts.
        var attempt = 0
        var process: (any RunningCommand)?
        var scanner = ProgressScanner()
        var errors = TailBuffer()
        /// Why it could not begin; of several recorders the error of the first, which is the preferred one.
        var failure: DesktopError?
        var video: RecordedVideo?
        var timer: Task<Void, Never>?
        /// Of callers that wait for the end: a video is not kept open for later ones.
        var results: [Promise<Result<RecordedVideo?, any Error>>] = []
    }

    let id: UUID
    let files: RecordingFiles
    let context: Context
    private let onEnd: @Sendable (ScreenRecording, Ended) -> Void
    let state = Mutex(State())
    private let begun = Promise<Result<Void, any Error>>()
    private let ended = Promise<Void>()
    var limits: RecordingLimits { context.configuration.limits }

    /// - Parameter onEnd: called once, before the waiters are resumed.
    init(
        id: UUID, files: RecordingFiles, context: Context, onEnd: @escaping @Sendable (ScreenRecording, Ended) -> Void
    ) {
        self.id = id
        self.files = files
        self.context = context
        self.onEnd = onEnd
    }

    // MARK: For the manager

    var isStartingOrRunning: Bool { state.withLock { $0.machine.isStartingOrRunning } }

    /// Gets the desktop and starts the recorder; ``ready()`` waits for the outcome.
    func begin() {
        task { [self] in
            do {
                let desktop = try await context.provider.desktop()
                let commands = try await context.pool.run { [self] in try recorders(for: desktop.display) }
                let action = state.withLock { state -> RecordingMachine.Action in
                    state.display = desktop.display
                    state.commands = commands
                    return state.machine.desktopReady()
                }
                // It may be over: shutdown has removed all files, and waits no longer for this.
                guard action != .none else { return }
                try await context.pool.run { [files] in try files.create() }
                perform(action)
            } catch {
                cannotBegin(error)
            }
        }
    }

    /// Returns when the first frame is written, immediately when it was written before.
    /// - Throws: ``DesktopError`` when it could not begin.
    func ready() async throws {
        let known: Result<Void, any Error>? = state.withLock { state in
            switch state.machine.phase {
            case .waiting, .launching, .starting: nil
            case .over(.failed): .failure(Self.startFailure(state))
            case .running, .stopping, .checking, .over: .success(())
            }
        }
        if let known { return try known.get() }
        try await begun.valueIgnoringCancellation.get()
    }

    /// Stops it; ``result()`` and ``over()`` wait for the end.
    func stop(_ cause: Cause) {
        perform(
            state.withLock { state in
                if state.machine.isActive, state.cause == nil { state.cause = cause }
                return state.machine.stop()
            })
    }

    /// Kills a recorder that is being stopped, before its time is up.
    func kill() { perform(state.withLock { $0.machine.stopTimedOut() }) }

    /// Ends the recording without waiting for its recorder.
    func giveUp() { perform(state.withLock { $0.machine.giveUp() }) }

    /// Returns when it is over.
    func over() async { await ended.valueIgnoringCancellation }

    /// What was recorded, once it is over.
    /// - Throws: ``DesktopError``: `.failed` when it cannot be used, `.notFound` when it never began.
    func result() async throws -> RecordedVideo {
        // A caller that waited for the end gets the video that was checked; a later one opens it again.
        let result = Promise<Result<RecordedVideo?, any Error>>()
        state.withLock { state in
            guard case .over(let end) = state.machine.phase else { return state.results.append(result) }
            result.fulfill(Self.error(of: end).map { .failure($0) } ?? .success(nil))
        }
        if let video = try await result.valueIgnoringCancellation.get() { return video }
        do {
            return try await context.pool.run { [files] in try files.open() }
        } catch let error as CoreError where error.code == .system(ENOENT) {
            // Removed meanwhile: by its age, by a new start, or by shutdown.
            throw DesktopError(.notFound, Self.notFound)
        } catch {
            throw DesktopError(.failed, Self.corrupted, detail: "\(error)", cause: error)
        }
    }

    static let notFound = "Recording not found."
    private static let corrupted = "Recording is corrupted."

    private static func error(of end: RecordingMachine.End) -> DesktopError? {
        switch end {
        case .finished: nil
        case .corrupted: DesktopError(.failed, corrupted)
        case .failed: DesktopError(.notFound, notFound)
        }
    }

    private static func startFailure(_ state: State) -> DesktopError {
        if state.cause == .shutdown { return DesktopSession.shuttingDown }
        return state.failure ?? DesktopError(.failed, "Failed to start recording.")
    }

    // MARK: Ending

    private func check() {
        task { [self] in
            let video: RecordedVideo?
            do {
                video = try await context.pool.runToEnd { [files] in try files.open() }
            } catch {
                video = nil
                context.logger.warning(
                    "a recorder left no usable video",
                    metadata: ["recording": "\(id.lowercased)", "reason": "\(error)"])
            }
            perform(
                state.withLock { state in
                    state.video = video
                    return state.machine.checked(isComplete: video != nil)
                })
        }
    }

    private func end(_ end: RecordingMachine.End) {
        let (results, video, failure, report) = state.withLock { state in
            defer {
                state.timer?.cancel()
                (state.timer, state.process, state.video, state.results) = (nil, nil, nil, [])
            }
            let bytes = state.video.map { $0.videoBytes + $0.thumbnailBytes } ?? 0
            return (
                state.results, state.video, Self.startFailure(state),
                Ended(
                    end: end, bytes: bytes, byItself: state.machine.endedByItself, cause: state.cause,
                    failure: end == .failed ? Self.startFailure(state) : nil)
            )
        }
        onEnd(self, report)
        begun.fulfill(.failure(failure))
        for result in results {
            if let video, end == .finished {
                result.fulfill(.success(video))
            } else {
                result.fulfill(.failure(Self.error(of: end) ?? DesktopError(.notFound, Self.notFound)))
            }
        }
        ended.fulfill()
    }

    // MARK: What the machine asks for

    func perform(_ action: RecordingMachine.Action) {
        switch action {
        case .none: break
        case .launch(let number): launch(number)
        case .ready:
            state.withLock { state in
                state.timer?.cancel()
                state.timer = nil
            }
            begun.fulfill(.success(()))
        case .interrupt:
            // To the leader only, which stops its children itself: a second SIGINT would make ffmpeg exit before it
            // has written the index.
            state.withLock { $0.process }?.signalLeader(SIGINT)
            setTimer(limits.stop, unless: { $0.machine.phase != .stopping }) { $0.machine.stopTimedOut() }
        case .kill: state.withLock { $0.process }?.signal(SIGKILL)
        case .check: check()
        case .end(let end): self.end(end)
        }
    }

    /// Sets the one timer.
    func setTimer(
        _ time: Duration, unless isOver: @Sendable (borrowing State) -> Bool,
        _ event: @escaping @Sendable (inout State) -> RecordingMachine.Action
    ) {
        state.withLock { state in
            // The phase may have changed meanwhile; then the timer of the new phase stays.
            guard !isOver(state) else { return }
            state.timer?.cancel()
            state.timer = task { [self] in
                guard (try? await context.clock.sleep(time)) != nil else { return }
                perform(self.state.withLock { event(&$0) })
            }
        }
    }

    @discardableResult
    func task(_ body: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
        Task(executorPreference: context.executor, operation: body)
    }
}
