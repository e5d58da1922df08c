import Glibc

/// The window's growth after a loss: CUBIC (RFC 9438). Windows are in segments here.
struct Cubic: Sendable {
    static let beta = 0.7
    private static let c = 0.4

    /// The window at the last loss.
    private var lastMaximum = 0.0
    private var beforeLoss = 0.0
    private var epoch: Microseconds = .never
    private var k = 0.0
    /// What Reno's window would be.
    private var estimate = 0.0

    /// A loss was seen at this window.
    mutating func reduce(from window: Double) {
        // Fast convergence (4.7).
        lastMaximum = window < lastMaximum ? window * (1 + Self.beta) / 2 : window
        beforeLoss = window
        epoch = .never
    }

    /// Time in which the window isn't what limits does not count (5.8).
    mutating func pause() { epoch = .never }

    /// The window after so many segments were acknowledged in congestion avoidance.
    mutating func window(_ window: Double, acknowledged: Double, now: Microseconds, roundTrip: Microseconds) -> Double {
        if epoch == .never {
            epoch = now
            k = lastMaximum > window ? cbrt((lastMaximum - window) / Self.c) : 0
            if lastMaximum < window { lastMaximum = window }
            estimate = window
        }
        let time = Double(now - epoch) / 1e6
        // Reno's pace, made as fair as a reduction to 0.7 allows (4.3).
        let alpha = estimate >= beforeLoss ? 1 : 3 * (1 - Self.beta) / (1 + Self.beta)
        estimate += alpha * acknowledged / window
        if cubic(time) < estimate { return max(window, estimate) }
        let target = min(max(cubic(time + Double(roundTrip) / 1e6), window), 1.5 * window)
        return window + (target - window) / window * acknowledged
    }

    private func cubic(_ time: Double) -> Double {
        let distance = time - k
        return Self.c * distance * distance * distance + lastMaximum
    }
}
