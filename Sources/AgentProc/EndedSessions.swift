import Glibc
import Synchronization

/// The sessions of ours whose leaders were reaped. Something of them may still run, which shutdown ends.
final class EndedSessions: Sendable {
    private struct State {
        var sessions: [pid_t: OwnSession] = [:]
        /// How many there may be before the empty ones are looked for.
        var sweepAt = ProcLimits.endedSessionsSwept
    }

    private let processes: SessionProcesses
    private let state = Mutex(State())

    init(_ processes: SessionProcesses = SessionProcesses()) { self.processes = processes }

    var all: [OwnSession] { state.withLock { Array($0.sessions.values) } }

    /// The session's leader was reaped. Beyond ``ProcLimits/endedSessions`` the one goes that nothing was
    /// seen of for longest.
    func add(_ session: OwnSession) {
        state.withLock { state in
            if state.sessions.count >= ProcLimits.endedSessions,
                let oldest = state.sessions.values.min(by: { $0.certainUntil < $1.certainUntil })
            {
                state.sessions[oldest.number] = nil
            }
            state.sessions[session.number] = session
        }
    }

    /// A new process got the number, so nothing is left of the session that had it.
    func numberWasGivenOut(_ number: pid_t) { state.withLock { $0.sessions[number] = nil } }

    /// An orphan that has ended is about to be reaped.
    func orphanEnds(_ pid: pid_t) {
        guard state.withLock({ !$0.sessions.isEmpty }) else { return }
        let now = SessionProcesses.now()
        guard let orphan = processes.identity(pid) else { return }
        _ = state.withLock { $0.sessions[orphan.session] }?.own([orphan], since: now) { _ in true }
    }

    /// Forgets the sessions that nothing is left of, once there are many. Blocks: looks through /proc.
    func sweep() {
        let candidates = state.withLock { state -> [OwnSession] in
            guard state.sessions.count >= state.sweepAt else { return [] }
            // Not twice at once.
            state.sweepAt = .max
            return Array(state.sessions.values)
        }
        guard !candidates.isEmpty else { return }
        let living = Set(processes.members(of: candidates).map(\.session))
        state.withLock { state in
            for session in candidates where !living.contains(session.number) {
                if state.sessions[session.number] === session { state.sessions[session.number] = nil }
            }
            state.sweepAt = state.sessions.count + ProcLimits.endedSessionsSwept
        }
    }
}
