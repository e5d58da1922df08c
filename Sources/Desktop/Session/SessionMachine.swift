/// The state of the desktop, without I/O: uses, ends and shutdown in; what to do out.
///
/// Each desktop has a generation, a unique number, so that a late event of an earlier one (its death, the failure
/// of its start) changes nothing for the present one.
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
    /// - Returns: false when shutdown has begun, so that the desktop must be stopped.
    mutating func started(_ generation: Int) -> Bool {
        guard phase == .starting(generation) else { return false }
        phase = isStopping ? .idle : .running(generation)
        return !isStopping
    }

    mutating func failed(_ generation: Int) {
        if phase == .starting(generation) { phase = .idle }
    }

    /// The desktop has died, or does not answer.
    /// - Returns: false when that was reported before.
    mutating func lost(_ generation: Int) -> Bool {
        guard phase == .running(generation) else { return false }
        phase = .idle
        return true
    }

    /// - Returns: the phase before; a start under way ends with ``started(_:)`` or ``failed(_:)``.
    mutating func shutdown() -> Phase {
        isStopping = true
        defer { if case .running = phase { phase = .idle } }
        return phase
    }
}
