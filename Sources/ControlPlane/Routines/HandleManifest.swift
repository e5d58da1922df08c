import AgentCore
import AgentProto
import ControlPlaneAPI
import DRPC
import Logging

/// Fetches the manifest on each connection and has it applied; reports version and directory.
package struct HandleManifest: Routine {
    package let name = "handle manifest"
    package let atShutdown = RoutineShutdown.stops
    private let actions: any ManifestActions
    private let appHealth: AppHealthMonitor
    private let startup: Coder_Agent_V2_Startup
    private let runtime: LinkRuntime
    private let onManifest: @Sendable (Coder_Agent_V2_Manifest) async -> Void
    /// How many manifests this session has applied.
    let taken = Watched(0)

    /// - Parameters:
    ///   - startup: the version and subsystems to report.
    ///   - onManifest: gets each manifest once it is applied.
    init(
        actions: any ManifestActions, appHealth: AppHealthMonitor, startup: Coder_Agent_V2_Startup,
        runtime: LinkRuntime, onManifest: @escaping @Sendable (Coder_Agent_V2_Manifest) async -> Void
    ) {
        (self.actions, self.appHealth, self.startup, self.runtime) = (actions, appHealth, startup, runtime)
        self.onManifest = onManifest
    }

    package func run(_ connection: any AgentConnection) async throws {
        let manifest = try await connection.call(AgentAPI.getManifest, .init())
        guard manifest.agentID.count == 16, manifest.agentID.contains(where: { $0 != 0 }) else {
            throw ControlPlaneError(
                .manifest, "the manifest has no agent id; is the token one of a workspace agent?")
        }
        let directory = try await actions.apply(manifest)
        appHealth.update(manifest.apps)
        await onManifest(manifest)
        // From here on the start scripts run, whatever becomes of this connection.
        taken.update { $0 += 1 }
        var request = Coder_Agent_V2_UpdateStartupRequest()
        request.startup = startup
        request.startup.expandedDirectory = directory
        do {
            _ = try await connection.call(AgentAPI.updateStartup, request)
        } catch let error as DRPCError where error.isUnknownRPC {
            runtime.logger.warning("the control plane rejected the startup report", metadata: ["error": "\(error)"])
        }
    }
}

/// `CODER_AGENT_SUBSYSTEM`: what the agent was built into.
package enum Subsystems {
    private static let names: [(String, Coder_Agent_V2_Startup.Subsystem)] = [
        ("envbox", .envbox), ("envbuilder", .envbuilder), ("exectrace", .exectrace),
    ]

    /// Reads a comma-separated list; empty and nil are none, twice is once.
    /// - Throws: ``ControlPlaneError`` `.configuration` that names the entry.
    package static func parse(_ text: String?) throws -> [Coder_Agent_V2_Startup.Subsystem] {
        guard let text, !text.isEmpty else { return [] }
        let entries = text.split(separator: ",", omittingEmptySubsequences: false)
        guard entries.count <= LinkLimits.subsystems else {
            throw ControlPlaneError(
                .configuration,
                "CODER_AGENT_SUBSYSTEM has \(entries.count) entries; \(LinkLimits.subsystems) are allowed")
        }
        var found: [Coder_Agent_V2_Startup.Subsystem] = []
        for entry in entries {
            let name = entry.trimmingPrefix { $0 == " " }.prefix { $0 != " " }
            guard let known = names.first(where: { $0.0 == name }), entry.filter({ $0 != " " }) == name else {
                throw ControlPlaneError(
                    .configuration,
                    "CODER_AGENT_SUBSYSTEM: \"\(entry)\" is not one of \(names.map(\.0).joined(separator: ", "))")
            }
            if !found.contains(known.1) { found.append(known.1) }
        }
        return found
    }
}
