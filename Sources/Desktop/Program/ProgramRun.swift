import AgentCore
import Glibc

/// One run of `portabledesktop`, with a limit on its output and an optional time limit.
struct ProgramRun: Sendable {
    enum End: Sendable, Equatable {
        case exited(CommandExit)
        case overTime
        case cancelled
        case tooMuch(Int)

        /// The end of a sentence that begins with the program's name.
        func text(_ limit: Duration) -> String {
            switch self {
            case .exited(.exited(let status)): "exited with status \(status)"
            case .exited(.signalled(let signal)): "was ended by signal \(signal)"
            case .overTime: "did not finish within \(limit.components.seconds) s"
            case .cancelled: "was cancelled"
            case .tooMuch(let bytes): "printed more than \(bytes) bytes"
            }
        }
    }

    let command: any RunningCommand
    let output: ProgramOutput
    private let first: Promise<End>
    private let limiter: TimeLimiter

    /// - Parameter outputLimit: bytes of stdout, at most.
    /// - Throws: an error whose description says what could not be started and why.
    static func start(
        _ command: Command, by runner: any CommandRunner, _ limiter: TimeLimiter, outputLimit: Int
    ) async throws -> ProgramRun {
        let first = Promise<End>()
        let output = ProgramOutput(limit: outputLimit) { first.fulfill(.tooMuch(outputLimit)) }
        let running = try await runner.start(command) { stream, bytes in
            if stream == .stdout { output.appendOutput(bytes) } else { output.appendErrors(bytes) }
        }
        return ProgramRun(command: running, output: output, first: first, limiter: limiter)
    }

    /// Waits until it exits, until the deadline on the clock, or until the calling task is cancelled. It does not end
    /// the process. To be called once.
    func end(by deadline: Duration) async -> End {
        let (first, command, clock) = (first, command, limiter.clock)
        Task(executorPreference: limiter.executor) { _ = first.fulfill(.exited(await command.exit())) }
        let timer = Task(executorPreference: limiter.executor) {
            guard (try? await clock.sleep(max(.zero, deadline - clock.now()))) != nil else { return }
            first.fulfill(.overTime)
        }
        defer { timer.cancel() }
        return await first.value(ifCancelled: .cancelled)
    }

    /// Waits for the end of both outputs, for at most a second: children of the program may hold them open.
    func drain() async {
        _ = await limiter.runIgnoringCancellation(atMost: .seconds(1)) { [command] in await command.outputEnd() }
    }

    /// Sends SIGTERM, waits for the grace, sends SIGKILL and waits again; returns when it is reaped or the time is up.
    /// Its output is not read any further.
    func kill(after grace: Duration, _ last: Duration) async {
        defer { command.abandonOutput() }
        for (signal, grace) in [(SIGTERM, grace), (SIGKILL, last)] {
            command.signal(signal)
            if await limiter.runIgnoringCancellation(atMost: grace, { [command] in await command.exit() }) != nil {
                return
            }
        }
    }
}
