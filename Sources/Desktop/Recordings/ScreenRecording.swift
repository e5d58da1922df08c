import AgentCore
import FoundationEssentials
import Glibc
import Logging
import Synchronization

/// One recording: drives the recorder as ``RecordingMachine`` says. Its waiters are told from any
/// thread.
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

    /// Who had it ended.
    enum Cause: String, Sendable {
        case request
        /// Nobody acted for ``RecordingLimits/idle``.
        case idle
        case shutdown
    }

    /// What the manager has to know of an end.
    struct Ended: Sendable {
        var end: RecordingMachine.End
        var bytes: Int
        var byItself: Bool
        var cause: Cause?
        /// Why it did not begin.
        var failure: DesktopError?
    }

    private struct State {
        var machine = RecordingMachine()
        var cause: Cause?
        var display = ""
        var commands: [RecorderCommand] = []
        /// The number of the recorder whose output counts.
        var attempt = 0
        var process: (any RunningCommand)?
        var scanner = ProgressScanner()
        var errors = TailBuffer()
        /// Why it could not begin: of the first recorder, which is the one that should have worked.
        var failure: DesktopError?
        var video: RecordedVideo?
        var timer: Task<Void, Never>?
        var starters: [CheckedContinuation<Void, any Error>] = []
        var results: [CheckedContinuation<RecordedVideo?, any Error>] = []
        var watchers: [CheckedContinuation<Void, Never>] = []
    }

    let id: UUID
    let files: RecordingFiles
    private let context: Context
    private let onEnd: @Sendable (ScreenRecording, Ended) -> Void
    private let state = Mutex(State())
    private var limits: RecordingLimits { context.configuration.limits }

    /// - Parameter onEnd: called once, before anybody who waits is told.
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

    /// Finds the desktop and begins. ``ready()`` tells how that went.
    func begin() {
        task { [self] in
            do {
                let desktop = try await context.provider.desktop()
                // Shutdown may have come meanwhile, and have removed all files for good.
                guard !state.withLock({ $0.machine.isOver }) else { return }
                let commands = try await context.pool.run { [self] in try prepare(desktop.display) }
                let action = state.withLock { state -> RecordingMachine.Action in
                    state.display = desktop.display
                    state.commands = commands
                    return state.machine.desktopReady()
                }
                if action == .none { _ = try? await context.pool.runToEnd { [files] in files.remove() } }
                perform(action)
            } catch {
                cannotBegin(error)
            }
        }
    }

    /// Returns when the first frame is written, at once when it was.
    /// - Throws: ``DesktopError`` when it could not begin.
    func ready() async throws {
        try await withCheckedThrowingContinuation { continuation in
            let known: Result<Void, any Error>? = state.withLock { state in
                switch state.machine.phase {
                case .waiting, .launching, .starting:
                    state.starters.append(continuation)
                    return nil
                case .over(.failed): return .failure(Self.startFailure(state))
                case .running, .stopping, .checking, .over: return .success(())
                }
            }
            if let known { continuation.resume(with: known) }
        }
    }

    /// Has it end; ``result()`` and ``over()`` tell when it has.
    func stop(_ cause: Cause) {
        perform(
            state.withLock { state in
                if state.machine.isActive, state.cause == nil { state.cause = cause }
                return state.machine.stop()
            })
    }

    /// Kills a recorder that was told to stop, without further patience.
    func kill() { perform(state.withLock { $0.machine.stopTimedOut() }) }

    /// Waits for nothing any more.
    func giveUp() { perform(state.withLock { $0.machine.giveUp() }) }

    /// Returns when it is over.
    func over() async {
        await withCheckedContinuation { continuation in
            let isOver = state.withLock { state in
                if !state.machine.isOver { state.watchers.append(continuation) }
                return state.machine.isOver
            }
            if isOver { continuation.resume() }
        }
    }

    /// What was recorded, once it is over.
    /// - Throws: ``DesktopError``: `.failed` when it cannot be used, `.notFound` when it never began.
    func result() async throws -> RecordedVideo {
        // A video that is over already is opened; who waits for the end gets the one that was looked at.
        let video: RecordedVideo? = try await withCheckedThrowingContinuation { continuation in
            let known: Result<RecordedVideo?, any Error>? = state.withLock { state in
                guard case .over(let end) = state.machine.phase else {
                    state.results.append(continuation)
                    return nil
                }
                return Self.error(of: end).map { .failure($0) } ?? .success(nil)
            }
            if let known { continuation.resume(with: known) }
        }
        if let video { return video }
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
        if state.cause == .shutdown { return DesktopError(.shuttingDown, "The agent is shutting down.") }
        return state.failure ?? DesktopError(.failed, "Failed to start recording.")
    }

    // MARK: Beginning

    /// The recorders to try, in order. Blocks on the disk.
    private func prepare(_ display: String) throws -> [RecorderCommand] {
        let configuration = context.configuration
        let path = configuration.environment.build()["PATH"] ?? EnvironmentBuilder.defaultPath
        var commands: [RecorderCommand] = []
        if let ffmpeg = RecorderCommand.find("ffmpeg", path: path) {
            commands.append(.ffmpeg(ffmpeg, display: display, files: files, videoBytes: limits.videoBytes))
        }
        if let fallback = configuration.fallback() {
            commands.append(.portableDesktop(fallback, files: files, thumbnail: true))
            commands.append(.portableDesktop(fallback, files: files, thumbnail: false))
        }
        guard !commands.isEmpty else {
            throw DesktopError(
                .failed, "Failed to start recording.",
                detail: "There is neither ffmpeg nor portabledesktop in PATH; install ffmpeg.")
        }
        try files.create()
        return commands
    }

    private func cannotBegin(_ error: any Error) {
        let failure =
            error as? DesktopError
            ?? DesktopError(.failed, "Failed to start recording.", detail: "\(error)", cause: error)
        perform(
            state.withLock { state in
                state.failure = failure
                return state.machine.cannotBegin()
            })
    }

    private func launch(_ number: Int) {
        task { [self] in
            guard let command = state.withLock({ $0.commands.dropFirst(number).first }) else { return }
            state.withLock { state in
                state.attempt = number
                state.scanner = ProgressScanner()
                state.errors = TailBuffer(limit: limits.errorBytes)
            }
            do {
                let process = try await start(command, number)
                perform(
                    state.withLock { state in
                        state.process = process
                        let action = state.machine.launched()
                        guard action == .none, state.scanner.hasFrame else { return action }
                        // It was quicker than its start.
                        return state.machine.firstFrame()
                    })
                awaitFrame(command)
                awaitExit(process, command)
            } catch {
                launchFailed(command, "\(error)")
            }
        }
    }

    private func start(_ command: RecorderCommand, _ number: Int) async throws -> any RunningCommand {
        let display = state.withLock { $0.display }
        // The recorder itself makes the files otherwise, and asks before it overwrites one.
        let makesFiles = command.readySign == .progress
        try await context.pool.run { [files] in
            files.removeContents()
            if makesFiles { try files.createEmpty() }
        }
        let environment = context.configuration.environment.build(request: [
            "DISPLAY": display, "AV_LOG_FORCE_NOCOLOR": "1",
        ])
        return try await context.runner.start(
            Command(arguments: command.arguments, environment: environment, workdir: files.directory)
        ) { [weak self] stream, bytes in self?.wrote(number, stream, bytes) }
    }

    /// On the thread that reads for all programs.
    private func wrote(_ number: Int, _ stream: CommandStream, _ bytes: UnsafeRawBufferPointer) {
        let action = state.withLock { state -> RecordingMachine.Action in
            guard number == state.attempt else { return .none }
            guard stream == .stdout else {
                state.errors.append(bytes)
                return .none
            }
            return state.scanner.take(bytes) ? state.machine.firstFrame() : .none
        }
        perform(action)
    }

    private func awaitFrame(_ command: RecorderCommand) {
        setTimer(limits.start, unless: { $0.machine.phase != .starting }) { $0.machine.startTimedOut() }
        guard command.readySign == .fileGrows else { return }
        task { [self] in
            // What it says when it begins it says before the first frame; only its file tells of that, or, where
            // it writes elsewhere first, that it does not end.
            let (begin, number) = (context.clock.now(), state.withLock { $0.attempt })
            // The next recorder has a watcher of its own.
            while state.withLock({ $0.machine.phase == .starting && $0.attempt == number }) {
                let bytes = (try? await context.pool.run { [files] in files.videoBytes }) ?? 0
                if bytes > 0 || context.clock.now() - begin >= limits.fallbackReady {
                    return perform(state.withLock { $0.attempt == number ? $0.machine.firstFrame() : .none })
                }
                guard (try? await context.clock.sleep(.milliseconds(50))) != nil else { return }
            }
        }
    }

    private func launchFailed(_ command: RecorderCommand, _ why: String) {
        let action = state.withLock { state -> RecordingMachine.Action in
            note("\(command.name) cannot be started: \(why)", &state)
            return state.machine.launchFailed(isLast: isLast(state))
        }
        perform(action)
    }

    private func isLast(_ state: State) -> Bool { state.attempt + 1 >= state.commands.count }

    private func note(_ why: String, _ state: inout State) {
        guard state.failure == nil else { return }
        state.failure = DesktopError(.failed, "Failed to start recording.", detail: why)
    }

    // MARK: Ending

    private func awaitExit(_ process: any RunningCommand, _ command: RecorderCommand) {
        task { [self] in
            let exit = await process.exit()
            if command.readySign == .fileGrows {
                // A script: what it left behind would record on, and hold the output.
                process.signal(SIGKILL)
                process.abandonOutput()
            }
            await process.outputEnd()
            let action = state.withLock { state -> RecordingMachine.Action in
                if state.machine.phase == .starting {
                    note(startProblem(command, exit, state), &state)
                }
                return state.machine.exited(isLast: isLast(state))
            }
            if action == .check { logEndByItself(command, exit) }
            perform(action)
        }
    }

    private func startProblem(_ command: RecorderCommand, _ exit: CommandExit, _ state: State) -> String {
        if state.machine.wasKilled {
            return "\(command.name) wrote no frame within \(limits.start). \(state.errors.text)"
        }
        return "\(command.name) ended before its first frame, \(Self.text(exit)). \(state.errors.text)"
    }

    private static func text(_ exit: CommandExit) -> String {
        switch exit {
        case .exited(let status): "with status \(status)"
        case .signalled(let number): "by signal \(number)"
        }
    }

    private func logEndByItself(_ command: RecorderCommand, _ exit: CommandExit) {
        let (byItself, errors) = state.withLock { ($0.machine.endedByItself, $0.errors.text) }
        guard byItself else { return }
        context.logger.warning(
            "a recorder ended by itself",
            metadata: [
                "recording": "\(id.lowercased)", "recorder": "\(command.name)", "exit": "\(Self.text(exit))",
                "stderr": "\(errors)",
            ])
    }

    private func check() {
        task { [self] in
            let video: RecordedVideo?
            do {
                video = try await context.pool.runToEnd { [files] in try files.open() }
            } catch {
                video = nil
                context.logger.warning(
                    "what a recorder left cannot be used",
                    metadata: ["recording": "\(id.lowercased)", "reason": "\(error)"])
            }
            perform(
                state.withLock { state in
                    state.video = video
                    return state.machine.checked(isWhole: video != nil)
                })
        }
    }

    private func end(_ end: RecordingMachine.End) {
        let (starters, results, watchers, video, failure, ended) = state.withLock { state in
            defer {
                state.timer?.cancel()
                (state.timer, state.process, state.video) = (nil, nil, nil)
                (state.starters, state.results, state.watchers) = ([], [], [])
            }
            let bytes = state.video.map { $0.videoBytes + $0.thumbnailBytes } ?? 0
            return (
                state.starters, state.results, state.watchers, state.video, Self.startFailure(state),
                Ended(
                    end: end, bytes: bytes, byItself: state.machine.endedByItself, cause: state.cause,
                    failure: end == .failed ? Self.startFailure(state) : nil)
            )
        }
        onEnd(self, ended)
        for starter in starters { starter.resume(throwing: failure) }
        for waiter in results {
            if let video, end == .finished {
                waiter.resume(returning: video)
            } else {
                waiter.resume(throwing: Self.error(of: end) ?? DesktopError(.notFound, Self.notFound))
            }
        }
        for watcher in watchers { watcher.resume() }
    }

    // MARK: What the machine asks for

    private func perform(_ action: RecordingMachine.Action) {
        switch action {
        case .none: break
        case .launch(let number): launch(number)
        case .ready:
            let starters = state.withLock { state in
                state.timer?.cancel()
                defer { (state.timer, state.starters) = (nil, []) }
                return state.starters
            }
            for starter in starters { starter.resume() }
        case .interrupt:
            // The leader alone: a recorder's own children hear from it, and a second SIGINT would
            // have ffmpeg give up before the index is written.
            state.withLock { $0.process }?.signalLeader(SIGINT)
            setTimer(limits.stop, unless: { $0.machine.phase != .stopping }) { $0.machine.stopTimedOut() }
        case .kill: state.withLock { $0.process }?.signal(SIGKILL)
        case .check: check()
        case .end(let end): self.end(end)
        }
    }

    /// Sets the one timer.
    private func setTimer(
        _ time: Duration, unless isOver: @Sendable (borrowing State) -> Bool,
        _ event: @escaping @Sendable (inout State) -> RecordingMachine.Action
    ) {
        state.withLock { state in
            // A timer of the phase that has come meanwhile stays.
            guard !isOver(state) else { return }
            state.timer?.cancel()
            state.timer = task { [self] in
                guard (try? await context.clock.sleep(time)) != nil else { return }
                perform(self.state.withLock { event(&$0) })
            }
        }
    }

    @discardableResult
    private func task(_ body: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
        Task(executorPreference: context.executor, operation: body)
    }
}

/// The last bytes of what was written.
private struct TailBuffer: Sendable {
    var limit = 0
    private var bytes: [UInt8] = []

    init(limit: Int = 0) { self.limit = limit }

    mutating func append(_ more: UnsafeRawBufferPointer) {
        bytes += more.suffix(limit)
        if bytes.count > limit { bytes.removeFirst(bytes.count - limit) }
    }

    var text: String {
        String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isNewline).joined(separator: "; ")
    }
}
