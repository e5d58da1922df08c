import NIOCore

/// The daemon's clock: monotonic time, whose sleeps are timers of an event loop.
///
/// `ContinuousClock` would start Dispatch's timer threads for the first sleep; the loops exist
/// anyway and a timer there costs no thread.
public struct EventLoopClock: Clock {
    public typealias Duration = Swift.Duration
    public typealias Instant = ContinuousClock.Instant

    private let group: any EventLoopGroup

    public init(group: any EventLoopGroup) { self.group = group }

    public var now: Instant { .now }
    public var minimumResolution: Duration { .nanoseconds(1) }

    public func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        let wait = now.duration(to: deadline)
        guard wait > .zero else {
            try Task.checkCancellation()
            return
        }
        let over = Promise<Void>()
        let cancel = after(wait) { over.fulfill() }
        defer { cancel() }
        try await over.valueUnlessCancelled()
    }

    /// As ``AgentClock/after``, on the caller's event loop where it is one of the group; another one is woken to note
    /// the time. Taking it back wakes none.
    func after(_ wait: Duration, _ body: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        // Fails on a loop that has ended, where nothing can wait any more.
        guard let timer = try? group.any().scheduleCallback(in: TimeAmount(wait), handler: Timer(fire: body)) else {
            return {}
        }
        return { timer.cancel() }
    }

    private struct Timer: NIOScheduledCallbackHandler {
        let fire: @Sendable () -> Void
        func handleScheduledCallback(eventLoop: some EventLoop) { fire() }
    }
}
