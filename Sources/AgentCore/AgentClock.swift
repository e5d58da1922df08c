import Glibc

/// Time as capabilities see it: monotonic time and sleeps from one injected clock, and the wall
/// clock for timestamps. Tests pass a clock that they move themselves.
public struct AgentClock: Sendable {
    /// Time since the clock was made; never goes back.
    public let now: @Sendable () -> Duration
    /// Waits; throws when the task is cancelled.
    public let sleep: @Sendable (Duration) async throws -> Void
    /// Calls the closure once when the time is over; what it returns takes that back. Cheaper than a task that sleeps.
    public let after: @Sendable (Duration, @escaping @Sendable () -> Void) -> @Sendable () -> Void
    /// Seconds since 1970.
    public let wallSeconds: @Sendable () -> Int64

    public init<C: Clock>(
        _ clock: C, wallSeconds: @escaping @Sendable () -> Int64 = { Int64(Glibc.time(nil)) }
    ) where C.Duration == Duration {
        let origin = clock.now
        now = { origin.duration(to: clock.now) }
        sleep = { try await clock.sleep(for: $0) }
        if let clock = clock as? EventLoopClock {
            after = clock.after
        } else {
            after = { wait, body in
                let timer = Task { if (try? await clock.sleep(for: wait)) != nil { body() } }
                return { timer.cancel() }
            }
        }
        self.wallSeconds = wallSeconds
    }
}
