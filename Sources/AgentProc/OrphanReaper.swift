import CPlatform

/// Reaps children that the daemon did not start: orphans that the kernel gave it as PID 1 or subreaper. The exits
/// of managed processes are left to their owners.
public final class OrphanReaper: Sendable {
    private let isEnabled: Bool
    private let launcher: Launcher
    private let reactor: Reactor

    /// - Parameter isEnabled: `--no-reap` makes it false.
    public init(isEnabled: Bool, launcher: Launcher, reactor: Reactor) {
        self.isEnabled = isEnabled
        self.launcher = launcher
        self.reactor = reactor
        reapSoon()
    }

    /// Looks again, on the reactor's thread: reaping by number is safe from one thread only.
    private func reapSoon() { reactor.perform { [weak self] in self?.reap() } }

    /// Several exits may be behind one SIGCHLD. The loop stops at a managed child, because a peek
    /// would show the same one again; the manager calls this after reaping it. On the reactor's
    /// thread alone.
    public func reap() {
        guard isEnabled else { return }
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
