/// How much may be on its way: slow start, CUBIC, and proportional rate reduction (RFC 6937) while losses are repaired.
struct CongestionControl: Sendable {
    enum Phase: Sendable {
        case open
        /// Losses are repaired until this number is acknowledged.
        case recovery(until: SequenceNumber)
        /// The same after a timeout.
        case timedOut(until: SequenceNumber)
    }

    /// Segments that a connection begins with (RFC 6928).
    static let firstSegments = 10

    private let mss: Int
    /// Bytes.
    private(set) var window: Int
    private(set) var threshold = Int.max / 4
    private(set) var phase = Phase.open
    private var cubic = Cubic()
    private var slowStart = SlowStart()
    /// The window with the fraction of a byte that CUBIC keeps.
    private var exact: Double
    private var before: (window: Int, threshold: Int, cubic: Cubic)?
    private var reduction: (delivered: Int, sent: Int, flight: Int) = (0, 0, 1)

    init(mss: Int) {
        self.mss = mss
        window = Self.firstSegments * mss
        exact = Double(window)
    }

    var isOpen: Bool { if case .open = phase { true } else { false } }
    var isInSlowStart: Bool { window < threshold }
    var repairsUntil: SequenceNumber? {
        switch phase {
        case .open: nil
        case .recovery(let until), .timedOut(let until): until
        }
    }

    // MARK: Losses

    private mutating func reduce(to window: Int, next: SequenceNumber, flight: Int) {
        before = (self.window, threshold, cubic)
        cubic.reduce(from: Double(self.window) / Double(mss))
        slowStart = SlowStart()
        threshold = max(2 * mss, Int(Double(max(flight, min(self.window, 2 * flight))) * Cubic.beta))
        set(window)
    }

    /// A loss was found, in the flight that ends at `next`.
    /// - Parameter flight: bytes in flight, with those now lost.
    mutating func enterRecovery(next: SequenceNumber, flight: Int) {
        guard isOpen else { return }
        reduce(to: window, next: next, flight: flight)
        reduction = (0, 0, max(1, flight))
        phase = .recovery(until: next)
    }

    /// The retransmission timer ran out.
    mutating func timedOut(next: SequenceNumber, flight: Int) {
        if isOpen {
            reduce(to: mss, next: next, flight: flight)
        } else {
            set(mss)
        }
        phase = .timedOut(until: next)
    }

    /// One loss that was repaired before it was found (RFC 8985, 7.4.2).
    mutating func reduceOnce(next: SequenceNumber, flight: Int) {
        guard isOpen else { return }
        reduce(to: window, next: next, flight: flight)
        before = nil
        set(min(window, threshold))
    }

    /// The loss was none: what was sent first had arrived.
    mutating func undo() {
        guard let before else { return }
        (threshold, cubic) = (before.threshold, before.cubic)
        set(max(window, before.window))
        self.before = nil
        phase = .open
    }

    /// The loss was one.
    mutating func confirm() { before = nil }

    var canUndo: Bool { before != nil }

    // MARK: Acknowledgments

    /// All that was sent before the loss is acknowledged.
    mutating func leaveRepair() {
        if case .recovery = phase { set(max(threshold, 2 * mss)) }
        phase = .open
        before = nil
    }

    /// Sets the window in recovery, after each acknowledgment (RFC 6937, 3).
    /// - Parameter delivered: bytes that arrived by this acknowledgment, in order or not.
    /// - Parameter inFlight: bytes in flight, without lost ones.
    mutating func proportion(delivered: Int, inFlight: Int, madeProgress: Bool) {
        reduction.delivered += delivered
        var more: Int
        if inFlight > threshold {
            let share = (Double(reduction.delivered) * Double(threshold) / Double(reduction.flight)).rounded(.up)
            more = Int(share) - reduction.sent
        } else {
            var limit = max(reduction.delivered - reduction.sent, delivered)
            if madeProgress { limit += mss }
            more = min(threshold - inFlight, limit)
        }
        // The first retransmission goes out in any case.
        more = max(more, reduction.sent == 0 ? mss : 0)
        set(inFlight + more)
    }

    /// Bytes were sent in recovery.
    mutating func sent(_ bytes: Int) { reduction.sent += bytes }

    /// Bytes were acknowledged in order.
    /// - Parameter isLimited: whether the window is what kept us from sending more.
    mutating func acknowledged(
        _ bytes: Int, upTo number: SequenceNumber, next: SequenceNumber, sample: Microseconds?,
        roundTrip: Microseconds, isLimited: Bool, now: Microseconds, most: Int
    ) {
        if case .recovery = phase { return }
        guard isLimited else { return cubic.pause() }
        if isInSlowStart {
            if let growth = slowStart.growth(acknowledged: bytes, upTo: number, next: next, sample: sample) {
                set(min(window + growth, most))
            } else {
                threshold = window
            }
        } else {
            let segment = Double(mss)
            let grown = cubic.window(
                exact / segment, acknowledged: Double(bytes) / segment, now: now, roundTrip: roundTrip)
            exact = min(grown * segment, Double(most))
            window = Int(exact)
        }
    }

    /// Nothing was sent for some retransmission timeouts: halve for each, down to where a connection begins.
    mutating func idled(timeouts: Int) {
        guard isOpen, timeouts > 0 else { return }
        threshold = max(threshold, window / 4 * 3)
        slowStart = SlowStart()
        set(max(min(window, Self.firstSegments * mss), window >> min(timeouts, 32)))
        cubic.pause()
    }

    private mutating func set(_ window: Int) {
        self.window = max(mss, window)
        exact = Double(self.window)
    }
}
