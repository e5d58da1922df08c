import AgentCore
import AgentProto
import ControlPlaneAPI
import FoundationEssentials
import Glibc
import Logging
import Synchronization

/// One run of one script, from its start to its result (docs/contracts/control-plane.md#scripts).
struct ScriptExecution: Sendable {
    struct Paths: Sendable {
        var directory: String
        var logDirectory: String
        /// Holds the scripts' data and bin directories.
        var state: String
    }

    let script: WorkspaceScript
    let stage: Coder_Agent_V2_Timing.Stage
    let context: ScriptContext
    let paths: Paths
    let logs: LogStore
    let logger: Logger
    /// Called with the command when it runs.
    let onStart: @Sendable (any RunningCommand) -> Void

    func run() async -> Coder_Agent_V2_Timing {
        var timing = Coder_Agent_V2_Timing()
        timing.scriptID = script.id
        timing.stage = stage
        timing.start = context.wallTime().proto
        let output = ScriptOutput(
            source: script.logSourceID, store: logs, pool: context.pool, executor: context.executor,
            wallTime: context.wallTime, logger: logger)
        await output.open(logPath)
        (timing.status, timing.exitCode) = await execute(output)
        timing.end = context.wallTime().proto
        return timing
    }

    private func execute(_ output: ScriptOutput) async -> (Coder_Agent_V2_Timing.Status, Int32) {
        var notes: [(level: ScriptLogLine.Level, text: String)] = []
        let command: any RunningCommand
        do {
            let (workdir, missing) = await context.workdir(paths.directory)
            if let missing {
                notes.append((.warn, "The directory \(missing) does not exist; the script ran in \(workdir)."))
            }
            let variables = try await prepareDirectories()
            command = try await context.runner.start(
                context.command(script.text, directory: workdir, variables: variables, gate: output.gate)
            ) { output.receive($0, $1) }
        } catch {
            logger.warning("a script could not be started", metadata: metadata.merging(["error": "\(error)"]) { $1 })
            notes.append((.error, "The script could not be started: \(error)"))
            await output.finish(notes)
            return (.exitFailure, Self.unknownExit)
        }
        onStart(command)
        let phase = Phase()
        let deadline = script.timeout.map { limit in
            Task(executorPreference: context.executor) { [context] in
                guard (try? await context.clock.sleep(limit)) != nil, phase.timeIsOver() else { return }
                command.signal(SIGTERM)
                // To the end, although the leader may go at SIGTERM: what it started may not.
                try? await context.clock.sleep(ScriptLimits.scriptKillGrace)
                command.signal(SIGKILL)
            }
        }
        let exit = await command.exit()
        let timedOut = phase.hasExited()
        if !timedOut { deadline?.cancel() }
        let heldOpen = await outputHeldOpen(command)
        if timedOut, heldOpen { command.signal(SIGKILL) }

        let (status, code) = Self.result(exit, timedOut: timedOut, heldOpen: heldOpen)
        if let note = note(exit, timedOut: timedOut, heldOpen: heldOpen) { notes.append(note) }
        await output.finish(notes)
        return (status, code)
    }

    /// Waits for the outputs' end, and gives up after the grace.
    private func outputHeldOpen(_ command: any RunningCommand) async -> Bool {
        let phase = Phase()
        let patience = Task(executorPreference: context.executor) { [context] in
            guard (try? await context.clock.sleep(ScriptLimits.scriptPipeGrace)) != nil, phase.timeIsOver() else {
                return
            }
            command.abandonOutput()
        }
        await command.outputEnd()
        patience.cancel()
        return phase.hasExited()
    }

    private static let unknownExit: Int32 = 255
    /// Of a script whose time was over, however it ended.
    private static let timedOutExit: Int32 = -1

    static func result(
        _ exit: CommandExit, timedOut: Bool, heldOpen: Bool
    ) -> (Coder_Agent_V2_Timing.Status, Int32) {
        let code =
            switch exit {
            case .exited(let code): code
            case .signalled: unknownExit
            }
        if timedOut { return (.timedOut, timedOutExit) }
        if heldOpen { return (.pipesLeftOpen, code) }
        return (code == 0 ? .ok : .exitFailure, code)
    }

    private func note(_ exit: CommandExit, timedOut: Bool, heldOpen: Bool) -> (
        level: ScriptLogLine.Level, text: String
    )? {
        if timedOut {
            let seconds = script.timeout?.inSeconds ?? 0
            return (.error, "The script was ended: it ran longer than its timeout of \(seconds) seconds.")
        }
        if heldOpen {
            return (
                .warn,
                "The script has ended, but something that it started in the background still holds its output, "
                    + "which is no longer read. Start it with its output elsewhere, for instance: "
                    + "command >/tmp/command.log 2>&1 &"
            )
        }
        if case .signalled(let number) = exit { return (.error, "The script was killed by signal \(number).") }
        return nil
    }

    var logPath: String {
        let environment = context.environment.build()
        let name = script.logPath.isEmpty ? "coder-script-\(script.logSourceID.text).log" : script.logPath
        return WorkspacePath.expand(
            name, home: context.user.home, environment: environment, base: paths.logDirectory)
    }

    private func prepareDirectories() async throws -> [String: String] {
        let data = "\(paths.state)/data/\(script.logSourceID.text)"
        let (state, bin) = (paths.state, ScriptRunner.binDirectory(state: paths.state))
        try await context.pool.run {
            for directory in [data, bin] {
                try ScriptRunner.requireOwn(directory, state: state)
                try createDirectories(directory, mode: 0o700)
            }
        }
        return ["CODER_SCRIPT_DATA_DIR": data, "CODER_SCRIPT_BIN_DIR": bin]
    }

    private var metadata: Logger.Metadata {
        ["script": "\(script.displayName)", "script_id": "\(script.id.text)", "stage": "\(stage.label)"]
    }

    /// Decides a race between an end and its deadline: the first counts.
    private final class Phase: Sendable {
        private enum State { case open, over, ended }
        private let state = Mutex(State.open)

        /// False when the end was first.
        func timeIsOver() -> Bool {
            state.withLock { state in
                guard state == .open else { return false }
                state = .over
                return true
            }
        }

        /// True when the deadline was first.
        func hasExited() -> Bool {
            state.withLock { state in
                guard state == .open else { return true }
                state = .ended
                return false
            }
        }
    }
}

extension Coder_Agent_V2_Timing.Stage {
    /// For logs and metrics.
    var label: String {
        switch self {
        case .start: "start"
        case .stop: "stop"
        case .cron: "cron"
        case .UNRECOGNIZED: "other"
        }
    }
}

extension Coder_Agent_V2_Timing.Status {
    /// For metrics.
    var label: String {
        switch self {
        case .ok: "ok"
        case .exitFailure: "exit_failure"
        case .timedOut: "timed_out"
        case .pipesLeftOpen: "pipes_left_open"
        case .UNRECOGNIZED: "other"
        }
    }
}
