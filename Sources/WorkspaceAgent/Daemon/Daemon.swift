import AgentCore
import CPlatform
import Glibc
import LocalAgent
import NIOCore
import NIOPosix
import ServiceLifecycle
import Synchronization

/// Puts the daemon together and runs it until a signal stops it.
enum Daemon {
    // A signal that was ignored at the start (nohup, a script's background job) stays ignored.
    static let handledSignals = [SIGTERM, SIGINT, SIGHUP].filter { !wa_signal_is_ignored($0) }

    /// Returns when everything has ended in order.
    /// - Throws: ``CommandFailure`` with one line for the terminal.
    static func run(_ configuration: AgentConfiguration) throws {
        let inherited = prepareProcess()
        try DescriptorBudget.check()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: min(2, System.coreCount))
        let executor = EventLoopTaskExecutor(group.next())
        // The main thread waits; everything runs on the loops, so that no further pool of threads
        // comes into being.
        let outcome = Mutex<Result<Void, any Error>?>(nil)
        let done = wa_eventfd()
        Task(executorPreference: executor) {
            let result: Result<Void, any Error>
            do {
                try await serve(configuration, inherited, group, executor)
                result = .success(())
            } catch {
                result = .failure(error)
            }
            outcome.withLock { $0 = result }
            wa_eventfd_signal(done)
        }
        var poll = pollfd(fd: done, events: Int16(POLLIN), revents: 0)
        while Glibc.poll(&poll, 1, -1) <= 0 {}
        do {
            try outcome.withLock { $0 }?.get()
        } catch let error as CommandFailure {
            throw error
        } catch {
            throw CommandFailure(message: "\(error)")
        }
    }

    /// What the daemon was started with and changed for itself; children get it back.
    struct Inherited {
        /// The soft limit of descriptors.
        var descriptorLimit: UInt64
        var fileMask: mode_t
    }

    private static func prepareProcess() -> Inherited {
        // A pipe that took the place of stdin would be closed as stdin in a child.
        var descriptor: CInt
        repeat { descriptor = wa_open("/dev/null", O_RDWR, 0) } while descriptor >= 0 && descriptor <= 2
        if descriptor > 2 { close(descriptor) }
        wa_ignore_sigpipe()
        let signals = handledSignals + [SIGCHLD]
        _ = wa_block_signals(signals, CInt(signals.count))
        wa_limit_malloc_arenas(2)
        return Inherited(descriptorLimit: wa_raise_nofile(), fileMask: umask(0o077))
    }

    /// Puts the daemon together, runs its services as one group, and closes what they used.
    private static func serve(
        _ configuration: AgentConfiguration, _ inherited: Inherited, _ group: MultiThreadedEventLoopGroup,
        _ executor: EventLoopTaskExecutor
    ) async throws {
        let reserve = DescriptorReserve()
        let log = try DaemonLog(configuration)
        defer { log.pipeline.flush() }
        let state = try StateDirectory.open(configuration.stateDirectory)
        defer { state.release() }
        let context = DaemonContext(configuration, group, executor, log, state)
        if let problem = state.problem {
            let text = "state directory: \(problem); the daemon keeps nothing over a restart"
            context.logger.warning("\(text)")
            context.health.set("state directory", .init(text))
        }
        let systemd = Systemd(environment: configuration.environment)
        let processes = try ProcessParts(context, inherited)
        let daemon: Composition
        do {
            daemon = try await Composition(context, state, systemd, processes, inherited, reserve)
        } catch {
            await processes.reactor.stop()
            throw error
        }
        let serviceGroup = daemon.serviceGroup()
        // Everything is there: from here on clients are answered.
        daemon.start()
        systemd.ready("Listening on \(daemon.addresses)")
        let watchdog = systemd.watchdogMicroseconds.map {
            Watchdog(every: .microseconds($0 / 2), group: group, reactor: processes.reactor, ping: systemd.alive)
        }
        watchdog?.start()
        // To the end: a shutdown may take longer than systemd waits for a sign of life.
        defer { withExtendedLifetime(watchdog) {} }
        await daemon.greet()
        // A service that failed has ended the others in order; what they used is closed all the same.
        let outcome: Result<Void, any Error>
        do { outcome = .success(try await serviceGroup.run()) } catch { outcome = .failure(error) }
        let problem = await daemon.close()
        await processes.reactor.stop()
        try outcome.get()
        context.logger.info("stopped")
        if let problem { throw CommandFailure(message: problem) }
    }
}
