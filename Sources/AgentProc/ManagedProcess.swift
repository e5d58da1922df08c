import AgentCore
import CPlatform
import FoundationEssentials
import Glibc
import Synchronization

/// How a process ended.
struct ProcessExit: Sendable, Equatable {
    /// The exit code, or -1 for death by signal.
    var code: Int
    var signal: CInt?
    var reason: Reason
    var userMilliseconds: Int64
    var systemMilliseconds: Int64
    /// The most memory that it had; nil when that is not known, being less than the daemon's own.
    var maxRSSBytes: Int64?
    var wallSeconds: Int64
}

/// Why a process ended (docs/contracts/process-api.md#ends).
enum Reason: String, Sendable, Codable, CaseIterable {
    case exited, signaled, timeout, oom
    case agentShutdown = "agent_shutdown"
    case killedByRequest = "killed_by_request"
}

/// What is fixed when a process starts.
struct ProcessDescription: Sendable {
    var id: UUID
    /// The beginning of it, at most ``ProcLimits/shownCommandBytes``.
    var command: String
    var commandIsCut = false
    var workdir: String
    var background: Bool
    var chat: ChatIdentity?
    var startedWallSeconds: Int64
    /// Rises with each start: seconds are too coarse to order by.
    var order: UInt64
}

/// One process: its pipe, its leader and what is known of it. Everything that happens to it happens
/// on the reactor's thread; other threads look at snapshots.
final class ManagedProcess: Sendable {
    /// One consistent look.
    struct Snapshot: Sendable {
        var buffer: HeadTailBuffer
        var exit: ProcessExit?
        var lingering: Bool
        /// The terminal's, where it has one.
        var terminal: TerminalSize?
    }

    struct State {
        var buffer = HeadTailBuffer()
        /// More of the end than ``buffer`` has, for a terminal and for followers.
        var recent: RecentOutput?
        var followers = 0
        /// Followers that have read everything; woken once.
        var idleFollowers: [ObjectIdentifier: OutputFollower] = [:]
        var terminal: TerminalSize?
        var exit: ProcessExit?
        var pipeOpen = true
        /// What we did to end it, in order, each once.
        var causes: [Cause] = []
        var waitingOver = false
        var timeoutTask: Task<Void, Never>?
        /// Fulfilled at the exit.
        var waiters: [Promise<Void>] = []
    }

    /// A signal of ours and why it was sent.
    struct Cause {
        var reason: Reason
        var signal: CInt
        /// How often, less those that were refused.
        var count = 1
    }

    let description: ProcessDescription
    let spool: Spool?
    var pid: pid_t { child.pid }
    var session: OwnSession { child.session }
    /// Where its stdin is written; nil when that is /dev/null.
    let input: ProcessInput?
    let state = Mutex(State())
    let context: ProcessContext
    private let child: ChildProcess
    let pipe: CInt
    let pipeToken: UInt64
    // Only the reactor's thread touches what follows.
    let capture = Mutex(CaptureState())

    struct CaptureState {
        var fullReads = 0
        var grown = false
        var spoolOff = false
        var heldSince: ContinuousClock.Instant?
        var heldFor = Duration.zero
    }

    init(
        description: ProcessDescription, piped: PipedProcess, terminal: TerminalSize? = nil, spool: Spool?,
        context: ProcessContext
    ) {
        self.description = description
        input = piped.stdin.map { ProcessInput($0, isTerminal: terminal != nil, context.reactor) }
        child = ChildProcess(piped.process, context.launcher, context.reactor)
        pipe = piped.stdout
        self.spool = spool
        self.context = context
        pipeToken = context.reactor.makeToken()
        guard let terminal else { return }
        state.withLock { state in
            state.terminal = terminal
            state.recent = RecentOutput(from: 0)
        }
    }

    /// Begins to watch. Reports come only after this.
    func activate() throws {
        spool?.setOnDrained { [weak self] in self?.wakeCapture() }
        try context.reactor.add(pipe, events: UInt32(WA_EPOLLIN), token: pipeToken, PipeSource(self))
        try child.watch(beforeReaping: readOwed, onExit: ended)
    }

    func snapshot() -> Snapshot { state.withLock { $0.snapshot } }

    var exit: ProcessExit? { state.withLock { $0.exit } }

    /// Keeps the task that ends the process when its time is over, so that it goes with the process.
    func setTimeoutTask(_ task: Task<Void, Never>) {
        let over = state.withLock {
            $0.timeoutTask = task
            return $0.exit != nil
        }
        if over { task.cancel() }
    }
    var totalBytes: Int { state.withLock { $0.buffer.total } }
    var isLingering: Bool { state.withLock { $0.exit != nil && $0.pipeOpen } }

    /// Notes that we are about to end the process, by which signal and why.
    func willEnd(by signal: CInt, because reason: Reason) {
        state.withLock { state in
            guard state.exit == nil else { return }
            let index = state.causes.firstIndex { $0.reason == reason && $0.signal == signal }
            var cause = index.map { state.causes.remove(at: $0) } ?? Cause(reason: reason, signal: signal, count: 0)
            cause.count += 1
            state.causes.append(cause)
        }
    }

    /// The signal of one ``willEnd(by:because:)`` reached nothing.
    func didNotEnd(by signal: CInt, because reason: Reason) {
        state.withLock { state in
            let index = state.causes.firstIndex { $0.reason == reason && $0.signal == signal }
            guard let index else { return }
            state.causes[index].count -= 1
            if state.causes[index].count == 0 { state.causes.remove(at: index) }
        }
    }

    /// Keeps a promise that is fulfilled at the exit, or when shutdown begins.
    /// - Parameter evenAtShutdown: keep it although ``stopWaiting()`` was called.
    /// - Returns: false when there is nothing to wait for.
    func addWaiter(_ over: Promise<Void>, evenAtShutdown: Bool) -> Bool {
        state.withLock {
            guard $0.exit == nil, evenAtShutdown || !$0.waitingOver else { return false }
            $0.waiters.append(over)
            return true
        }
    }

    func removeWaiter(_ over: Promise<Void>) { state.withLock { $0.waiters.removeAll { $0 === over } } }

    /// Shutdown: waiting requests are answered with what there is.
    func stopWaiting() {
        let (waiters, followers) = state.withLock { state in
            state.waitingOver = true
            defer { state.waiters = [] }
            return (state.waiters, state.takeIdleFollowers())
        }
        for waiter in waiters { waiter.fulfill() }
        for follower in followers { follower.wake() }
    }

    // MARK: On the reactor's thread

    private func ended(_ status: wa_exit, _ scratch: UnsafeMutableRawBufferPointer) {
        // A pipe that only the leader held is at its end now; no need to call that lingering.
        if state.withLock({ $0.pipeOpen }), capture.withLock({ $0.heldSince == nil }) { pipeReady(scratch) }
        let exit = makeExit(status)
        input?.shut()
        let (waiters, followers) = state.withLock { state in
            state.exit = exit
            // The spool has it; ended processes are many.
            if state.followers == 0 { state.recent = nil }
            state.timeoutTask?.cancel()
            state.timeoutTask = nil
            defer { state.waiters = [] }
            return (state.waiters, state.takeIdleFollowers())
        }
        // First, so that those who learn of the end find the room and the count of it.
        context.onExit(self, exit)
        for waiter in waiters { waiter.fulfill() }
        for follower in followers { follower.wake() }
        finishSpoolIfDone()
    }

    private func makeExit(_ status: wa_exit) -> ProcessExit {
        let causes = state.withLock { $0.causes }
        let code = status.signaled ? -1 : Int(status.status)
        var reason: Reason
        if status.signaled {
            // A signal that we sent earlier and that it outlived explains nothing.
            reason = causes.last { $0.signal == status.status }?.reason ?? .signaled
            if reason == .signaled, status.status == SIGKILL, context.oom?.claim() == true { reason = .oom }
        } else {
            // Ended by itself after we asked it to: our doing when time-out or shutdown would have
            // killed it next, or when it reports our signal the way shells do.
            reason = causes.last { $0.reason == .timeout || $0.reason == .agentShutdown }?.reason ?? .exited
            if reason == .exited,
                causes.contains(where: { $0.reason == .killedByRequest && code == 128 + Int($0.signal) })
            {
                reason = .killedByRequest
            }
        }
        return ProcessExit(
            code: code, signal: status.signaled ? status.status : nil, reason: reason,
            userMilliseconds: status.user_us / 1000, systemMilliseconds: status.system_us / 1000,
            maxRSSBytes: PeakMemory.ofProgram(reported: status.max_rss_bytes, borrowed: child.borrowedBytes),
            wallSeconds: context.clock.wallSeconds())
    }

    func finishSpoolIfDone() {
        let done = state.withLock { $0.exit != nil && !$0.pipeOpen }
        if done, let spool { context.spools?.finished(spool) }
    }

    /// Undoes a start whose watching failed. Blocks until the leader is dead. The reactor may read the pipe
    /// already, so it closes everything.
    func abandon() {
        child.abandon { [self] in
            input?.shut()
            pipeEnded()
        }
    }
}

extension ManagedProcess.State {
    var snapshot: ManagedProcess.Snapshot {
        .init(buffer: buffer, exit: exit, lingering: exit != nil && pipeOpen, terminal: terminal)
    }

    mutating func takeIdleFollowers() -> [OutputFollower] {
        guard !idleFollowers.isEmpty else { return [] }
        defer { idleFollowers = [:] }
        return Array(idleFollowers.values)
    }
}

/// What every process shares.
struct ProcessContext: Sendable {
    var reactor: Reactor
    var launcher: Launcher
    var spools: SpoolStore?
    var oom: OOMWatch?
    var clock: AgentClock
    var captured: CounterSeries
    var onExit: @Sendable (ManagedProcess, ProcessExit) -> Void
}
