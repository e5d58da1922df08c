import AgentCore
import AgentProto
import ControlPlaneAPI
import Logging
import Synchronization

/// The current manifest, for every part of the daemon that reads it. Outlives agent sessions.
package final class CurrentManifest: Sendable {
    private let value = Mutex<ManifestSnapshot?>(nil)

    package init() {}

    /// nil before the first.
    package var snapshot: ManifestSnapshot? {
        get { value.withLock { $0 } }
        set { value.withLock { $0 = newValue } }
    }
}

/// What one agent session does with manifests and scripts.
package final class WorkspaceManifestActions: ManifestActions {
    /// Bring logs, results and metadata upward.
    package let routines: [any Routine]
    private let context: ScriptContext
    private let scripts: ScriptRunner
    private let metadata: MetadataCollector
    private let secretFiles: SecretFiles
    private let daemonEnvironment: [String: String]
    private let current: CurrentManifest
    private let logger: Logger

    /// - Parameters:
    ///   - daemonEnvironment: for variables in the manifest's directory.
    ///   - current: is set to each manifest that was applied.
    ///   - history: gets the scripts' runs.
    package init(
        context: ScriptContext, configuration: ScriptRunner.Configuration, daemonEnvironment: [String: String],
        current: CurrentManifest, history: ScriptHistory = ScriptHistory(), metrics: MetricsRegistry, logger: Logger
    ) {
        let logs = LogStore(metrics: metrics, logger: logger)
        let reports = ScriptReports(metrics: metrics, logger: logger)
        scripts = ScriptRunner(
            configuration: configuration, context: context, logs: logs, reports: reports, history: history,
            metrics: metrics, logger: logger)
        metadata = MetadataCollector(context: context, metrics: metrics, logger: logger)
        routines = [
            ClosableRoutine(
                LogSender(store: logs, clock: context.clock), close: { logs.close() }, isEmpty: { logs.isEmpty }),
            ClosableRoutine(ScriptReporter(reports: reports), close: { reports.close() }, isEmpty: { reports.isEmpty }),
            metadata,
        ]
        self.context = context
        secretFiles = SecretFiles(home: context.user.home)
        self.daemonEnvironment = daemonEnvironment
        self.current = current
        self.logger = logger
    }

    package func apply(_ message: Coder_Agent_V2_Manifest) async throws -> String {
        let (manifest, secrets) = try ManifestSnapshot.receive(
            message, home: context.user.home, environment: daemonEnvironment)
        let (variables, warnings) = secrets.variables()
        let files = secretFiles
        let failures = try await context.pool.run { files.write(secrets) }
        for warning in warnings + failures { logger.warning("\(warning)") }
        context.environment.update(manifest.environment(secrets: variables))
        scripts.update(manifest)
        metadata.update(manifest)
        current.snapshot = manifest
        logger.info("\(manifest)", metadata: ["directory": "\(manifest.directory)"])
        return message.directory.isEmpty ? "" : manifest.directory
    }

    package func runStartScripts() async -> ScriptOutcome {
        do {
            return try await scripts.runStartScripts()
        } catch {
            // Cancelled: the agent shuts down.
            await scripts.cancelStart()
            return .failed
        }
    }

    package func startCron() { scripts.startCron() }

    package func stopCron() { scripts.stopCron() }

    package func endScripts(all: Bool) async {
        if all { await scripts.cancelAll() } else { await scripts.cancelStart() }
    }

    package func runStopScripts() async -> ScriptOutcome {
        let scripts = scripts
        return await withTaskCancellationHandler {
            await scripts.runStopScripts()
        } onCancel: {
            // The handler must not wait.
            Task(executorPreference: context.executor) { await scripts.cancelAll() }
        }
    }
}
