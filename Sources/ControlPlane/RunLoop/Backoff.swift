/// How long to wait before the next attempt: exponential from 100 ms to 10 s, doubled each time, with
/// full jitter (docs/contracts/control-plane.md#run-loop).
package struct Backoff: Sendable, Equatable {
    /// The first window, and the one after a connection that lived for ``settled``.
    package static let floor = Duration.milliseconds(100)
    /// The largest window, and the whole wait after a permanent refusal.
    package static let ceiling = Duration.seconds(10)
    /// A connection that lived so long was a good one.
    package static let settled = Duration.seconds(30)

    /// The window that the next wait is drawn from.
    private(set) var window = Backoff.floor

    package init() {}

    /// - Parameters:
    ///   - lived: how long the connection that just ended was there; zero when there was none.
    ///   - permanent: whether it was a refusal that another attempt will hardly change. It waits for
    ///     the whole ceiling: jitter would only make some of those useless attempts come sooner.
    ///   - fraction: drawn evenly from 0 to 1; taken for the nearer end when it is outside.
    package mutating func next(lived: Duration = .zero, permanent: Bool = false, fraction: Double) -> Duration {
        if permanent {
            window = Self.ceiling
            return Self.ceiling
        }
        if lived >= Self.settled { window = Self.floor }
        defer { window = min(window * 2, Self.ceiling) }
        return window * (fraction >= 0 ? min(fraction, 1) : 0)
    }
}
