import AgentCore
import Glibc
import Logging

/// Starting the recorders in turn and following the one that runs: its output, its first frame, its exit.
extension ScreenRecording {
    // MARK: Starting

    /// The recorders to try, in order. Blocks.
    func recorders(for display: String) throws -> [RecorderCommand] {
        let configuration = context.configuration
        let path = configuration.environment.build()["PATH"] ?? EnvironmentBuilder.defaultPath
        var commands: [RecorderCommand] = []
        if let ffmpeg = findExecutable("ffmpeg", in: path.split(separator: ":").map(String.init)) {
            commands.append(.ffmpeg(ffmpeg, display: display, files: files, videoBytes: limits.videoBytes))
        }
        if let fallback = configuration.fallback() {
            commands.append(.portableDesktop(fallback, files: files))
        }
        guard !commands.isEmpty else {
            throw DesktopError(
                .failed, "Failed to start recording.",
                detail: "There is neither ffmpeg nor portabledesktop in PATH; install ffmpeg.")
        }
        return commands
    }

    func cannotBegin(_ error: any Error) {
        let failure =
            error as? DesktopError
            ?? DesktopError(.failed, "Failed to start recording.", detail: "\(error)", cause: error)
        perform(
            state.withLock { state in
                state.failure = failure
                let action = state.machine.cannotBegin()
                // It may have been stopped while its directory was made.
                return action == .none ? state.machine.launchFailed(isLast: true) : action
            })
    }

    func launch(_ number: Int) {
        task { [self] in
            guard let command = state.withLock({ $0.commands.dropFirst(number).first }) else { return }
            state.withLock { state in
                state.attempt = number
                state.scanner = ProgressScanner()
                state.errors = TailBuffer(limit: limits.errorBytes)
            }
            do {
                let process = try await start(command, number)
                await writeRecord(process.pid)
                perform(
                    state.withLock { state in
                        state.process = process
                        let action = state.machine.launched()
                        guard action == .none, state.scanner.hasFrame else { return action }
                        // The frame came before `start` returned.
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
        // portabledesktop creates the files itself, and asks before it overwrites one.
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

    /// For the next run of the agent, should this one be killed.
    private func writeRecord(_ pid: Int32) async {
        do {
            try await context.pool.runToEnd { [files] in try RecorderRecord.write(pid, to: files) }
        } catch {
            context.logger.warning(
                "the recorder's record cannot be written, so it will go on if the agent is killed",
                metadata: ["recording": "\(id.lowercased)", "error": "\(error)"])
        }
    }

    /// Called on the thread that reads the output of all programs.
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
            // Its output comes before the first frame. The sign is that its file grows or, when it writes to another
            // file first, that it still runs after a while.
            let (begin, number) = (context.clock.now(), state.withLock { $0.attempt })
            // Ends with this recorder: the next one has its own loop.
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

    // MARK: Its exit

    private func awaitExit(_ process: any RunningCommand, _ command: RecorderCommand) {
        task { [self] in
            let exit = await process.exit()
            if command.readySign == .fileGrows {
                // A script: its children would go on recording, and hold the output.
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
}

/// The last bytes of a recorder's stderr.
struct TailBuffer: Sendable {
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
