import AgentCore
import AgentHTTP
import AgentProc
import Desktop
import ServiceLifecycle
import WorkspaceScripts

/// The virtual desktop, put together. Nothing of it runs before its first use.
struct DesktopParts: Sendable {
    let session: DesktopSession
    let viewer: ViewerFiles
    private let recordings: RecordingManager
    private let routes: DesktopRoutes
    private let recordingRoutes: RecordingRoutes

    /// - Parameters:
    ///   - manager: starts programs for the `open` action.
    ///   - directory: where programs start.
    init(
        _ f: DaemonContext, environment: EnvironmentBuilder, manager: ProcessManager, runner: any CommandRunner,
        directory: @escaping @Sendable () -> String
    ) {
        let state = f.configuration.stateDirectory
        let session = DesktopSession(
            configuration: .init(
                stateDirectory: state, environment: environment,
                scriptBinDirectory: ScriptRunner.binDirectory(state: "\(state)/scripts"), workdir: directory),
            runner: runner, pool: f.pool, executor: f.executor, clock: f.clock, metrics: f.metrics,
            logger: f.logger,
            connect: { [executor = f.executor] server in
                var options = RFBDriver.Options(server)
                options.executor = executor
                return try await RFBDriver.connect(to: server.endpoint, options)
            })
        f.health.register("desktop") { [weak session] in session?.health }
        let recordings = RecordingManager(
            configuration: .init(
                directory: "\(state)/desktop/recordings", environment: environment,
                fallback: { session.command("record") }),
            provider: session, runner: runner, pool: f.pool, executor: f.executor, clock: f.clock,
            metrics: f.metrics, logger: f.logger)
        let viewer = ViewerFiles(directory: f.configuration.novncDirectory, pool: f.pool)
        let hooks = DesktopRoutes.Hooks(
            open: { try await Self.open($0, on: $1, for: $2, manager) },
            activity: { recordings.noteActivity() },
            recordings: { recordings.running })
        routes = DesktopRoutes(
            session: session, viewer: viewer, hooks: hooks, clock: f.clock, executor: f.executor, logger: f.logger)
        recordingRoutes = RecordingRoutes(manager: recordings, pool: f.pool)
        (self.session, self.viewer, self.recordings) = (session, viewer, recordings)
    }

    /// It ends after the HTTP server and before what runs programs.
    var capability: Capability {
        let (session, routes, recordingRoutes) = (session, routes, recordingRoutes)
        return Capability(
            services: [DesktopService(session: session, recordings: recordings)],
            beginShutdown: { session.beginShutdown() }
        ) {
            routes.add(to: $0)
            recordingRoutes.add(to: $0)
        }
    }

    private struct DesktopService: Service {
        let session: DesktopSession
        let recordings: RecordingManager

        func run() async throws {
            // Of a daemon that crashed.
            await recordings.removeLeftovers()
            try? await gracefulShutdown()
            await session.shutdown(recordings: { await recordings.shutdown() })
        }
    }

    /// As a process of the process API, so that it is seen in lists and ended at shutdown.
    private static func open(
        _ command: String, on display: String, for chat: ChatIdentity?, _ manager: ProcessManager
    ) async throws {
        var request = StartRequest(.shell(command), environment: ["DISPLAY": display])
        request.background = true
        do {
            let id = try await manager.start(request, chat: chat).id
            guard let failure = await manager.earlyFailure(of: id, within: DesktopLimits.openCheck) else { return }
            let last = failure.output.split(separator: "\n").suffix(DesktopLimits.openLines).joined(separator: "; ")
            let how = failure.signal.map { "by \($0)" } ?? "with code \(failure.status ?? -1)"
            // What shells exit with for a command that is not there, or is not executable.
            let isMissing = failure.status == 127 || failure.status == 126
            throw DesktopError(
                .invalid, isMissing ? "The program cannot be started: \(last)" : "The program ended at once, \(how).",
                detail: isMissing || last.isEmpty ? nil : last)
        } catch let error as ProcError {
            let message = "Failed to start the program."
            switch error.code {
            case .shuttingDown: throw DesktopError(.shuttingDown, "Desktop API is shutting down.")
            case .tooManyProcesses: throw DesktopError(.tooMany, "Too many running processes.", detail: error.detail)
            case .startFailed(let launch) where launch.stage == .resources:
                throw DesktopError(.tooMany, message, detail: error.detail)
            case .startTooLarge: throw DesktopError(.tooLarge, message, detail: error.detail)
            default: throw DesktopError(.failed, message, detail: error.detail, cause: error)
            }
        }
    }
}
