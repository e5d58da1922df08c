import AgentCore
import NIOCore

// What those who follow the output, or type into the terminal, need of a process.
extension ManagedProcess {
    enum Look {
        case bytes(ByteBuffer)
        /// Memory has nothing before this offset.
        case older(than: Int)
        /// All is read; the follower is woken when there is more.
        case nothing
        case ended(Snapshot)
        /// The daemon is shutting down.
        case stopped
    }

    /// What memory has at an offset, which is at most the number of bytes written.
    func look(at offset: Int, for follower: OutputFollower) -> Look {
        state.withLock { state in
            guard offset >= state.buffer.total else {
                let count = ProcLimits.followBytes
                let bytes =
                    state.recent?.bytes(from: offset, atMost: count) ?? state.buffer.bytes(from: offset, atMost: count)
                if let bytes { return .bytes(bytes) }
                return .older(than: min(state.recent?.start ?? .max, state.buffer.tailStart))
            }
            if state.exit != nil { return .ended(state.snapshot) }
            if state.waitingOver { return .stopped }
            state.idleFollowers[ObjectIdentifier(follower)] = follower
            return .nothing
        }
    }

    func add(_ follower: OutputFollower) {
        state.withLock { state in
            state.followers += 1
            if state.recent == nil, state.exit == nil { state.recent = RecentOutput(from: state.buffer.total) }
        }
    }

    func remove(_ follower: OutputFollower) {
        state.withLock { state in
            state.followers -= 1
            // One that is about to look is woken at the end at the latest.
            state.idleFollowers[ObjectIdentifier(follower)] = nil
            if state.followers == 0, state.terminal == nil || state.exit != nil { state.recent = nil }
        }
    }

    /// Clients that follow the output.
    var followers: Int { state.withLock { $0.followers } }

    /// Where a viewer begins that comes later: as far back as ``ProcLimits/recentBytes`` reach, at a line's beginning.
    var replayStart: Int {
        state.withLock { state in
            let start = max(0, state.buffer.total - ProcLimits.recentBytes)
            guard start > 0, let bytes = state.recent?.bytes(from: start, atMost: ProcLimits.recentBytes) else {
                return start
            }
            let newline = bytes.readableBytesView.firstIndex(of: UInt8(ascii: "\n"))
            return newline.map { start + $0 - bytes.readerIndex + 1 } ?? start
        }
    }

    /// Has the terminal notify its programs of a new size.
    /// - Parameter clock: given when they shall draw their screens even if the size is the one they know: most do so only
    ///   when it changes, so for ``ProcLimits/redrawPause`` it does. The calling task may be cancelled meanwhile.
    /// - Returns: false when the process has no terminal.
    func resize(_ size: TerminalSize, redrawing clock: AgentClock? = nil) async -> Bool {
        let previous = state.withLock { state in
            defer { if state.terminal != nil { state.terminal = size } }
            return state.terminal
        }
        guard let previous else { return false }
        if let clock, previous == size {
            var other = size
            other.rows = size.rows == UInt16(ProcLimits.terminalLines.upperBound) ? size.rows - 1 : size.rows + 1
            input?.resize(other)
            try? await clock.sleep(ProcLimits.redrawPause)
        }
        // Another client may have named a size meanwhile.
        input?.resize(state.withLock { $0.terminal } ?? size)
        return true
    }
}
