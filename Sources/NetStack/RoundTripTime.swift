/// Round trip times and the retransmission timeout (RFC 6298), with the least round trip for RFC 8985.
struct RoundTripTime: Sendable {
    /// The bounds of the timeout (docs/contracts/tailnet.md#tcp).
    static let leastTimeout: Microseconds = 200_000
    static let firstTimeout: Microseconds = 1_000_000
    static let mostTimeout: Microseconds = 60_000_000
    /// How long the least round trip is remembered, at least.
    private static let leastWindow: Microseconds = 30_000_000

    /// nil before the first measurement.
    private(set) var smoothed: Microseconds?
    private var variation: Microseconds = 0
    /// Doublings since the last measurement or progress.
    var backoff = 0
    /// The least of this window of time, and of the one before.
    private var least: (current: Microseconds, previous: Microseconds) = (.never, .never)
    private var windowStart: Microseconds = 0

    /// The least round trip of the last 30 to 60 s; 0 when there is none.
    var minimum: Microseconds {
        let least = min(least.current, least.previous)
        return least == .never ? 0 : least
    }

    var timeout: Microseconds {
        let base = smoothed.map { max(Self.leastTimeout, $0 + max(1_000, 4 * variation)) } ?? Self.firstTimeout
        return min(Self.mostTimeout, base << Microseconds(min(backoff, 10)))
    }

    /// - Parameter isFirstOfRound: false for further samples of one round trip, which would let the estimate forget too
    ///   fast (RFC 7323, appendix G).
    mutating func add(_ sample: Microseconds, now: Microseconds, isFirstOfRound: Bool) {
        let sample = min(max(1, sample), Self.mostTimeout)
        if now - windowStart > Self.leastWindow {
            least = (sample, now - windowStart > 2 * Self.leastWindow ? .never : least.current)
            windowStart = now
        }
        least.current = min(least.current, sample)
        guard let old = smoothed else {
            smoothed = sample
            variation = sample / 2
            return
        }
        guard isFirstOfRound else { return }
        variation = (3 * variation + abs(old - sample)) / 4
        smoothed = (7 * old + sample) / 8
    }
}
