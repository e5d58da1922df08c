import AgentCore
import AgentProto
import ControlPlaneAPI
import Logging

/// One session of the agent with the control plane: its lifecycle states, its start scripts and its link, over
/// all connections. A claimed prebuild ends one session and begins another in the same process.
package final class AgentSession: Sendable {
    /// What to report of ourselves.
    package struct Identity: Sendable {
        package var version: String
        package var subsystems: [Coder_Agent_V2_Startup.Subsystem]

        package init(version: String, subsystems: [Coder_Agent_V2_Startup.Subsystem]) {
            (self.version, self.subsystems) = (version, subsystems)
        }
    }

    private struct State: Sendable {
        var start: Task<Void, Never>?
        var shutdownBegan = false
        var delivered: Bool?
    }

    package let lifecycle: Lifecycle
    package let link: ControlPlaneLink
    private let manifest: HandleManifest
    private let actions: any ManifestActions
    private let runtime: LinkRuntime
    private let state = Watched(State())

    /// - Parameters:
    ///   - routines: those that the executable composes; lifecycle, manifest and app health are added here.
    ///   - onManifest: gets each manifest once it is applied. It still has its secrets.
    package init(
        identity: Identity, dialler: any Dialler, actions: any ManifestActions, prober: any AppProber,
        routines: [any Routine], runtime: LinkRuntime, metrics: MetricsRegistry, health: HealthRegistry,
        onManifest: @escaping @Sendable (Coder_Agent_V2_Manifest) async -> Void = { _ in }
    ) {
        (self.actions, self.runtime) = (actions, runtime)
        lifecycle = Lifecycle(runtime: runtime)
        let appHealth = AppHealthMonitor(prober: prober, runtime: runtime)
        var startup = Coder_Agent_V2_Startup()
        startup.version = identity.version
        startup.subsystems = identity.subsystems
        manifest = HandleManifest(
            actions: actions, appHealth: appHealth, startup: startup, runtime: runtime, onManifest: onManifest)
        link = ControlPlaneLink(
            dialler: dialler,
            routines: [ReportLifecycle(lifecycle), manifest, ReportAppHealth(appHealth)] + routines,
            runtime: runtime, metrics: metrics, health: health)
    }

    /// Runs until ``close()``, or the task is cancelled.
    package func run() async {
        // No child: a script that does not end must not hold up the link's end.
        let start = Task(executorPreference: runtime.executor) { await self.start() }
        let tooLate = state.update { state in
            state.start = start
            return state.shutdownBegan
        }
        if tooLate { start.cancel() }
        await link.run()
        start.cancel()
    }

    /// Reports the end in order (docs/contracts/control-plane.md#shutdown): SHUTTING_DOWN, run_on_stop scripts, OFF /
    /// SHUTDOWN_TIMEOUT / SHUTDOWN_ERROR, delivery within its budget. The connection stays until ``close()``.
    /// Further calls wait for the first.
    /// - Returns: whether all was delivered.
    package func finish() async -> Bool {
        let (first, start) = state.update { state in
            defer { state.shutdownBegan = true }
            return (!state.shutdownBegan, state.start)
        }
        guard first else { return (try? await state.first(\.delivered)) ?? false }
        lifecycle.set(.shuttingDown)
        link.beginShutdown()
        actions.stopCron()
        await end(start)
        // A scheduled run goes on otherwise, beyond this session and its reports.
        await endScripts(all: false, within: LinkLimits.startScriptsEnd)
        let last = await stopScripts()
        await endScripts(all: true, within: LinkLimits.teardown)
        lifecycle.set(last)
        let delivered = await link.deliver()
        state.update { $0.delivered = delivered }
        return delivered
    }

    /// Closes the connection in order; ends ``run()``.
    package func close() async { await link.close() }

    /// Start scripts run once per session, after its first manifest, however connections end.
    private func start() async {
        guard (try? await manifest.taken.first { $0 > 0 ? true : nil }) != nil, lifecycle.set(.starting) else { return }
        let outcome = await actions.runStartScripts()
        if Task.isCancelled { return }
        switch outcome {
        case .succeeded: lifecycle.set(.ready)
        case .timedOut: lifecycle.set(.startTimeout)
        case .failed: lifecycle.set(.startError)
        }
        actions.startCron()
    }

    private func end(_ start: Task<Void, Never>?) async {
        guard let start else { return }
        start.cancel()
        do {
            try await runtime.within(LinkLimits.startScriptsEnd, "ending the start scripts") { await start.value }
        } catch {
            runtime.logger.warning("start scripts did not stop in time", metadata: ["error": "\(error)"])
        }
    }

    private func endScripts(all: Bool, within limit: Duration) async {
        let actions = actions
        do {
            try await runtime.within(limit, "ending scripts") { await actions.endScripts(all: all) }
        } catch {
            runtime.logger.warning("scripts do not end", metadata: ["error": "\(error)"])
        }
    }

    private func stopScripts() async -> Coder_Agent_V2_Lifecycle.State {
        let actions = actions
        let outcome = try? await runtime.within(LinkLimits.stopScripts, "run_on_stop scripts") {
            await actions.runStopScripts()
        }
        switch outcome {
        case .succeeded: return .off
        case .timedOut, nil: return .shutdownTimeout
        case .failed: return .shutdownError
        }
    }
}
