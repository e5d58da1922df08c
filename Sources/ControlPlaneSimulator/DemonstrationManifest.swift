import AgentProto
import FoundationEssentials
import SwiftProtobuf

extension SimulatedManifest {
    /// What `workspace-agent dev` runs when no manifest is given: one of everything.
    /// - Parameters:
    ///   - executable: for scripts that call the daemon's own commands; quoted here.
    ///   - agentSocket: path of the agent socket; without one the start scripts don't use units.
    ///   - healthURL: what the app's health check asks; without one the app has none.
    package static func demonstration(
        executable: String, agentSocket: String?, healthURL: String?
    ) -> SimulatedManifest {
        var manifest = Coder_Agent_V2_Manifest()
        manifest.agentID = UUID().data
        manifest.agentName = "main"
        manifest.workspaceID = UUID().data
        manifest.workspaceName = "dev"
        manifest.ownerUsername = "developer"
        manifest.environmentVariables = ["GREETING": "hello from the manifest", "EDITOR": "vi"]
        manifest.scripts = startScripts(executable, agentSocket) + [heartbeat]
        manifest.metadata = [
            description("load", "Load", "cut -d ' ' -f 1-3 /proc/loadavg", every: 5),
            description(
                "memory", "Memory",
                "awk '/^MemTotal/ { t = $2 } /^MemAvailable/ { a = $2 } "
                    + "END { printf \"%.1f of %.1f GiB\", (t - a) / 1048576, t / 1048576 }' /proc/meminfo",
                every: 10),
            description("disk", "Disk", "df -h / | awk 'NR == 2 { print $3 \" of \" $2 }'", every: 60),
        ]
        manifest.apps = [app(healthURL)]
        var secret = Coder_Agent_V2_WorkspaceSecret()
        secret.envName = "DEMO_SECRET"
        secret.value = Data("this value must not show up in any log".utf8)
        manifest.secrets = [secret]
        return SimulatedManifest(manifest)
    }

    private static func startScripts(_ executable: String, _ agentSocket: String?)
        -> [Coder_Agent_V2_WorkspaceAgentScript]
    {
        guard let agentSocket else {
            return [
                script(
                    "Set up",
                    "echo \"$GREETING\"; echo 'this line is on stderr' >&2; "
                        + "[ -n \"$DEMO_SECRET\" ] && echo 'the secret is in the environment'; echo done")
            ]
        }
        let sync = "\(quoted(executable)) sync"
        let socket = "--socket-path \(quoted(agentSocket))"
        return [
            script(
                "Tools",
                """
                \(sync) start \(socket) tools
                echo "$GREETING: installing tools"
                echo 'this line is on stderr' >&2
                sleep 1
                \(sync) complete \(socket) tools
                """),
            script(
                "Project",
                """
                \(sync) want \(socket) project tools
                echo 'the project waits for the tools'
                \(sync) start \(socket) project
                [ -n "$DEMO_SECRET" ] && echo 'the secret is in the environment'
                \(sync) complete \(socket) project
                """),
        ]
    }

    private static var heartbeat: Coder_Agent_V2_WorkspaceAgentScript {
        var heartbeat = script("Heartbeat", "echo \"still here at $(date +%T)\"")
        heartbeat.runOnStart = false
        heartbeat.startBlocksLogin = false
        // Seconds first: each minute.
        heartbeat.cron = "0 * * * * *"
        return heartbeat
    }

    private static func script(_ name: String, _ text: String) -> Coder_Agent_V2_WorkspaceAgentScript {
        var script = Coder_Agent_V2_WorkspaceAgentScript()
        script.id = UUID().data
        script.logSourceID = UUID().data
        script.displayName = name
        script.script = text
        script.runOnStart = true
        script.startBlocksLogin = true
        script.timeout = Google_Protobuf_Duration(seconds: 60)
        return script
    }

    private static func description(
        _ key: String, _ name: String, _ script: String, every seconds: Int64
    ) -> Coder_Agent_V2_WorkspaceAgentMetadata.Description {
        var description = Coder_Agent_V2_WorkspaceAgentMetadata.Description()
        description.key = key
        description.displayName = name
        description.script = script
        description.interval = Google_Protobuf_Duration(seconds: seconds)
        description.timeout = Google_Protobuf_Duration(seconds: 3)
        return description
    }

    private static func app(_ healthURL: String?) -> Coder_Agent_V2_WorkspaceApp {
        var app = Coder_Agent_V2_WorkspaceApp()
        app.id = UUID().data
        app.slug = "agent-api"
        app.displayName = "Agent API"
        app.sharingLevel = .owner
        app.health = .disabled
        guard let healthURL else { return app }
        app.url = healthURL
        app.healthcheck.url = healthURL
        app.healthcheck.interval = Google_Protobuf_Duration(seconds: 5)
        app.healthcheck.threshold = 3
        app.health = .initializing
        return app
    }

    /// For a shell.
    private static func quoted(_ text: String) -> String {
        "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
    }
}
