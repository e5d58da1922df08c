import AgentCore
import CPlatform
import Glibc

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
        let (ours, theirs) = try makeSocketPair()
        defer { close(theirs) }
        let nowhere = wa_open("/dev/null", O_WRONLY, 0)
        defer { if nowhere >= 0 { close(nowhere) } }
        do {
            let child = ChildProcess(
                try launcher.launch(
                    LaunchRequest(
                        arguments: command.arguments, environment: command.environment, workdir: command.workdir,
                        stdin: theirs, stdout: theirs, stderr: nowhere)), launcher, reactor)
            _ = wa_set_nonblocking(ours)
            do {
                try child.watch { status, _ in onExit(CommandExit(status)) }
            } catch {
                child.abandon()
                throw error
            }
            return StartedWorker(pid: child.pid, socket: ours) { child.signal(SIGKILL) }
        } catch {
            close(ours)
            throw error
        }
    }
}
