/// Which desktop there is, without I/O: uses, ends and shutdown in; what is to be done out.
///
/// Each desktop has a generation, a number of its own, so that late news of an earlier one (its death, the
/// failure of its start) changes nothing for the present one.
struct SessionMachine: Equatable {
    enum Phase: Equatable {
        /// Nothing is up.
        case idle
        case starting(Int)
        case running(Int)
    }

    enum Use: Equatable {
        /// Start a desktop with this generation, and wait for it.
        case begin(Int)
        /// Wait for the start under way.
        case wait
        case use(Int)
        /// Shutdown has begun.
        case refuse
    }

    private(set) var phase = Phase.idle
    private(set) var isStopping = false
    private var generation = 0

    mutating func use() -> Use {
        guard !isStopping else { return .refuse }
        switch phase {
        case .idle:
            generation += 1
            phase = .starting(generation)
            return .begin(generation)
        case .starting: return .wait
        case .running(let generation): return .use(generation)
        }
    }

    /// The start succeeded.
    /// - Returns: false when nobody wants it any more, so that it must be stopped: shutdown began.
    mutating func started(_ generation: Int) -> Bool {
        guard phase == .starting(generation) else { return false }
        phase = isStopping ? .idle : .running(generation)
        return !isStopping
    }

    mutating func failed(_ generation: Int) {
        if phase == .starting(generation) { phase = .idle }
    }

    /// The desktop is gone, or answers no more.
    /// - Returns: whether that is news; otherwise somebody else saw it before.
    mutating func lost(_ generation: Int) -> Bool {
        guard phase == .running(generation) else { return false }
        phase = .idle
        return true
    }

    /// - Returns: what there is to be ended; a start under way ends by itself, with ``started(_:)`` or
    ///   ``failed(_:)``.
    mutating func shutdown() -> Phase {
        isStopping = true
        defer { if case .running = phase { phase = .idle } }
        return phase
    }
}
