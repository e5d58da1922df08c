import AgentCore
import CPlatform
import Glibc

/// Receives the daemon's signals on the reactor's thread, and reaps children that nobody started:
/// orphans that the kernel gave us as PID 1 or subreaper. The exits of managed processes are left
/// to their owners.
public final class OrphanReaper: ReactorSource {
    private let signals: CInt
    private let reapsOrphans: Bool
    private let launcher: Launcher
    private let reactor: Reactor
    private let token: UInt64
    private let onSignal: @Sendable (CInt) -> Void

    /// - Parameters:
    ///   - signals: a signalfd for SIGCHLD and whatever else the daemon handles; closed by the caller.
    ///   - reapsOrphans: `--no-reap` makes it false.
    ///   - onSignal: called for each signal other than SIGCHLD, on the reactor's thread.
    public init(
        signals: CInt, reapsOrphans: Bool, launcher: Launcher, reactor: Reactor,
        onSignal: @escaping @Sendable (CInt) -> Void
    ) throws {
        self.signals = signals
        self.reapsOrphans = reapsOrphans
        self.launcher = launcher
        self.reactor = reactor
        self.onSignal = onSignal
        token = reactor.makeToken()
        try reactor.add(signals, events: UInt32(WA_EPOLLIN), token: token, self)
        reapSoon()
    }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) {
        var childExited = false
        while case let signal = wa_signalfd_next(signals), signal != 0 {
            if signal == SIGCHLD { childExited = true } else { onSignal(signal) }
        }
        if childExited { reap() }
    }

    func deadlineReached() { reap() }

    /// Looks again, on the reactor's thread: reaping by number is safe from one thread only.
    public func reapSoon() {
        guard reapsOrphans else { return }
        reactor.setDeadline(.now, for: token)
    }

    /// Several exits may be behind one SIGCHLD. The loop stops at a managed child, because a peek
    /// would show the same one again; the manager calls this after reaping it. On the reactor's
    /// thread alone.
    public func reap() {
        guard reapsOrphans else { return }
        while case let pid = wa_peek_exited_child(), pid > 0 {
            switch launcher.ownership(of: pid, retry: { [weak self] in self?.reapSoon() }) {
            case .orphan:
                launcher.endedSessions.orphanEnds(pid)
                _ = wa_reap_pid(pid)
            case .managed, .undecided: return
            }
        }
    }
}
