import Glibc
import NIOCore
import Synchronization

/// The threads on which calls that may block (spawn, /proc, files) run, so that no event loop and
/// no cooperative thread ever waits for a disk or another process.
///
/// The first thread starts with the first call and stays. More start while calls wait, and end when
/// they have had nothing to do for a while: an idle daemon has few threads.
///
/// Calls that never return (a working directory on a dead NFS server) must not hold up all others: a
/// reserve of threads takes those that have waited for long. Calls that merely come faster than the
/// threads work them off get none of it, for more threads than cores would only slow them down.
///
/// Where the kernel refuses a thread, the pool goes on with those it has; without any, calls are refused at once.
public final class BlockingPool: Sendable {
    /// How long a thread that is not the only one waits for work.
    public static let idleSeconds = 10
    /// How long a call has waited when a thread of the reserve may take it, in milliseconds. It may take
    /// twice as long until one does.
    public static let patienceMilliseconds = 250
    /// How often in a row, ``patienceMilliseconds`` apart, the standby thread finds no call waiting before it ends.
    private static let quietLooks = 4

    /// What becomes of a call.
    private enum Verdict {
        case runs
        /// It was cancelled, or the pool is shut down.
        case ended
        case noThread
    }

    private struct Job: Sendable {
        var id: UInt64
        /// When it came; of no matter, 0, in a pool without reserve.
        var since: Int64
        var body: @Sendable (Verdict) -> Void
    }

    private struct State {
        var jobs = CircularBuffer<Job>()
        var threads = 0
        var idle = 0
        /// Whether a thread of the reserve looks for calls that have waited for long.
        var hasStandby = false
        /// Those that take calls.
        var workers: Int { threads - (hasStandby ? 1 : 0) }
        var nextID: UInt64 = 0
        var isShutDown = false
    }

    private enum Turn {
        case job(Job)
        case wait(seconds: Int?)
        case end(isLast: Bool)
    }

    private let name: String
    private let maximum: Int
    private let reserve: Int
    private let idleSeconds: Int
    private let patience: Int
    private let niceness: CInt
    private let start: @Sendable (_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool
    private let state = Mutex(State())
    private let semaphore = Semaphore()
    /// The last thread has ended after ``shutdown()``.
    private let ended = Promise<Void>()

    /// - Parameters:
    ///   - name: of the threads; at most 15 bytes are shown.
    ///   - threads: how many calls run at once, at least 1; more wait in order.
    ///   - reserve: how many more may run when calls have waited for long.
    ///   - patience: what long is, in milliseconds, at least 1.
    ///   - niceness: added to that of the process, 0...19: for threads that compute, so that they leave the cores to
    ///     the others.
    ///   - startsNow: begin with the first thread, so that there is one whatever the kernel refuses later.
    public convenience init(
        _ name: String = "blocking", threads: Int, reserve: Int = 0, idleSeconds: Int = BlockingPool.idleSeconds,
        patience: Int = BlockingPool.patienceMilliseconds, niceness: Int = 0, startsNow: Bool = false
    ) {
        self.init(
            name, threads: threads, reserve: reserve, idleSeconds: idleSeconds, patience: patience,
            niceness: niceness, startsNow: startsNow, start: startThread)
    }

    /// - Parameter start: ``startThread(_:_:)``, or what stands in for it in a test.
    init(
        _ name: String = "blocking", threads: Int, reserve: Int = 0, idleSeconds: Int = BlockingPool.idleSeconds,
        patience: Int = BlockingPool.patienceMilliseconds, niceness: Int = 0, startsNow: Bool = false,
        start: @escaping @Sendable (_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool
    ) {
        self.name = name
        self.idleSeconds = idleSeconds
        self.patience = max(1, patience)
        self.niceness = CInt(clamping: niceness)
        self.start = start
        maximum = max(1, threads)
        self.reserve = max(0, reserve)
        guard startsNow else { return }
        state.withLock { $0.threads = 1 }
        startWorker()
    }

    /// Threads that are there now.
    public var threads: Int { state.withLock { $0.threads } }

    /// Runs the call on a thread of the pool and returns or throws what it does.
    /// - Throws: `CancellationError` when the task is cancelled before the call begins, or after
    ///   ``shutdown()``; ``CoreError`` `.noThread`.
    public func run<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
        let id = state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                submit(id) { [name] in Self.finish(continuation, $0, name, body) }
            }
        } onCancel: {
            let job = state.withLock { state -> Job? in
                guard let index = state.jobs.firstIndex(where: { $0.id == id }) else { return nil }
                return state.jobs.remove(at: index)
            }
            job?.body(.ended)
        }
    }

    /// As ``run(_:)``, but what is begun is done even if the calling task is cancelled: for what must not be
    /// left undone, such as killing and cleaning up.
    public func runToEnd<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
        try await withCheckedThrowingContinuation { continuation in
            submit(0) { [name] in Self.finish(continuation, $0, name, body) }
        }
    }

    private static func finish<T: Sendable>(
        _ continuation: CheckedContinuation<T, any Error>, _ verdict: Verdict, _ name: String, _ body: () throws -> T
    ) {
        switch verdict {
        case .runs: continuation.resume(with: Result { try body() })
        case .ended: continuation.resume(throwing: CancellationError())
        case .noThread:
            continuation.resume(
                throwing: CoreError(
                    .noThread,
                    "the kernel refuses a thread (\(name)); end other processes of this user, or raise its limit of "
                        + "processes (ulimit -u) or the container's (pids.max)"))
        }
    }

    /// Has a thread of the pool run the body, in the order of the calls where there is one thread.
    /// - Parameter body: gets false, at once and on the caller's thread, after ``shutdown()``, and when the kernel
    ///   refuses the pool's only thread.
    public func submit(_ body: @escaping @Sendable (_ runs: Bool) -> Void) {
        submit(0) { (verdict: Verdict) in
            if case .runs = verdict { body(true) } else { body(false) }
        }
    }

    private func submit(_ id: UInt64, _ body: @escaping @Sendable (Verdict) -> Void) {
        enum Need { case nothing, wakeUp, thread, standby, refusal }
        let since = reserve > 0 ? Self.milliseconds : 0
        let need = state.withLock { state -> Need in
            // A cancellation before this point has found nothing to remove.
            if state.isShutDown || id != 0 && Task.isCancelled { return .refusal }
            state.jobs.append(Job(id: id, since: since, body: body))
            if state.jobs.count <= state.idle { return .wakeUp }
            // Those that work look for more before they rest.
            guard state.workers < maximum else { return wantsStandby(&state) ? .standby : .nothing }
            state.threads += 1
            return .thread
        }
        switch need {
        case .nothing: break
        case .wakeUp: semaphore.signal()
        case .thread: startWorker()
        case .standby: startStandby()
        case .refusal: body(.ended)
        }
    }

    /// Starts a thread that is counted already.
    private func startWorker() {
        let niceness = niceness
        let started = start(name) {
            if niceness != 0 { addNiceness(niceness) }
            self.work()
        }
        if !started { threadRefused { _ in } }
    }

    /// Without any thread, those that wait would do so until another call gets one.
    private func threadRefused(_ change: (inout State) -> Void) {
        let (refused, isLast) = state.withLock { state in
            state.threads -= 1
            change(&state)
            guard state.threads == 0 else { return (CircularBuffer<Job>(), false) }
            defer { state.jobs = [] }
            return (state.jobs, state.isShutDown)
        }
        for job in refused { job.body(.noThread) }
        if isLast { ended.fulfill() }
    }

    /// Counts a thread of the reserve as the standby thread, should there be one and none stands by.
    private func wantsStandby(_ state: inout State) -> Bool {
        guard !state.hasStandby, !state.isShutDown, state.threads < maximum + reserve else { return false }
        state.hasStandby = true
        state.threads += 1
        return true
    }

    private func startStandby() {
        let niceness = niceness
        let started = start(name) {
            if niceness != 0 { addNiceness(niceness) }
            self.standBy()
        }
        // The next call asks the kernel again.
        if !started { threadRefused { $0.hasStandby = false } }
    }

    private static var milliseconds: Int64 {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now)
        return Int64(now.tv_sec) * 1_000 + Int64(now.tv_nsec) / 1_000_000
    }

    /// Ends the threads when they are done with what they have begun; calls that wait are refused, and so
    /// are those after this.
    public func shutdown() async {
        let (jobs, threads) = state.withLock { state in
            state.isShutDown = true
            defer { state.jobs = [] }
            return (state.jobs, state.threads)
        }
        for job in jobs { job.body(.ended) }
        for _ in 0..<threads { semaphore.signal() }
        if threads > 0 { await ended.valueIgnoringCancellation }
    }

    // MARK: - On the pool's threads

    /// Looks for calls that have waited for long and becomes a thread like the others when there is one.
    private func standBy() {
        var quiet = 0
        while true {
            // Being woken would cost a context switch for each call.
            var time = timespec(tv_sec: patience / 1_000, tv_nsec: patience % 1_000 * 1_000_000)
            nanosleep(&time, nil)
            quiet += 1
            enum Turn { case look, work, workAndReplace, end }
            let turn = state.withLock { state -> Turn in
                // The one that works also knows how to end.
                if state.isShutDown {
                    state.hasStandby = false
                    return .work
                }
                if let first = state.jobs.first {
                    quiet = 0
                    guard Self.milliseconds - first.since >= Int64(patience), state.idle == 0 else { return .look }
                    state.hasStandby = false
                    return state.jobs.count > 1 && wantsStandby(&state) ? .workAndReplace : .work
                }
                guard quiet >= Self.quietLooks else { return .look }
                state.hasStandby = false
                state.threads -= 1
                return .end
            }
            switch turn {
            case .look: break
            case .end: return
            case .work: return work()
            case .workAndReplace:
                startStandby()
                return work()
            }
        }
    }

    private func work() {
        var rested = false
        while true {
            let waited = rested
            let turn = state.withLock { state -> Turn in
                if waited { state.idle -= 1 }
                if let job = state.jobs.popFirst() { return .job(job) }
                if state.isShutDown {
                    state.threads -= 1
                    return .end(isLast: state.threads == 0)
                }
                state.idle += 1
                return .wait(seconds: state.workers > 1 ? idleSeconds : nil)
            }
            switch turn {
            case .job(let job):
                rested = false
                job.body(.runs)
            case .end(let isLast):
                if isLast { ended.fulfill() }
                return
            case .wait(let seconds):
                rested = true
                guard !semaphore.wait(seconds: seconds) else { continue }
                let ends = state.withLock { state in
                    guard state.jobs.isEmpty, !state.isShutDown, state.workers > 1 else { return false }
                    state.idle -= 1
                    state.threads -= 1
                    return true
                }
                if ends { return }
            }
        }
    }
}

/// The C library's semaphore.
private final class Semaphore: Sendable {
    // The kernel orders what threads do with it; the pointer never changes.
    nonisolated(unsafe) private let semaphore = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)

    init() { sem_init(semaphore, 0, 0) }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    func signal() { sem_post(semaphore) }

    /// - Parameter seconds: nil waits for ever.
    /// - Returns: false when the time is over.
    func wait(seconds: Int?) -> Bool {
        guard let seconds else {
            while sem_wait(semaphore) != 0 {}
            return true
        }
        var deadline = timespec()
        clock_gettime(CLOCK_REALTIME, &deadline)
        deadline.tv_sec += seconds
        while sem_timedwait(semaphore, &deadline) != 0 {
            if errno != EINTR { return false }
        }
        return true
    }
}
