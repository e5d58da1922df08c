import AgentProc
import ControlPlane
import Glibc
import Logging
import ServiceLifecycle
import Synchronization

/// Put last in the service group, and so the first to end: nothing new is begun, and the control plane hears of
/// the end while everything else still works.
struct ShutdownBeginning: Service {
    /// nil without a control plane.
    let agent: ControlPlaneAgent?
    let stopAcceptingWork: @Sendable () -> Void

    func run() async throws {
        try? await gracefulShutdown()
        stopAcceptingWork()
        await agent?.finish()
    }
}

/// Ends the process manager when shutdown comes to it, after the HTTP server.
struct ProcessService: Service {
    let manager: ProcessManager
    let commands: CommandLauncher

    func run() async throws {
        try? await gracefulShutdown()
        await manager.shutdown()
        await commands.shutdown()
    }
}

/// The first signal stops the daemon in order, the second at once.
final class StopSignal: Sendable {
    private struct State {
        var count = 0
        var handler: (@Sendable () -> Void)?
    }

    private let state = Mutex(State())

    /// Sets what the first signal does; it is done at once when the signal came before.
    func set(_ handler: @escaping @Sendable () -> Void) {
        let late = state.withLock {
            $0.handler = handler
            return $0.count > 0
        }
        if late { handler() }
    }

    func received(_ signal: CInt, _ logger: Logger) {
        let (count, handler) = state.withLock {
            $0.count += 1
            return ($0.count, $0.handler)
        }
        guard count == 1 else {
            // A closing terminal and systemd send SIGHUP beside another signal: it does not count as a second.
            if signal == SIGHUP { return }
            // 130 is what a shell makes of Ctrl-C.
            _exit(signal == SIGINT ? 130 : 1)
        }
        logger.info("shutting down", metadata: ["signal": "\(signal)"])
        handler?()
    }
}
