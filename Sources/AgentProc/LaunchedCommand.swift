import AgentCore
import CPlatform
import Glibc
import Synchronization

/// A program that ``CommandLauncher`` started: its two pipes and its pidfd. Descriptors are read and
/// closed on the reactor's thread alone, so that nobody reads one that was closed and given away.
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
        var exit: CommandExit?
        var openStreams = 2
        var abandoned = false
        var waitingOver = false
        var exitWaiters: [CheckedContinuation<CommandExit, Never>] = []
        var endWaiters: [CheckedContinuation<Void, Never>] = []
        var onFinished: (@Sendable () -> Void)?
        /// The pidfd is closed; its number may be another descriptor's.
        var isReleased = false
        /// The last delivery of a signal; the next one waits for it.
        var delivery: Task<Void, Never>?
    }

    var pid: Int32 { process.pid }
    var session: OwnSession { process.session }
    fileprivate let context: Context
    fileprivate let gate: OutputGate?
    fileprivate let output: @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    private let process: LaunchedProcess
    private var pidfd: CInt { process.pidfd }
    private let pidfdToken: UInt64
    private let streams: [StreamEnd]
    private let sessions = SessionProcesses()
    private let state = Mutex(State())

    init(
        _ process: LaunchedProcess, stdout: CInt, stderr: CInt, gate: OutputGate?, context: Context,
        output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    ) {
        self.process = process
        self.gate = gate
        self.context = context
        self.output = output
        pidfdToken = context.reactor.makeToken()
        streams = [
            StreamEnd(.stdout, stdout, context.reactor.makeToken()),
            StreamEnd(.stderr, stderr, context.reactor.makeToken()),
        ]
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
        try context.reactor.add(
            pidfd, events: UInt32(WA_EPOLLIN), token: pidfdToken, CommandExitSource(self))
    }

    /// Undoes a start whose watching failed. Blocks until the leader is dead. The reactor may read what it
    /// watches already, so it closes everything.
    func abandonStart() {
        context.launcher.discard(process)
        ended(.signalled(SIGKILL))
        state.withLock { $0.abandoned = true }
        context.reactor.perform { [self] in
            context.reactor.remove(pidfd, token: pidfdToken)
            releasePidfd()
            for end in streams { closeStream(end) }
        }
    }

    func exit() async -> CommandExit {
        await withCheckedContinuation { continuation in
            let known: CommandExit? = state.withLock { state in
                if let exit = state.exit { return exit }
                if state.waitingOver { return .signalled(SIGKILL) }
                state.exitWaiters.append(continuation)
                return nil
            }
            if let known { continuation.resume(returning: known) }
        }
    }

    func outputEnd() async {
        await withCheckedContinuation { continuation in
            let over = state.withLock { state in
                if state.openStreams == 0 || state.waitingOver { return true }
                state.endWaiters.append(continuation)
                return false
            }
            if over { continuation.resume() }
        }
    }

    func signal(_ number: Int32) { inOrder { [self] in deliver(number) } }

    func signalLeader(_ number: Int32) {
        inOrder { [self] in
            // Under the lock, so that the descriptor isn't closed meanwhile; the call doesn't block.
            state.withLock { if !$0.isReleased { _ = wa_pidfd_send_signal(pidfd, number) } }
        }
    }

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

    /// Shutdown's patience is over: whoever waits is told that it was killed.
    func stopWaiting() {
        let (exits, ends) = state.withLock { state in
            state.waitingOver = true
            defer { (state.exitWaiters, state.endWaiters) = ([], []) }
            return (state.exitWaiters, state.endWaiters)
        }
        for waiter in exits { waiter.resume(returning: .signalled(SIGKILL)) }
        for waiter in ends { waiter.resume() }
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
        let waiters = state.withLock { state -> [CheckedContinuation<Void, Never>] in
            state.openStreams -= 1
            guard state.openStreams == 0 else { return [] }
            defer { state.endWaiters = [] }
            finishIfDone(&state)
            return state.endWaiters
        }
        for waiter in waiters { waiter.resume() }
    }

    fileprivate func exitReady() {
        var status = wa_exit()
        let reaped = context.launcher.reap(process, &status)
        guard reaped != 0 else { return }
        if reaped < 0 {
            // Somebody else in this process waited for it. It is gone all the same.
            status.status = 255
        }
        context.reactor.remove(pidfd, token: pidfdToken)
        releasePidfd()
        ended(status.signaled ? .signalled(status.status) : .exited(status.status))
        context.afterReap()
    }

    private func releasePidfd() {
        state.withLock { state in
            state.isReleased = true
            close(pidfd)
        }
    }

    private func ended(_ exit: CommandExit) {
        let waiters = state.withLock { state in
            state.exit = exit
            defer { state.exitWaiters = [] }
            finishIfDone(&state)
            return state.exitWaiters
        }
        for waiter in waiters { waiter.resume(returning: exit) }
    }

    /// Under the lock, so that whoever learns of the end finds it gone.
    private func finishIfDone(_ state: inout State) {
        guard state.exit != nil, state.openStreams == 0 else { return }
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
        // Released, and told so, before the line above.
        if command.gate?.isHeld != true { deadlineReached() }
    }

    func deadlineReached() {
        if command.isAbandoned { return command.closeStream(end) }
        guard command.gate?.isHeld != true, end.isPaused.exchange(false, ordering: .relaxed) else { return }
        command.context.reactor.resume(end.descriptor, events: UInt32(WA_EPOLLIN), token: end.token)
    }
}

private final class CommandExitSource: ReactorSource {
    private let command: LaunchedCommand
    init(_ command: LaunchedCommand) { self.command = command }
    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) { command.exitReady() }
}
