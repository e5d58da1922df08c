import AgentCore
import CPlatform
import DequeModule
import Glibc
import Synchronization

/// The jobs and probes for a connection's thread, and what that thread publishes. The thread sleeps in poll()
/// on the server's socket and on ``wakeDescriptor``.
final class RFBInbox: Sendable {
    typealias Answer = CheckedContinuation<ActionResult, any Error>

    enum Work: Sendable {
        case action(DriverAction, CoordinateSpace)
        /// Takes over the pointer from a viewer that disconnected.
        case viewerLeft
        case releaseAll
    }

    struct Job: Sendable {
        var id: UInt64
        var work: Work
        fileprivate var answer: Answer
    }

    struct Probe: Sendable {
        var id: UInt64
        var deadline: ContinuousClock.Instant
    }

    private struct State {
        var nextID: UInt64 = 0
        var queue = Deque<Job>()
        var current: UInt64?
        /// Why the current job has to end early.
        var interruption: (any Error)?
        /// Ids that were cancelled before they were submitted.
        var cancelled: Set<UInt64> = []
        var newProbes: [Probe] = []
        var probes: [UInt64: CheckedContinuation<Void, any Error>] = [:]
        var isClosing = false
        /// Set once the thread has ended the connection.
        var end: DesktopError?
        var size: DesktopSize
        var positionIsUncertain = true
        var viewers = ViewerPointers()
    }

    /// What the bridged viewers do with the pointer.
    struct ViewerPointers: Sendable {
        var connected = 0
        /// How many hold a button.
        var holding = 0
        /// How often one of them began to.
        var presses: UInt64 = 0
        /// Whether one sent events, which may have used up spare keycodes.
        var sentInput = false
    }

    private let state: Mutex<State>
    private let over = Promise<Void>()
    /// An eventfd.
    let wakeDescriptor: CInt

    /// nil when the kernel has no descriptor left.
    init?() {
        let descriptor = wa_eventfd()
        guard descriptor >= 0 else { return nil }
        wakeDescriptor = descriptor
        state = Mutex(State(size: DesktopSize(width: 1, height: 1)))
    }

    deinit { Glibc.close(wakeDescriptor) }

    func wake() { wa_eventfd_signal(wakeDescriptor) }

    // MARK: From outside

    func newID() -> UInt64 {
        state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
    }

    /// Every job is answered exactly once.
    /// - Parameter first: before all waiting jobs; the running one ends early.
    func submit(_ id: UInt64, _ work: Work, _ answer: Answer, first: Bool = false) {
        let refusal = state.withLock { state -> (any Error)? in
            if let end = state.end { return end }
            if state.isClosing { return Self.closed }
            if state.cancelled.remove(id) != nil { return CancellationError() }
            let job = Job(id: id, work: work, answer: answer)
            if first {
                if state.current != nil { state.interruption = Self.released }
                state.queue.prepend(job)
                return nil
            }
            guard state.queue.count < DesktopLimits.queuedActions else {
                return DesktopError(.tooMany, "Too many actions wait for the desktop.")
            }
            state.queue.append(job)
            return nil
        }
        if let refusal { return answer.resume(throwing: refusal) }
        wake()
    }

    /// Ends a job: waiting, running, or not submitted yet.
    func cancel(_ id: UInt64) {
        let job = state.withLock { state -> Job? in
            if let index = state.queue.firstIndex(where: { $0.id == id }) { return state.queue.remove(at: index) }
            if state.current == id {
                state.interruption = CancellationError()
            } else if state.end == nil {
                state.cancelled.insert(id)
            }
            return nil
        }
        if let job { return job.answer.resume(throwing: CancellationError()) }
        wake()
    }

    /// To be called when the job is answered: drops the mark of a cancellation that came too late.
    func forget(_ id: UInt64) { state.withLock { _ = $0.cancelled.remove(id) } }

    func submitProbe(_ probe: Probe, _ answer: CheckedContinuation<Void, any Error>) {
        let refusal = state.withLock { state -> (any Error)? in
            if let end = state.end { return end }
            if state.isClosing { return Self.closed }
            if state.cancelled.remove(probe.id) != nil { return CancellationError() }
            state.newProbes.append(probe)
            state.probes[probe.id] = answer
            return nil
        }
        if let refusal { return answer.resume(throwing: refusal) }
        wake()
    }

    func cancelProbe(_ id: UInt64) {
        let answer = state.withLock { state in
            let answer = state.probes.removeValue(forKey: id)
            if answer == nil && state.end == nil { state.cancelled.insert(id) }
            return answer
        }
        answer?.resume(throwing: CancellationError())
    }

    func close() { state.withLock { $0.isClosing = true }; wake() }

    /// Returns when the thread has ended.
    func ended() async { await over.valueIgnoringCancellation }

    func updateViewers(_ change: (inout ViewerPointers) -> Void) {
        state.withLock { state in
            change(&state.viewers)
            state.positionIsUncertain = true
        }
        wake()
    }

    var viewers: ViewerPointers { state.withLock { $0.viewers } }

    var size: DesktopSize { state.withLock { $0.size } }
    var isAlive: Bool { state.withLock { $0.end == nil && !$0.isClosing } }

    // MARK: From the connection's thread

    /// Whether ``next()`` has a job.
    var hasJob: Bool { state.withLock { !$0.queue.isEmpty } }

    func next() -> Job? {
        state.withLock { state in
            let job = state.queue.popFirst()
            state.current = job?.id
            state.interruption = nil
            return job
        }
    }

    func finish(_ job: Job, _ result: Result<ActionResult, any Error>) {
        state.withLock { state in
            state.current = nil
            state.interruption = nil
        }
        job.answer.resume(with: result)
    }

    /// - Throws: why the running job must end early.
    func checkInterruption() throws {
        let why = state.withLock { state -> (any Error)? in
            state.isClosing ? Self.closed : state.interruption
        }
        if let why { throw why }
    }

    func takeProbes() -> [Probe] {
        state.withLock { state in
            let probes = state.newProbes
            state.newProbes = []
            return probes
        }
    }

    func answerProbe(_ id: UInt64, _ result: Result<Void, any Error>) {
        state.withLock { $0.probes.removeValue(forKey: id) }?.resume(with: result)
    }

    var isClosing: Bool { state.withLock { $0.isClosing } }

    func setSize(_ size: DesktopSize) { state.withLock { $0.size = size } }

    /// Whether the pointer's position has to be queried; true at first, and while viewers are connected.
    var positionIsUncertain: Bool {
        get { state.withLock { $0.positionIsUncertain || $0.viewers.connected > 0 } }
        set { state.withLock { $0.positionIsUncertain = newValue } }
    }

    /// The connection has ended: waiting and later callers get the error.
    func end(_ error: DesktopError) {
        let (jobs, probes) = state.withLock { state in
            if state.end == nil { state.end = error }
            defer {
                state.queue = []
                state.probes = [:]
                state.newProbes = []
                state.cancelled = []
            }
            return (Array(state.queue), Array(state.probes.values))
        }
        for job in jobs { job.answer.resume(throwing: error) }
        for probe in probes { probe.resume(throwing: error) }
    }

    /// The thread's last call.
    func finish() { over.fulfill() }

    static let closed = DesktopError(.connectionLost, "The connection to the desktop was closed.")
    private static let released = DesktopError(
        .failed, "The action was ended because all keys and buttons are being released.")
}
