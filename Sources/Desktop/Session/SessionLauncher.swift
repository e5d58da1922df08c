import AgentCore
import Glibc
import Logging

/// Starts a desktop, or adopts the one that an earlier run of the agent left, when ``DesktopSession`` calls it.
/// One call of ``start(_:)`` at a time.
struct SessionLauncher: Sendable {
    let configuration: DesktopSession.Configuration
    let cleaner: SessionCleaner
    private let up: UpCommand
    private let connect: DesktopSession.DriverFactory
    private var limits: SessionLimits { configuration.limits }
    private var pool: BlockingPool { cleaner.pool }
    private var clock: AgentClock { cleaner.limiter.clock }
    private var logger: Logger { cleaner.logger }
    private var files: SessionFiles { cleaner.files }

    init(
        configuration: DesktopSession.Configuration, runner: any CommandRunner, pool: BlockingPool,
        limiter: TimeLimiter, logger: Logger, connect: @escaping DesktopSession.DriverFactory
    ) {
        self.configuration = configuration
        let files = SessionFiles(stateDirectory: configuration.stateDirectory)
        cleaner = SessionCleaner(
            files: files, pool: pool, limiter: limiter, limits: configuration.limits, logger: logger)
        up = UpCommand(configuration: configuration, files: files, runner: runner, pool: pool, limiter: limiter)
        self.connect = connect
    }

    /// The program with a subcommand and its state file, to which the caller adds flags; nil when it is not
    /// installed. Blocks: searches PATH.
    func command(_ subcommand: String) -> [String]? {
        up.locate(configuration.environment.build()).map { [$0, subcommand, "--state-file", files.state] }
    }

    /// - Parameters:
    ///   - deadline: on the clock, by when it is up or has failed.
    ///   - failed: called with the error before the processes of the failed start are removed, which may take seconds.
    /// - Throws: ``DesktopError``, also when the calling task is cancelled; then nothing is left of the start.
    func start(
        _ generation: Int, by deadline: Duration, failed: @escaping @Sendable (any Error) -> Void
    ) async throws -> LiveDesktop {
        let (adopted, isReplacement) = await adopt(generation, by: deadline)
        if let adopted { return adopted }
        await cleaner.cleanLeftovers()
        try checkCancelled()
        var command: (any RunningCommand)?
        do {
            guard clock.now() < deadline else {
                throw DesktopError.start("ending an earlier desktop took all of the time that a start has")
            }
            let environment = configuration.environment.build()
            guard let program = try await pool.run({ [up] in up.locate(environment) }) else {
                throw DesktopError.start(
                    "portabledesktop was found neither on PATH nor in the script directory; install it and try again")
            }
            let record = SessionFiles.Record(boot: SessionFiles.boot, began: clock.wallSeconds())
            try await pool.run { [files] in
                try files.prepare()
                try files.write(record)
            }
            let success = try await up.run(program, environment, deadline, failed)
            command = success.command
            return try await connect(to: success, generation, record, isReplacement, deadline)
        } catch {
            let error = Task.isCancelled ? DesktopSession.shuttingDown : DesktopError.start(from: error)
            failed(error)
            command?.abandonOutput()
            await cleaner.cleanLeftovers()
            throw error
        }
    }

    /// Checks that the program reports a desktop of ours that other machines cannot reach, and connects to it.
    private func connect(
        to success: UpCommand.Success, _ generation: Int, _ record: SessionFiles.Record, _ isReplacement: Bool,
        _ deadline: Duration
    ) async throws -> LiveDesktop {
        let report = success.report
        let (xvnc, openbox) = try await processes(report)
        guard let xvnc else {
            throw DesktopError.start(
                "portabledesktop up printed xvncPid \(report.xvncPid), and no VNC server of ours runs under that number"
            )
        }
        try await refuseExposed(report, xvnc)
        try checkCancelled()
        let endpoint = try await endpoint(report)
        let (driver, whyNotRFB) = try await drive(
            connection(endpoint, report.display, isFresh: true), xvnc, by: deadline)
        let since = clock.wallSeconds()
        let directory = await sessionDirectory(report, record)
        let manager = try await pool.run { openbox.map { WindowManager($0) } }
        let live = LiveDesktop(
            generation: generation,
            running: RunningDesktop(
                display: report.display, endpoint: endpoint, vncPort: report.vncPort, since: since, driver: driver),
            xvnc: xvnc, windowManager: manager, sessionDirectory: directory, wasAdopted: false,
            isReplacement: isReplacement, whyNotRFB: whyNotRFB, now: clock.now())
        var record = record
        record.desktop = SessionFiles.Desktop(
            xvnc: xvnc.identity, openbox: openbox?.identity, openboxArguments: manager?.arguments,
            display: report.display, vncPort: report.vncPort,
            since: since, sessionDirectory: directory)
        await write(record)
        if let warnings = success.warnings {
            logger.debug("portabledesktop up wrote", metadata: ["stderr": "\(warnings)"])
        }
        logger.info(
            "desktop started",
            metadata: [
                "display": "\(report.display)", "vnc_port": "\(report.vncPort)", "xvnc_pid": "\(xvnc.pid)",
                "size": "\(driver.size.width)x\(driver.size.height)",
            ])
        return live
    }

    /// The program may report a process that has not executed its own program yet; waits for that a little.
    private func processes(_ report: UpReport) async throws -> (xvnc: ProcessHandle?, openbox: ProcessHandle?) {
        let deadline = clock.now() + limits.naming
        while true {
            let found = try await pool.run {
                ProcessHandle.ofDesktop(xvnc: report.xvncPid, openbox: report.openboxPid)
            }
            let isIncomplete = found.xvnc == nil || report.openboxPid != nil && found.openbox == nil
            let pids = [report.xvncPid, report.openboxPid].compactMap { $0 }
            guard isIncomplete, clock.now() < deadline, pids.allSatisfy(ProcessHandle.isRunning) else { return found }
            await cleaner.limiter.pauseIgnoringCancellation(.milliseconds(10))
        }
    }

    /// Writes the record that the next run of the agent adopts the desktop by.
    private func write(_ record: SessionFiles.Record) async {
        do {
            try await pool.runToEnd { [files] in try files.write(record) }
        } catch {
            logger.warning(
                "the desktop's record cannot be written, so after a crash of the agent the desktop will not be adopted",
                metadata: ["error": "\(error)"])
        }
    }

    /// The program's session directory, where it is not the one that we gave it.
    private func sessionDirectory(
        _ report: UpReport, _ record: SessionFiles.Record
    ) async -> SessionFiles.SessionDirectory? {
        guard let path = report.sessionDir, path != files.session else { return nil }
        let directory = try? await pool.runToEnd { [files] in
            files.sessionDirectory(path, started: record.began)
        }
        if directory == nil {
            logger.warning(
                "the desktop's session directory will not be removed: this start did not create it",
                metadata: ["path": "\(path)"])
        }
        return directory
    }

    private func refuseExposed(_ report: UpReport, _ xvnc: ProcessHandle) async throws {
        let procfs = configuration.procfs
        let exposed: [ListeningSockets.Listener]
        do {
            exposed = try await pool.run {
                try ListeningSockets.exposed(port: report.vncPort, of: xvnc.pid, in: procfs)
            }
        } catch let error as CoreError {
            throw DesktopError.start(
                "cannot check whether other machines can reach its VNC server, which has no password: \(error)",
                cause: error)
        }
        guard let first = exposed.first else { return }
        throw DesktopError.start(
            "its VNC server can be reached from other machines without a password, on \(first.address):\(first.port); "
                + "portabledesktop must pass --xvnc-arg on to Xvnc")
    }

    private func endpoint(_ report: UpReport) async throws -> RFBEndpoint {
        let hasSocket = try await pool.run { [files] in try files.hasSocket() }
        return hasSocket ? .unix(files.socket) : .tcp(host: "127.0.0.1", port: report.vncPort)
    }

    /// Connects over RFB; where that fails but the program's subcommands work, uses those.
    /// - Returns: the driver, and why it is not the one over RFB.
    private func drive(
        _ server: DesktopSession.Connection, _ xvnc: ProcessHandle, by deadline: Duration
    ) async throws -> (driver: any DesktopDriver, whyNotRFB: String?) {
        do {
            return (try await connect(to: server, within: max(.zero, deadline - clock.now())), nil)
        } catch let error as DesktopError where error.code != .shuttingDown {
            let left = deadline - clock.now()
            let environment = configuration.environment.build()
            let path = try? await pool.run { [up] in up.locate(environment) }
            guard left > .zero, let path, xvnc.isAlive, !Task.isCancelled else { throw error }
            let program = DesktopProgram(
                path: path, stateFile: files.state, environment: environment, runner: up.runner,
                limiter: cleaner.limiter)
            let driver = await cleaner.limiter.runIgnoringCancellation(atMost: left) {
                try? await ProgramDriver.connect(through: program, helpers: server.helpers)
            }
            try checkCancelled()
            guard let driver = driver ?? nil else { throw error }
            let why = error.detail ?? error.message
            logger.warning(
                "the desktop is driven through portabledesktop's own subcommands, which is slow",
                metadata: ["display": "\(server.display)", "why": "\(why)"])
            return (driver, why)
        }
    }

    private func connection(_ endpoint: RFBEndpoint, _ display: String, isFresh: Bool) -> DesktopSession.Connection {
        let helpers = DesktopHelpers(
            up.runner, display: display, environment: configuration.environment.build(), clock: clock,
            executor: cleaner.limiter.executor)
        return .init(endpoint: endpoint, display: display, isFresh: isFresh, helpers: helpers, clock: clock)
    }

    private func connect(to server: DesktopSession.Connection, within budget: Duration) async throws
        -> any DesktopDriver
    {
        do {
            let driver = try await cleaner.limiter.runUnlessCancelled(
                atMost: budget, late: { await $0.close() }, { [connect] in try await connect(server) })
            guard let driver else { throw DesktopError.start("its VNC server did not answer in time") }
            return driver
        } catch is CancellationError {
            throw DesktopSession.shuttingDown
        } catch let error as DesktopError where error.isAboutStart {
            throw error
        } catch {
            let what = (error as? DesktopError).map { "\($0.message) \($0.detail ?? "")" } ?? "\(error)"
            throw DesktopError.start("its VNC server cannot be used: \(what)", cause: error)
        }
    }

    private func checkCancelled() throws { if Task.isCancelled { throw DesktopSession.shuttingDown } }

    /// The desktop that an earlier run of the agent left, if it still runs and answers, and whether there was one
    /// at all.
    private func adopt(_ generation: Int, by deadline: Duration) async -> (adopted: LiveDesktop?, existed: Bool) {
        guard let record = try? await pool.run({ [files] in files.readRecord() }), let desktop = record.desktop else {
            return (nil, false)
        }
        let found = try? await pool.run { () -> ProcessHandle? in
            record.boot == SessionFiles.boot ? ProcessHandle(desktop.xvnc) : nil
        }
        guard let xvnc = found ?? nil else { return (nil, true) }
        do {
            return (try await adopt(desktop, xvnc, generation, by: deadline), true)
        } catch {
            logger.warning(
                "ending the desktop of an earlier run of the agent",
                metadata: [
                    "display": "\(desktop.display)", "error": "\((error as? DesktopError)?.detail ?? "\(error)")",
                ])
            return (nil, true)
        }
    }

    private func adopt(
        _ desktop: SessionFiles.Desktop, _ xvnc: ProcessHandle, _ generation: Int, by deadline: Duration
    ) async throws -> LiveDesktop {
        let report = UpReport(vncPort: desktop.vncPort, display: desktop.display, xvncPid: xvnc.pid)
        try await refuseExposed(report, xvnc)
        let endpoint = try await endpoint(report)
        let (driver, whyNotRFB) = try await drive(
            connection(endpoint, desktop.display, isFresh: false), xvnc,
            by: min(deadline, clock.now() + limits.adoption))
        let manager = try await pool.run { () -> WindowManager? in
            if let openbox = desktop.openbox.flatMap({ ProcessHandle($0) }) { return WindowManager(openbox) }
            let environment = configuration.environment.build(request: ["DISPLAY": desktop.display])
            return desktop.openboxArguments.map { WindowManager(arguments: $0, environment: environment) }
        }
        logger.info(
            "adopted the desktop that an earlier run of the agent started",
            metadata: ["display": "\(desktop.display)", "xvnc_pid": "\(xvnc.pid)"])
        return LiveDesktop(
            generation: generation,
            running: RunningDesktop(
                display: desktop.display, endpoint: endpoint, vncPort: desktop.vncPort, since: desktop.since,
                driver: driver),
            xvnc: xvnc, windowManager: manager, sessionDirectory: desktop.sessionDirectory, wasAdopted: true,
            isReplacement: false, whyNotRFB: whyNotRFB, now: clock.now())
    }

    /// Starts the window manager again when it has ended.
    func keepWindowManager(of live: LiveDesktop) async {
        guard let manager = live.windowManager, !manager.isAlive else { return }
        // Until the X server has noticed the end of the old one, a new one takes it for running, and ends.
        _ = try? await XServer(display: live.running.display, clock: clock).pointer()
        do {
            guard
                try await manager.restartIfEnded(
                    by: up.runner, clock.now(), atMostEach: limits.windowManagerRestart)
            else { return }
            let identity = manager.process?.identity
            logger.warning(
                "the window manager (openbox) had ended and was started again",
                metadata: ["display": "\(live.running.display)", "pid": "\(identity?.pid ?? 0)"])
            guard var record = try await pool.run({ [files] in files.readRecord() }) else { return }
            record.desktop?.openbox = identity
            await write(record)
        } catch {
            logger.warning(
                "the window manager (openbox) has ended and cannot be started", metadata: ["error": "\(error)"])
        }
    }
}

extension ProcessHandle {
    /// The processes with these numbers, if their names are those of a desktop's. Blocks.
    static func ofDesktop(xvnc: Int32?, openbox: Int32?) -> (xvnc: ProcessHandle?, openbox: ProcessHandle?) {
        func handle(_ pid: Int32?, _ name: String) -> ProcessHandle? {
            pid.flatMap { ProcessHandle(pid: $0) }.flatMap { $0.name.lowercased().contains(name) ? $0 : nil }
        }
        return (handle(xvnc, "vnc"), handle(openbox, "openbox"))
    }
}
