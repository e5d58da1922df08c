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
    var maxRSSBytes: Int64
    var wallSeconds: Int64
}

/// Why a process ended (spec: process API, `reason`).
enum Reason: String, Sendable, Codable, CaseIterable {
    case exited, signaled, timeout, oom
    case agentShutdown = "agent_shutdown"
    case killedByRequest = "killed_by_request"
}

/// What is fixed when a process starts.
struct ProcessDescription: Sendable {
    var id: UUID
    var command: String
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
    }

    private struct State {
        var buffer = HeadTailBuffer()
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
    private struct Cause {
        var reason: Reason
        var signal: CInt
        /// How often, less those that were refused.
        var count = 1
    }

    let description: ProcessDescription
    let spool: Spool?
    var pid: pid_t { child.pid }
    var session: OwnSession { child.session }
    private let child: ChildProcess
    private let pipe: CInt
    private let context: ProcessContext
    private let state = Mutex(State())
    private let pipeToken: UInt64
    // Only the reactor's thread touches what follows.
    private let capture = Mutex(CaptureState())

    private struct CaptureState {
        var fullReads = 0
        var grown = false
        var spoolOff = false
        var heldSince: ContinuousClock.Instant?
        var heldFor = Duration.zero
    }

    init(
        description: ProcessDescription, piped: PipedProcess, spool: Spool?, context: ProcessContext
    ) {
        self.description = description
        child = ChildProcess(piped.process, context.launcher, context.reactor)
        pipe = piped.stdout
        self.spool = spool
        self.context = context
        pipeToken = context.reactor.makeToken()
    }

    /// Begins to watch. Reports come only after this.
    func activate() throws {
        spool?.setOnDrained { [weak self] in self?.wakeCapture() }
        try context.reactor.add(pipe, events: UInt32(WA_EPOLLIN), token: pipeToken, PipeSource(self))
        try child.watch(beforeReaping: readOwed, onExit: ended)
    }

    func snapshot() -> Snapshot {
        state.withLock {
            Snapshot(buffer: $0.buffer, exit: $0.exit, lingering: $0.exit != nil && $0.pipeOpen)
        }
    }

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
        let all = state.withLock { state in
            state.waitingOver = true
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in all { waiter.fulfill() }
    }

    // MARK: On the reactor's thread

    fileprivate func pipeReady(_ scratch: UnsafeMutableRawBufferPointer) {
        // At most a megabyte a turn, so that one loud process does not starve the others.
        for _ in 0..<4 {
            switch readOnce(scratch) {
            case .again: return
            case .more: continue
            case .ended: return pipeEnded()
            }
        }
    }

    private enum ReadResult { case more, again, ended }

    private func readOnce(_ scratch: UnsafeMutableRawBufferPointer) -> ReadResult {
        let n = wa_read(pipe, scratch.baseAddress, scratch.count)
        if n == -Int(EAGAIN) { return .again }
        guard n > 0 else { return .ended }
        let bytes = UnsafeRawBufferPointer(rebasing: scratch[..<n])
        state.withLock { $0.buffer.append(bytes) }
        context.captured.increment(by: n)
        growPipe(afterReading: n)
        return spoolBytes(bytes) ? .more : .again
    }

    /// - Returns: false when the pipe is to be left alone for now.
    private func spoolBytes(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let spool, !capture.withLock({ $0.spoolOff }) else { return true }
        switch spool.append(bytes) {
        case .accepted: return true
        case .off:
            capture.withLock { $0.spoolOff = true }
            return true
        case .hold:
            let deadline: ContinuousClock.Instant? = capture.withLock {
                guard $0.heldSince == nil, $0.heldFor < ProcLimits.spoolPatience else { return nil }
                $0.heldSince = .now
                return .now + (ProcLimits.spoolPatience - $0.heldFor)
            }
            guard let deadline else { return true }
            context.reactor.pause(pipe)
            context.reactor.setDeadline(deadline, for: pipeToken)
            // The disk may have caught up, and said so, before the line above.
            if !spool.isHolding { wakeCapture() }
            return false
        }
    }

    private func wakeCapture() { context.reactor.setDeadline(.now, for: pipeToken) }

    /// Held up no longer: the disk caught up, or its time is over.
    fileprivate func captureDeadline() {
        let (wasHeld, exhausted) = capture.withLock { capture in
            guard let since = capture.heldSince else { return (false, false) }
            capture.heldSince = nil
            capture.heldFor += since.duration(to: .now)
            return (true, capture.heldFor >= ProcLimits.spoolPatience)
        }
        guard wasHeld else { return }
        if exhausted {
            capture.withLock { $0.spoolOff = true }
            spool?.giveUp("the disk was too slow")
        }
        context.reactor.resume(pipe, events: UInt32(WA_EPOLLIN), token: pipeToken)
    }

    /// A larger pipe saves context switches for a process that writes a lot; the memory is the
    /// user's and limited, so only such a process gets one.
    private func growPipe(afterReading n: Int) {
        let grow = capture.withLock { capture in
            if n >= 60 << 10 { capture.fullReads += 1 }
            guard !capture.grown, capture.fullReads >= 16 else { return false }
            capture.grown = true
            return true
        }
        if grow { _ = wa_set_pipe_size(pipe, 1 << 20) }
    }

    private func pipeEnded() {
        let wasOpen = state.withLock { state in
            defer { state.pipeOpen = false }
            return state.pipeOpen
        }
        guard wasOpen else { return }
        context.reactor.remove(pipe, token: pipeToken)
        close(pipe)
        finishSpoolIfDone()
    }

    /// Whatever the leader wrote is in the pipe by now, and belongs to the answer that says that it has exited. Not
    /// more than that: descendants may write for ever.
    private func readOwed(_ scratch: UnsafeMutableRawBufferPointer) {
        var owed = state.withLock { $0.pipeOpen } ? Int(wa_readable_bytes(pipe)) : 0
        while owed > 0 {
            let before = totalBytes
            let result = readOnce(scratch)
            owed -= totalBytes - before
            switch result {
            case .more: continue
            case .again: if totalBytes == before { return }
            case .ended: return pipeEnded()
            }
        }
    }

    private func ended(_ status: wa_exit, _ scratch: UnsafeMutableRawBufferPointer) {
        // A pipe that only the leader held is at its end now; no need to call that lingering.
        if state.withLock({ $0.pipeOpen }), capture.withLock({ $0.heldSince == nil }) { pipeReady(scratch) }
        let exit = makeExit(status)
        let waiters = state.withLock { state in
            state.exit = exit
            state.timeoutTask?.cancel()
            state.timeoutTask = nil
            defer { state.waiters = [] }
            return state.waiters
        }
        // First, so that those who learn of the end find the room and the count of it.
        context.onExit(self, exit)
        for waiter in waiters { waiter.fulfill() }
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
            maxRSSBytes: status.max_rss_bytes, wallSeconds: context.clock.wallSeconds())
    }

    private func finishSpoolIfDone() {
        let done = state.withLock { $0.exit != nil && !$0.pipeOpen }
        if done, let spool { context.spools?.finished(spool) }
    }

    /// Undoes a start whose watching failed. Blocks until the leader is dead. The reactor may read the pipe
    /// already, so it closes everything.
    func abandon() { child.abandon { [self] in pipeEnded() } }
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

// The reactor keeps its sources, and they the process, for as long as something can happen to it.

private final class PipeSource: ReactorSource {
    private let process: ManagedProcess
    init(_ process: ManagedProcess) { self.process = process }
    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) { process.pipeReady(scratch) }
    func deadlineReached() { process.captureDeadline() }
}
