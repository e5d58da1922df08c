import AgentProc
import CPlatform
import Glibc
import Logging
import ServiceLifecycle
import Synchronization

/// The services that work without a control plane, as one that can be ended from elsewhere.
final class LocalServices: Sendable {
    private struct State {
        var group: ServiceGroup?
        var isOver = false
        var waiters: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())

    func set(_ group: ServiceGroup) { state.withLock { $0.group = group } }

    /// Returns when all have ended.
    func run() async throws {
        defer { ended() }
        try await state.withLock { $0.group }?.run()
    }

    /// Ends them in order and returns when they have ended.
    func stop() async {
        await state.withLock { $0.group }?.triggerGracefulShutdown()
        await withCheckedContinuation { continuation in
            let isOver = state.withLock { state in
                if !state.isOver { state.waiters.append(continuation) }
                return state.isOver
            }
            if isOver { continuation.resume() }
        }
    }

    private func ended() {
        let waiters = state.withLock { state in
            state.isOver = true
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter.resume() }
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
            // A closing terminal and systemd send SIGHUP beside another: no second wish.
            if signal == SIGHUP { return }
            // 130 is what a shell makes of Ctrl-C.
            _exit(signal == SIGINT ? 130 : 1)
        }
        logger.info("shutting down", metadata: ["signal": "\(signal)"])
        handler?()
    }
}
