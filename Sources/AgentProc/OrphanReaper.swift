import CPlatform
import Synchronization

/// Reaps children that the daemon did not start: orphans that the kernel gave it as PID 1 or subreaper. The exits
/// of managed processes are left to their owners.
public final class OrphanReaper: Sendable {
    private let isEnabled: Bool
    private let launcher: Launcher
    private let reactor: Reactor
    /// A look ended at a managed child, which may hide orphans.
    private let isBlocked = Atomic(false)

    /// - Parameter isEnabled: `--no-reap` makes it false.
    public init(isEnabled: Bool, launcher: Launcher, reactor: Reactor) {
        self.isEnabled = isEnabled
        self.launcher = launcher
        self.reactor = reactor
        reapSoon()
    }

    /// A SIGCHLD arrived. Several exits may be behind one, so what it says of the child does not matter. Most are of
    /// managed children; their owners get reports that the reactor took at the same time, and come first.
    func childExited() { if isEnabled { reapSoon() } }

    /// The owner of a managed child has reaped it.
    public func managedChildReaped() { if isBlocked.load(ordering: .relaxed) { reapSoon() } }

    /// Looks on the reactor's thread, after its present reports: reaping by number is safe from one thread only.
    private func reapSoon() { reactor.perform { [weak self] in self?.reap() } }

    /// Stops at a managed child, because a peek would show the same one again.
    private func reap() {
        guard isEnabled else { return }
        isBlocked.store(false, ordering: .relaxed)
        while case let pid = wa_peek_exited_child(), pid > 0 {
            switch launcher.ownership(of: pid, retry: { [weak self] in self?.reapSoon() }) {
            case .orphan:
                launcher.endedSessions.orphanEnds(pid)
                _ = wa_reap_pid(pid)
            case .managed: return isBlocked.store(true, ordering: .relaxed)
            case .undecided: return
            }
        }
    }
}
