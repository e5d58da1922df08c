import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Starts the daemon's helpers over its one launcher and reaps them on the reactor's thread.
public final class WorkerProcesses: WorkerLauncher {
    private let launcher: Launcher
    private let reactor: Reactor

    public init(launcher: Launcher, reactor: Reactor) {
        self.launcher = launcher
        self.reactor = reactor
    }

    public func startWorker(
        _ command: Command, onExit: @escaping @Sendable (CommandExit) -> Void
    ) throws -> StartedWorker {
        var ends: (CInt, CInt) = (-1, -1)
        let rc = withUnsafeMutablePointer(to: &ends) {
            $0.withMemoryRebound(to: CInt.self, capacity: 2) { wa_socketpair($0) }
        }
        guard rc == 0 else { throw CoreError.system(rc, "cannot create a socket pair") }
        defer { close(ends.1) }
        let nowhere = wa_open("/dev/null", O_WRONLY, 0)
        defer { if nowhere >= 0 { close(nowhere) } }
        let process: LaunchedProcess
        do {
            process = try launcher.launch(
                LaunchRequest(
                    arguments: command.arguments, environment: command.environment, workdir: command.workdir,
                    stdin: ends.1, stdout: ends.1, stderr: nowhere))
        } catch {
            close(ends.0)
            throw error
        }
        _ = wa_set_nonblocking(ends.0)
        let worker = WorkerExit(process, launcher, reactor, onExit)
        do {
            try reactor.add(process.pidfd, events: UInt32(WA_EPOLLIN), token: worker.token, worker)
        } catch {
            close(ends.0)
            worker.abandon()
            throw error
        }
        return StartedWorker(pid: process.pid, socket: ends.0) { worker.kill() }
    }
}

/// Waits for one helper's end. The reactor keeps it for as long.
private final class WorkerExit: ReactorSource {
    let token: UInt64
    private let process: LaunchedProcess
    private let launcher: Launcher
    private let reactor: Reactor
    private let onExit: @Sendable (CommandExit) -> Void
    private let reaped = Mutex(false)

    init(
        _ process: LaunchedProcess, _ launcher: Launcher, _ reactor: Reactor,
        _ onExit: @escaping @Sendable (CommandExit) -> Void
    ) {
        self.process = process
        self.launcher = launcher
        self.reactor = reactor
        self.onExit = onExit
        token = reactor.makeToken()
    }

    func kill() {
        reaped.withLock { if !$0 { _ = wa_pidfd_send_signal(process.pidfd, SIGKILL) } }
    }

    /// It cannot be watched, so the reactor knows nothing of it.
    func abandon() {
        launcher.discard(process)
        finish()
    }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) {
        var status = wa_exit()
        let result = launcher.reap(process, &status)
        guard result != 0 else { return }
        reactor.remove(process.pidfd, token: token)
        finish()
        onExit(status.signaled && result > 0 ? .signalled(status.status) : .exited(status.status))
    }

    private func finish() {
        reaped.withLock { reaped in
            reaped = true
            close(process.pidfd)
        }
    }
}
