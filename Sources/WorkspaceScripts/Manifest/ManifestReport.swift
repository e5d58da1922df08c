import AgentProto
import ControlPlaneAPI
import FoundationEssentials

/// The manifest for `GET /debug/manifest`: what helps to find out why something runs or doesn't, and
/// nothing that could be a secret. Values of variables, scripts' text and queries of URLs are left out:
/// templates put tokens into all of them.
package struct ManifestReport: Encodable, Sendable {
    struct Script: Encodable {
        var id: String
        var displayName: String
        var logSourceID: String
        var logPath: String
        var scriptBytes: Int
        var cron: String
        var runOnStart: Bool
        var runOnStop: Bool
        var startBlocksLogin: Bool
        var timeoutSeconds: Double
    }

    struct App: Encodable {
        var id: String
        var slug: String
        var displayName: String
        var hasHealthcheck: Bool
    }

    struct Metadata: Encodable {
        var key: String
        var displayName: String
        var scriptBytes: Int
        var intervalSeconds: Double
        var timeoutSeconds: Double
    }

    var agentID: String
    var agentName: String
    var parentID: String?
    var workspaceID: String?
    var workspaceName: String
    var ownerUsername: String
    var directory: String
    var expandedDirectory: String
    var motdPath: String
    var environmentVariables: [String: String]
    var gitAuthConfigs: UInt32
    var scripts: [Script]
    var apps: [App]
    var metadata: [Metadata]
    var devcontainers: Int

    package init(_ manifest: ManifestSnapshot) {
        let message = manifest.message
        agentID = manifest.agentID.uuidString.lowercased()
        agentName = message.agentName
        parentID = manifest.parentID?.uuidString.lowercased()
        workspaceID = manifest.workspaceID?.uuidString.lowercased()
        workspaceName = message.workspaceName
        ownerUsername = message.ownerUsername
        directory = message.directory
        expandedDirectory = manifest.directory
        motdPath = message.motdPath
        environmentVariables = message.environmentVariables.mapValues { $0.isEmpty ? "" : "***REDACTED***" }
        gitAuthConfigs = message.gitAuthConfigs
        scripts = manifest.scripts.map { script in
            Script(
                id: script.id.text, displayName: script.displayName, logSourceID: script.logSourceID.text,
                logPath: script.logPath, scriptBytes: script.text.reveal().utf8.count, cron: script.cron,
                runOnStart: script.runsOnStart, runOnStop: script.runsOnStop,
                startBlocksLogin: script.startBlocksLogin, timeoutSeconds: script.timeout?.inSeconds ?? 0)
        }
        apps = message.apps.map { app in
            App(
                id: app.id.text, slug: app.slug, displayName: app.displayName,
                hasHealthcheck: !app.healthcheck.url.isEmpty)
        }
        metadata = message.metadata.map { description in
            Metadata(
                key: description.key, displayName: description.displayName,
                scriptBytes: description.script.utf8.count, intervalSeconds: description.interval.duration.inSeconds,
                timeoutSeconds: description.timeout.duration.inSeconds)
        }
        devcontainers = message.devcontainers.count
    }

    /// Keys in order.
    package func json() throws -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]
        encoder.keyEncodingStrategy = .convertToSnakeCase
        return [UInt8](try encoder.encode(self))
    }
}

extension Data {
    /// A UUID's text, or `invalid`.
    package var text: String { UUID(wire: self)?.uuidString.lowercased() ?? "invalid" }
}
