import AgentCore
import AgentProc
import CPlatform
import ControlPlane
import Glibc
import Logging
import ServiceLifecycle
import Synchronization

/// Ends at a signal, and with it the service group, of which it is the last and so the first to end: nothing new is
/// begun, and the control plane hears of the end while everything else still works.
struct ShutdownBeginning: Service {
    let signal: StopSignal
    let reserve: DescriptorReserve
    /// nil without a control plane.
    let agent: ControlPlaneAgent?
    let stopAcceptingWork: @Sendable () -> Void

    func run() async throws {
        // Or at the end of a service that failed.
        try? await cancelWhenGracefulShutdown { try await signal.wait() }
        reserve.release()
        stopAcceptingWork()
        await agent?.finish()
    }
}

/// Descriptors for the runtime's own pool of threads, which ends the process when it begins without any. Only the shutdown
/// uses that pool. It is not begun before: one of its threads wakes up each second.
final class DescriptorReserve: Sendable {
    /// What the pool opens: a queue of events and its timers.
    private static let count = 8
    private let held: Mutex<[CInt]>

    init() { held = Mutex((0..<Self.count).map { _ in wa_open("/dev/null", O_RDONLY, 0) }.filter { $0 >= 0 }) }

    /// Begins the pool with them.
    func release() {
        let descriptors = held.withLock { held in
            defer { held = [] }
            return held
        }
        for descriptor in descriptors { close(descriptor) }
        Task.detached {}
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
    private let count = Watched(0)
    private let logger: Logger

    init(logger: Logger) { self.logger = logger }

    /// Returns once a signal has come.
    /// - Throws: `CancellationError`.
    func wait() async throws { _ = try await count.first { $0 > 0 ? $0 : nil } }

    func received(_ signal: CInt) {
        let count = count.update { count in
            count += 1
            return count
        }
        guard count > 1 else { return logger.info("shutting down", metadata: ["signal": "\(signal)"]) }
        // A closing terminal and systemd send SIGHUP beside another signal: it does not count as a second.
        if signal == SIGHUP { return }
        // 130 is what a shell makes of Ctrl-C.
        _exit(signal == SIGINT ? 130 : 1)
    }
}
