import AgentCore
import CPlatform
import Glibc
import Synchronization

/// A program that ``CommandLauncher`` started: its pipes and its leader. Descriptors are read and
/// closed on the reactor's thread alone, so that none is read that was closed and given away.
final class LaunchedCommand: RunningCommand {
    struct Context: Sendable {
        var launcher: Launcher
        var reactor: Reactor
        var pool: BlockingPool
        var executor: any TaskExecutor
        /// On the reactor's thread.
        var afterReap: @Sendable () -> Void
    }

    private struct State {
        var hasExited = false
        var openStreams: Int
        var abandoned = false
        var onFinished: (@Sendable () -> Void)?
        /// The last delivery of a signal; the next one waits for it.
        var delivery: Task<Void, Never>?
    }

    var pid: Int32 { child.pid }
    var session: OwnSession { child.session }
    fileprivate let context: Context
    fileprivate let gate: OutputGate?
    fileprivate let output: @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    private let child: ChildProcess
    private let exited = Promise<CommandExit>()
    private let outputEnded = Promise<Void>()
    private let streams: [StreamEnd]
    private let sessions = SessionProcesses()
    private let state: Mutex<State>

    init(
        _ piped: PipedProcess, gate: OutputGate?, context: Context,
        output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    ) {
        child = ChildProcess(piped.process, context.launcher, context.reactor)
        self.gate = gate
        self.context = context
        self.output = output
        var streams = [StreamEnd(.stdout, piped.stdout, context.reactor.makeToken())]
        if piped.stderr != piped.stdout {
            streams.append(StreamEnd(.stderr, piped.stderr, context.reactor.makeToken()))
        }
        self.streams = streams
        state = Mutex(State(openStreams: streams.count))
    }

    /// Begins to watch.
    /// - Parameter onFinished: called once when the leader has ended and both outputs are at their end, under
    ///   the command's lock: it must not ask the command anything.
    func activate(onFinished: @escaping @Sendable () -> Void) throws {
        state.withLock { $0.onFinished = onFinished }
        gate?.setOnRelease { [weak self] in self?.wakeStreams() }
        for end in streams {
            try context.reactor.add(
                end.descriptor, events: UInt32(WA_EPOLLIN), token: end.token, StreamSource(self, end))
        }
        try child.watch { [self] status, _ in
            ended(CommandExit(status))
            context.afterReap()
        }
    }

    /// Undoes a start whose watching failed. Blocks until the leader is dead. The reactor may read what it
    /// watches already, so it closes everything.
    func abandonStart() {
        state.withLock { $0.abandoned = true }
        child.abandon { [self] in
            for end in streams { closeStream(end) }
        }
        ended(.signalled(SIGKILL))
    }

    func exit() async -> CommandExit { await exited.valueIgnoringCancellation }

    func outputEnd() async { await outputEnded.valueIgnoringCancellation }

    func signal(_ number: Int32) { inOrder { [self] in deliver(number) } }

    func signalLeader(_ number: Int32) { inOrder { [self] in child.signal(number) } }

    private func inOrder(_ send: @escaping @Sendable () -> Void) {
        let (pool, executor) = (context.pool, context.executor)
        state.withLock { state in
            let previous = state.delivery
            state.delivery = Task(executorPreference: executor) {
                await previous?.value
                _ = try? await pool.run(send)
            }
        }
    }

    /// Blocks: looks through /proc.
    private func deliver(_ number: Int32) { _ = sessions.signal(number, sessions: [session]) }

    func abandonOutput() {
        state.withLock { $0.abandoned = true }
        wakeStreams()
    }

    /// Shutdown's time is over: waiting tasks learn that it was killed.
    func stopWaiting() {
        exited.fulfill(.signalled(SIGKILL))
        outputEnded.fulfill()
    }

    private func wakeStreams() {
        for end in streams { context.reactor.setDeadline(.now, for: end.token) }
    }

    // MARK: On the reactor's thread

    fileprivate var isAbandoned: Bool { state.withLock { $0.abandoned } }

    fileprivate func closeStream(_ end: StreamEnd) {
        guard end.markClosed() else { return }
        context.reactor.remove(end.descriptor, token: end.token)
        close(end.descriptor)
        let isLast = state.withLock { state in
            state.openStreams -= 1
            finishIfDone(&state)
            return state.openStreams == 0
        }
        if isLast { outputEnded.fulfill() }
    }

    private func ended(_ exit: CommandExit) {
        state.withLock { state in
            state.hasExited = true
            finishIfDone(&state)
        }
        exited.fulfill(exit)
    }

    /// Under the lock, so that those who learn of the end find it gone.
    private func finishIfDone(_ state: inout State) {
        guard state.hasExited, state.openStreams == 0 else { return }
        state.onFinished?()
        state.onFinished = nil
    }
}

/// The read end of one output.
private final class StreamEnd: Sendable {
    let stream: CommandStream
    let descriptor: CInt
    let token: UInt64
    private let isClosed = Atomic<Bool>(false)
    /// Not watched because the gate is held. On the reactor's thread alone.
    let isPaused = Atomic<Bool>(false)

    init(_ stream: CommandStream, _ descriptor: CInt, _ token: UInt64) {
        self.stream = stream
        self.descriptor = descriptor
        self.token = token
    }

    /// False when it was closed before.
    func markClosed() -> Bool { !isClosed.exchange(true, ordering: .relaxed) }
}

// The reactor keeps the sources, and they the command, for as long as something can happen to it.

private final class StreamSource: ReactorSource {
    private let command: LaunchedCommand
    private let end: StreamEnd

    init(_ command: LaunchedCommand, _ end: StreamEnd) {
        self.command = command
        self.end = end
    }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) {
        if command.isAbandoned { return command.closeStream(end) }
        // At most a megabyte a turn, so that one loud program does not starve the others.
        for _ in 0..<4 {
            if command.gate?.isHeld == true { return pause() }
            let count = wa_read(end.descriptor, scratch.baseAddress, scratch.count)
            if count == -Int(EAGAIN) { return }
            guard count > 0 else { return command.closeStream(end) }
            command.output(end.stream, UnsafeRawBufferPointer(rebasing: scratch[..<count]))
        }
    }

    private func pause() {
        end.isPaused.store(true, ordering: .relaxed)
        command.context.reactor.pause(end.descriptor)
        // It may have been released before the line above.
        if command.gate?.isHeld != true { deadlineReached() }
    }

    func deadlineReached() {
        if command.isAbandoned { return command.closeStream(end) }
        guard command.gate?.isHeld != true, end.isPaused.exchange(false, ordering: .relaxed) else { return }
        command.context.reactor.resume(end.descriptor, events: UInt32(WA_EPOLLIN), token: end.token)
    }
}
