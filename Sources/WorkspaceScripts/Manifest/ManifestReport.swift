import AgentProto
import ControlPlaneAPI
import FoundationEssentials

/// The manifest for `GET /debug/manifest`, in the JSON of the reference's SDK, which decodes it strictly for a support
/// bundle. It has no secrets; values of environment variables are replaced.
package struct ManifestReport: Encodable, Sendable {
    struct App: Encodable {
        var id: String
        var url: String
        var external: Bool
        var slug: String
        var display_name: String
        var command: String
        var icon: String
        var subdomain: Bool
        var subdomain_name: String
        var sharing_level: String
        var healthcheck: Healthcheck
        var health: String
        var hidden: Bool
    }

    struct Healthcheck: Encodable {
        var url: String
        /// Seconds.
        var interval: Int64
        var threshold: Int32
    }

    struct Metadata: Encodable {
        var display_name: String
        var key: String
        var script: String
        /// Seconds.
        var interval: Int64
        /// Seconds.
        var timeout: Int64
    }

    struct Script: Encodable {
        var id: String
        var log_source_id: String
        var log_path: String
        var script: String
        var cron: String
        var run_on_start: Bool
        var run_on_stop: Bool
        var start_blocks_login: Bool
        /// Nanoseconds, as Go writes a duration.
        var timeout: Int64
        var display_name: String
    }

    struct Devcontainer: Encodable {
        var id: String
        var name: String
        var workspace_folder: String
        /// Left out when there is none.
        var config_path: String?
    }

    /// Null without a map, as Go writes it; a property that is nil would be left out.
    struct MapOrNull: Encodable {
        var map: DERPMapReport?

        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            if let map { try container.encode(map) } else { try container.encodeNil() }
        }
    }

    var parent_id: String
    var agent_id: String
    var agent_name: String
    var owner_name: String
    var workspace_id: String
    var workspace_name: String
    var git_auth_configs: UInt32
    var vscode_port_proxy_uri: String
    var apps: [App]
    var derpmap: MapOrNull
    var derp_force_websockets: Bool
    var environment_variables: [String: String]
    var directory: String
    var motd_file: String
    var disable_direct_connections: Bool
    var metadata: [Metadata]
    var scripts: [Script]
    var devcontainers: [Devcontainer]

    package init(_ manifest: ManifestSnapshot) {
        let message = manifest.message
        parent_id = Self.id(message.parentID)
        agent_id = Self.id(message.agentID)
        agent_name = message.agentName
        owner_name = message.ownerUsername
        workspace_id = Self.id(message.workspaceID)
        workspace_name = message.workspaceName
        git_auth_configs = message.gitAuthConfigs
        vscode_port_proxy_uri = message.vsCodePortProxyUri
        apps = message.apps.map(App.init)
        derpmap = MapOrNull(map: message.hasDerpMap ? DERPMapReport(message.derpMap) : nil)
        derp_force_websockets = message.derpForceWebsockets
        environment_variables = message.environmentVariables.mapValues { $0.isEmpty ? "" : "***REDACTED***" }
        directory = message.directory
        motd_file = message.motdPath
        disable_direct_connections = message.disableDirectConnections
        metadata = message.metadata.map { description in
            Metadata(
                display_name: description.displayName, key: description.key, script: description.script,
                interval: description.interval.duration.components.seconds,
                timeout: description.timeout.duration.components.seconds)
        }
        scripts = message.scripts.map { script in
            Script(
                id: Self.id(script.id), log_source_id: Self.id(script.logSourceID), log_path: script.logPath,
                script: script.script, cron: script.cron, run_on_start: script.runOnStart,
                run_on_stop: script.runOnStop, start_blocks_login: script.startBlocksLogin,
                timeout: script.timeout.duration.nanoseconds, display_name: script.displayName)
        }
        devcontainers = message.devcontainers.map { container in
            Devcontainer(
                id: Self.id(container.id), name: container.name, workspace_folder: container.workspaceFolder,
                config_path: container.configPath.isEmpty ? nil : container.configPath)
        }
    }

    /// A UUID's text; all zero for what is not one.
    fileprivate static func id(_ bytes: Data) -> String {
        UUID(wire: bytes)?.lowercased ?? "00000000-0000-0000-0000-000000000000"
    }

    /// Keys in order.
    package func json() throws -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return [UInt8](try encoder.encode(self))
    }
}

extension ManifestReport.App {
    init(_ app: Coder_Agent_V2_WorkspaceApp) {
        id = ManifestReport.id(app.id)
        url = app.url
        external = app.external
        slug = app.slug
        display_name = app.displayName
        command = app.command
        icon = app.icon
        subdomain = app.subdomain
        subdomain_name = app.subdomainName
        sharing_level =
            switch app.sharingLevel {
            case .owner: "owner"
            case .authenticated: "authenticated"
            case .public: "public"
            case .organization: "organization"
            case .unspecified, .UNRECOGNIZED: ""
            }
        healthcheck = .init(
            url: app.healthcheck.url, interval: app.healthcheck.interval.duration.components.seconds,
            threshold: app.healthcheck.threshold)
        health =
            switch app.health {
            case .disabled: "disabled"
            case .initializing: "initializing"
            case .y: "healthy"
            case .unhealthy: "unhealthy"
            case .unspecified, .UNRECOGNIZED: ""
            }
        hidden = app.hidden
    }
}

extension Duration {
    /// The nearest that Go's durations can hold.
    fileprivate var nanoseconds: Int64 {
        let (seconds, attoseconds) = components
        let (product, overflows) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        guard !overflows else { return seconds < 0 ? .min : .max }
        let (sum, sumOverflows) = product.addingReportingOverflow(attoseconds / 1_000_000_000)
        return sumOverflows ? (seconds < 0 ? .min : .max) : sum
    }
}

extension Data {
    /// A UUID's text, or `invalid`.
    package var text: String { UUID(wire: self)?.uuidString.lowercased() ?? "invalid" }
}
