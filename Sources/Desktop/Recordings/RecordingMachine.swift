import AgentCore

/// The life of one recording, without I/O: what happened goes in, what to do comes out.
///
///     waiting ─► launching ─► starting ─► running ─► stopping ─► checking ─► over
///                   ▲ next recorder ┘         └ ended by itself ────┘
///
/// An event that does not fit the phase changes nothing and asks for nothing: signals, exits and
/// timers cross each other, and the one that came first has decided.
struct RecordingMachine: Sendable, Equatable {
    enum Phase: Sendable, Equatable {
        /// For the desktop.
        case waiting
        /// A recorder is being started.
        case launching
        /// It runs and has not written a frame.
        case starting
        case running
        /// It was told to end.
        case stopping
        /// It has ended; what it left is looked at.
        case checking
        case over(End)
    }

    enum End: Sendable, Equatable {
        /// There is a video.
        case finished
        /// There was one, but it cannot be used.
        case corrupted
        /// It never began.
        case failed
    }

    enum Action: Sendable, Equatable {
        case none
        /// Start the recorder of this number.
        case launch(Int)
        /// Tell who waits that it records.
        case ready
        /// Send SIGINT, and let the time for it begin.
        case interrupt
        /// Send SIGKILL.
        case kill
        /// Look whether the video is whole.
        case check
        /// Tell everybody that it is over.
        case end(End)
    }

    private(set) var phase = Phase.waiting
    /// The recorder ended although nobody had asked it to.
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
        // Told to end in between; should its time for that be over already, it gets no other one.
        case .stopping: return wasKilled ? .kill : .interrupt
        // Nobody waits for it any more, so nobody would end it.
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

    /// No frame within the time for it.
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

    /// It did not end within the time for it.
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
        // What a killed recorder leaves is never whole, whatever it looks like.
        case .stopping where wasKilled: return end(.corrupted)
        case .stopping:
            phase = .checking
            return .check
        case .waiting, .launching, .checking, .over: return .none
        }
    }

    mutating func checked(isWhole: Bool) -> Action {
        guard phase == .checking else { return .none }
        return end(isWhole ? .finished : .corrupted)
    }

    /// Nothing is waited for any more: not even SIGKILL ended it.
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
