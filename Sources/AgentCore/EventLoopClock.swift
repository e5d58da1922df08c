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
        let loop = group.any()
        let promise = loop.makePromise(of: Void.self)
        let timer = loop.scheduleTask(in: TimeAmount(wait)) { promise.succeed() }
        try await withTaskCancellationHandler {
            try await promise.futureResult.get()
        } onCancel: {
            // Both may happen; the loop orders them and the second has no effect.
            loop.execute {
                timer.cancel()
                promise.fail(CancellationError())
            }
        }
    }
}
