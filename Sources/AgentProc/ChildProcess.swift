import AgentCore
import CPlatform
import Glibc
import Synchronization

/// A started program whose end the reactor watches: it reaps the leader and closes the pidfd, each once.
final class ChildProcess: ReactorSource {
    private struct State {
        var beforeReaping: (@Sendable (UnsafeMutableRawBufferPointer) -> Void)?
        var onExit: (@Sendable (wa_exit, UnsafeMutableRawBufferPointer) -> Void)?
        /// The pidfd is closed; its number may be another descriptor's.
        var isReleased = false
    }

    var pid: pid_t { process.pid }
    var session: OwnSession { process.session }
    var borrowedBytes: Int64? { process.borrowedBytes }
    private let process: LaunchedProcess
    private let launcher: Launcher
    private let reactor: Reactor
    private let token: UInt64
    private let state = Mutex(State())

    init(_ process: LaunchedProcess, _ launcher: Launcher, _ reactor: Reactor) {
        self.process = process
        self.launcher = launcher
        self.reactor = reactor
        token = reactor.makeToken()
    }

    /// Begins to watch. Both closures are called on the reactor's thread, at most once, with memory that they may
    /// use until they return, and released after the end.
    /// - Parameters:
    ///   - beforeReaping: the leader has ended; its number is not free yet.
    ///   - onExit: the leader is reaped.
    func watch(
        beforeReaping: (@Sendable (UnsafeMutableRawBufferPointer) -> Void)? = nil,
        onExit: @escaping @Sendable (wa_exit, UnsafeMutableRawBufferPointer) -> Void
    ) throws {
        state.withLock { state in
            state.beforeReaping = beforeReaping
            state.onExit = onExit
        }
        try reactor.add(process.pidfd, events: UInt32(WA_EPOLLIN), token: token, self)
    }

    /// Signals the leader, unless it was reaped.
    func signal(_ number: CInt) {
        // Under the lock, so that the descriptor isn't closed meanwhile; the call doesn't block.
        state.withLock { if !$0.isReleased { _ = wa_pidfd_send_signal(process.pidfd, number) } }
    }

    /// Undoes a start whose watching failed. Blocks until the leader is dead.
    /// - Parameter then: called on the reactor's thread, which may have begun to read what belongs to the program.
    func abandon(then: @escaping @Sendable () -> Void = {}) {
        launcher.discard(process)
        reactor.perform { [self] in
            release()
            then()
        }
    }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) {
        let (beforeReaping, onExit) = state.withLock { ($0.beforeReaping, $0.onExit) }
        beforeReaping?(scratch)
        var status = wa_exit()
        let reaped = launcher.reap(process, &status)
        guard reaped != 0 else { return }
        // Something else in this process waited for it. It is gone all the same, and leaving its pidfd in the
        // set would spin.
        if reaped < 0 { status.status = 255 }
        release()
        onExit?(status, scratch)
    }

    private func release() {
        reactor.remove(process.pidfd, token: token)
        state.withLock { state in
            state = State(isReleased: true)
            close(process.pidfd)
        }
    }
}

extension CommandExit {
    init(_ status: wa_exit) { self = status.signaled ? .signalled(status.status) : .exited(status.status) }
}
