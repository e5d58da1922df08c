/// How many bytes may be sent: so many a second, and a burst at once.
struct TokenBucket: Sendable {
    private let perSecond: Double
    private let burst: Double
    private var tokens: Double
    private var filled: Duration

    /// - Parameters:
    ///   - perSecond: above 0.
    ///   - burst: raised to ``DERPLimits/leastBurst``, or a packet could never be sent.
    init(perSecond: Double, burst: Double, now: Duration) {
        self.perSecond = perSecond
        self.burst = max(burst, Double(DERPLimits.leastBurst))
        tokens = self.burst
        filled = now
    }

    /// Whether that many bytes may be sent now; takes them if so.
    mutating func take(_ count: Int, now: Duration) -> Bool {
        if now > filled {
            tokens = min(burst, tokens + (now - filled).inSeconds * perSecond)
            filled = now
        }
        guard tokens >= Double(count) else { return false }
        tokens -= Double(count)
        return true
    }
}

extension Duration {
    var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) * 1e-18 }
}
