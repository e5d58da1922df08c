/// The states of one recording, without I/O: events in, actions out.
///
///     waiting ─► launching ─► starting ─► running ─► stopping ─► checking ─► over
///                   ▲ next recorder ┘         └ ended by itself ────┘
///
/// An event that does not fit the phase changes nothing and causes no action: signals, exits and timers cross each
/// other, and the first one decides.
struct RecordingMachine: Sendable, Equatable {
    enum Phase: Sendable, Equatable {
        /// Waits for the desktop.
        case waiting
        /// A recorder is being started.
        case launching
        /// It runs and has not written a frame.
        case starting
        case running
        /// SIGINT was sent, or will be once it is launched.
        case stopping
        /// It has ended; its files are checked.
        case checking
        case over(End)
    }

    enum End: Sendable, Equatable {
        /// There is a video.
        case finished
        /// There is one, but it is unusable.
        case corrupted
        /// It never began.
        case failed
    }

    enum Action: Sendable, Equatable {
        case none
        /// Start the recorder of this number.
        case launch(Int)
        /// Resume the callers that wait for its start.
        case ready
        /// Send SIGINT, and start the timer for it.
        case interrupt
        /// Send SIGKILL.
        case kill
        /// Check whether the video is complete.
        case check
        /// Resume all waiters: it is over.
        case end(End)
    }

    private(set) var phase = Phase.waiting
    /// The recorder ended without having been stopped.
    private(set) var endedByItself = false
    private(set) var wasKilled = false
    private var attempt = 0
    private var wasReady = false
    private var mayTryNext = true

    /// Whether a recorder runs or is about to.
    var isActive: Bool {
        switch phase {
        case .checking, .over: false
        default: true
        }
    }

    var isOver: Bool { if case .over = phase { true } else { false } }

    /// Whether `start` of the same recording has nothing to do.
    var isStartingOrRunning: Bool {
        switch phase {
        case .waiting, .launching, .starting, .running: true
        default: false
        }
    }

    /// The desktop is there.
    mutating func desktopReady() -> Action {
        guard phase == .waiting else { return .none }
        phase = .launching
        return .launch(attempt)
    }

    /// There is no desktop, or no recorder to try.
    mutating func cannotBegin() -> Action {
        guard phase == .waiting || phase == .launching else { return .none }
        return end(.failed)
    }

    mutating func launched() -> Action {
        switch phase {
        case .launching:
            phase = .starting
            return .none
        // Stopped while it was launched. When the time for that is up already, it is killed.
        case .stopping: return wasKilled ? .kill : .interrupt
        // Given up meanwhile; nothing else would end it.
        case .over: return .kill
        default: return .none
        }
    }

    /// - Parameter isLast: there is no further recorder to try.
    mutating func launchFailed(isLast: Bool) -> Action {
        switch phase {
        case .launching: return tryNext(isLast)
        case .stopping: return end(.failed)
        default: return .none
        }
    }

    mutating func firstFrame() -> Action {
        guard phase == .starting else { return .none }
        phase = .running
        wasReady = true
        return .ready
    }

    /// There was no frame in time.
    mutating func startTimedOut() -> Action {
        guard phase == .starting else { return .none }
        mayTryNext = false
        wasKilled = true
        return .kill
    }

    mutating func stop() -> Action {
        switch phase {
        case .waiting: return end(.failed)
        case .launching:
            phase = .stopping
            return .none
        case .starting, .running:
            phase = .stopping
            return .interrupt
        case .stopping, .checking, .over: return .none
        }
    }

    /// It did not end in time.
    mutating func stopTimedOut() -> Action {
        guard phase == .stopping, !wasKilled else { return .none }
        wasKilled = true
        return .kill
    }

    mutating func exited(isLast: Bool) -> Action {
        switch phase {
        case .starting: return tryNext(isLast)
        case .running:
            endedByItself = true
            phase = .checking
            return .check
        case .stopping where !wasReady: return end(.failed)
        // The video of a killed recorder is never complete, even if it looks so.
        case .stopping where wasKilled: return end(.corrupted)
        case .stopping:
            phase = .checking
            return .check
        case .waiting, .launching, .checking, .over: return .none
        }
    }

    mutating func checked(isComplete: Bool) -> Action {
        guard phase == .checking else { return .none }
        return end(isComplete ? .finished : .corrupted)
    }

    /// Not even SIGKILL ended it; shutdown waits no longer.
    mutating func giveUp() -> Action {
        guard !isOver else { return .none }
        return end(wasReady ? .corrupted : .failed)
    }

    private mutating func tryNext(_ isLast: Bool) -> Action {
        guard !isLast, mayTryNext else { return end(.failed) }
        attempt += 1
        phase = .launching
        return .launch(attempt)
    }

    private mutating func end(_ end: End) -> Action {
        phase = .over(end)
        return .end(end)
    }
}
