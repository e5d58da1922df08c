import AgentCore
import AgentProto
import Logging
import Synchronization

/// The manifest of the moment, for everybody who needs something of it. Outlives agent lives.
package final class CurrentManifest: Sendable {
    private let value = Mutex<ManifestSnapshot?>(nil)

    package init() {}

    /// nil before the first.
    package var snapshot: ManifestSnapshot? {
        get { value.withLock { $0 } }
        set { value.withLock { $0 = newValue } }
    }
}

/// What one agent life does with manifests and scripts.
package final class WorkspaceDuties: AgentDuties {
    private let context: ScriptContext
    private let scripts: ScriptRunner
    private let metadata: MetadataCollector
    private let secretFiles: SecretFiles
    private let daemonEnvironment: [String: String]
    private let current: CurrentManifest
    private let logger: Logger

    /// - Parameter daemonEnvironment: for variables in the manifest's directory.
    package init(
        context: ScriptContext, scripts: ScriptRunner, metadata: MetadataCollector,
        daemonEnvironment: [String: String], current: CurrentManifest, logger: Logger
    ) {
        self.context = context
        self.scripts = scripts
        self.metadata = metadata
        secretFiles = SecretFiles(home: context.user.home)
        self.daemonEnvironment = daemonEnvironment
        self.current = current
        self.logger = logger
    }

    package func apply(_ message: Coder_Agent_V2_Manifest, first: Bool) async throws -> String {
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
        return manifest.directory
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

    package func startCron() async { scripts.startCron() }

    package func stop() async { scripts.stopCron() }

    package func endScripts(all: Bool) async {
        if all { await scripts.cancelAll() } else { await scripts.cancelStart() }
    }

    package func runStopScripts() async -> ScriptOutcome {
        let scripts = scripts
        return await withTaskCancellationHandler {
            await scripts.runStopScripts()
        } onCancel: {
            // What a new task costs is of no matter here, and the handler must not wait.
            Task(executorPreference: context.executor) { await scripts.cancelAll() }
        }
    }
}
