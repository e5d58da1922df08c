import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Something with a descriptor that the reactor watches.
protocol ReactorSource: AnyObject, Sendable {
    /// The descriptor is ready. Runs on the reactor's thread and must not block.
    /// - Parameter scratch: memory that the source may use until it returns.
    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer)
    /// The time given to ``Reactor/setDeadline(_:for:)`` has come.
    func deadlineReached()
}

extension ReactorSource {
    func deadlineReached() {}
}

/// One thread and one epoll set for all pipes and pidfds: any number of processes costs one thread.
public final class Reactor: Sendable {
    /// Bytes read from a pipe at once; the buffer is shared by all sources.
    static let scratchBytes = 256 << 10

    private struct Table {
        var next: UInt64 = 1
        var sources: [UInt64: any ReactorSource] = [:]
        var deadlines: [UInt64: ContinuousClock.Instant] = [:]
        var work: [@Sendable () -> Void] = []
        var stopping = false
        var running = false
        /// The thread, once it runs. What it asks for itself needs no signal: it looks before it waits.
        var thread: pthread_t?
        var isOwnThread: Bool { thread.map { pthread_equal($0, pthread_self()) != 0 } ?? false }
    }

    private let epoll: CInt
    private let wake: CInt
    private let table = Mutex(Table())
    private let stopped = Promise<Void>()

    public init() throws {
        epoll = wa_epoll_create()
        guard epoll >= 0 else { throw CoreError.system(epoll, "cannot create an epoll set") }
        wake = wa_eventfd()
        guard wake >= 0 else {
            close(epoll)
            throw CoreError.system(wake, "cannot create an eventfd")
        }
        let rc = wa_epoll_add(epoll, wake, UInt32(WA_EPOLLIN), 0)
        guard rc == 0 else { throw CoreError.system(rc, "cannot watch an eventfd") }
    }

    deinit {
        close(wake)
        close(epoll)
    }

    /// Starts the thread.
    /// - Returns: false when the kernel refuses one.
    public func start() -> Bool {
        table.withLock { $0.running = true }
        let started = startThread("proc-reactor") { [self] in loop() }
        if !started { table.withLock { $0.running = false } }
        return started
    }

    /// Ends the thread; returns when it has ended.
    public func stop() async {
        let running = table.withLock { table in
            table.stopping = true
            return table.running
        }
        guard running else { return }
        wa_eventfd_signal(wake)
        await stopped.valueIgnoringCancellation
    }

    /// A name for a descriptor that is about to be added. Taken beforehand, because the source may be
    /// called before ``add(_:events:token:_:)`` returns.
    func makeToken() -> UInt64 {
        table.withLock { table in
            defer { table.next += 1 }
            return table.next
        }
    }

    /// Watches a descriptor until it is removed. The source keeps ownership of the descriptor.
    func add(_ descriptor: CInt, events: UInt32, token: UInt64, _ source: any ReactorSource) throws {
        table.withLock { $0.sources[token] = source }
        let rc = wa_epoll_add(epoll, descriptor, events, token)
        guard rc == 0 else {
            table.withLock { _ = $0.sources.removeValue(forKey: token) }
            throw CoreError.system(rc, "cannot watch a descriptor")
        }
    }

    /// Forgets a descriptor, which is still open.
    func remove(_ descriptor: CInt, token: UInt64) {
        _ = wa_epoll_remove(epoll, descriptor)
        table.withLock {
            $0.sources[token] = nil
            $0.deadlines[token] = nil
        }
    }

    /// Stops reporting a descriptor without forgetting its source.
    func pause(_ descriptor: CInt) { _ = wa_epoll_remove(epoll, descriptor) }

    func resume(_ descriptor: CInt, events: UInt32, token: UInt64) {
        _ = wa_epoll_add(epoll, descriptor, events, token)
    }

    /// Has ``ReactorSource/deadlineReached()`` called then; nil takes it back.
    func setDeadline(_ deadline: ContinuousClock.Instant?, for token: UInt64) {
        let isNews = table.withLock { table in
            // A forgotten source's deadline would stay for ever.
            guard table.sources[token] != nil else { return false }
            table.deadlines[token] = deadline
            return deadline != nil && !table.isOwnThread
        }
        if isNews { wa_eventfd_signal(wake) }
    }

    /// Has the reactor's thread do something between its reports; without that thread it is done here.
    /// - Parameter work: must not block.
    public func perform(_ work: @escaping @Sendable () -> Void) {
        let (taken, isNews) = table.withLock { table in
            if table.running { table.work.append(work) }
            return (table.running, !table.isOwnThread)
        }
        guard taken else { return work() }
        if isNews { wa_eventfd_signal(wake) }
    }

    private func loop() {
        let scratch = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.scratchBytes, alignment: 16)
        defer { scratch.deallocate() }
        table.withLock { $0.thread = pthread_self() }
        var events = [wa_event](repeating: wa_event(), count: 64)
        while true {
            let count = events.withUnsafeMutableBufferPointer {
                wa_epoll_wait(epoll, $0.baseAddress, CInt($0.count), waitMilliseconds())
            }
            for event in events.prefix(Int(max(count, 0))) {
                if event.token == 0 {
                    wa_eventfd_drain(wake)
                    continue
                }
                let source = table.withLock { $0.sources[event.token] }
                source?.ready(events: event.events, scratch: scratch)
            }
            for source in dueSources() { source.deadlineReached() }
            for work in takeWork() { work() }
            if finishIfStopping() { return }
        }
    }

    private func waitMilliseconds() -> CInt {
        let (next, hasWork) = table.withLock { ($0.deadlines.values.min(), !$0.work.isEmpty) }
        guard !hasWork else { return 0 }
        guard let next else { return -1 }
        let wait = ContinuousClock.now.duration(to: next)
        guard wait > .zero else { return 0 }
        let (seconds, attoseconds) = wait.components
        return CInt(clamping: seconds * 1000 + attoseconds / 1_000_000_000_000_000 + 1)
    }

    private func dueSources() -> [any ReactorSource] {
        table.withLock { table in
            guard !table.deadlines.isEmpty else { return [] }
            let now = ContinuousClock.now
            let due = table.deadlines.filter { $0.value <= now }.keys
            for token in due { table.deadlines[token] = nil }
            return due.compactMap { table.sources[$0] }
        }
    }

    private func takeWork() -> [@Sendable () -> Void] {
        table.withLock { table in
            defer { table.work = [] }
            return table.work
        }
    }

    private func finishIfStopping() -> Bool {
        let isOver = table.withLock { table in
            guard table.stopping, table.work.isEmpty else { return false }
            table.running = false
            table.thread = nil
            table.sources = [:]
            return true
        }
        if isOver { stopped.fulfill() }
        return isOver
    }
}
