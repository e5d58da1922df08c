import AgentProto
import AgentTestSupport
import Foundation
import SwiftProtobuf
import Testing

@testable import WorkspaceScripts

/// What `coder support bundle` gets: every key of the reference's JSON, and no other.
@Suite struct ManifestReportTests {
    private func report(_ message: Coder_Agent_V2_Manifest) throws -> NSDictionary {
        let manifest = try ManifestSnapshot.receive(message, home: "/home/ann", environment: [:]).manifest
        let json = try ManifestReport(manifest).json()
        return try #require(try JSONSerialization.jsonObject(with: Data(json)) as? NSDictionary)
    }

    private func vector(_ name: String) throws -> [String: Any] {
        let suite = name.contains("derpmap") ? "DERPTests" : "AgentProtoTests"
        let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        return try VectorFile.read(name, tests: "\(tests.path)/\(suite)/x")
    }

    @Test func everythingThatAManifestHolds() throws {
        var message = ManifestSnapshotTests.message()
        message.parentID = Data(repeating: 3, count: 16)
        message.gitAuthConfigs = 2
        message.vsCodePortProxyUri = "https://{{port}}.example"
        message.directory = "~/src"
        message.motdPath = "/etc/motd"
        message.disableDirectConnections = true
        message.derpForceWebsockets = true
        message.environmentVariables = ["A": "hush", "EMPTY": ""]
        let messages = try #require(vector("tailnet_messages.json")["messages"] as? [[String: Any]])
        let map = try #require(messages.first { $0["name"] as? String == "derp map" })
        message.derpMap = try Coder_Tailnet_V2_DERPMap(serializedBytes: #require(bytes(fromHex: map["hex"])))
        message.scripts = [
            .with {
                $0.id = Data(repeating: 5, count: 16)
                $0.logSourceID = Data(repeating: 6, count: 16)
                $0.logPath = "x.log"
                $0.script = "#!/bin/sh\necho 1"
                $0.cron = "@daily"
                $0.runOnStart = true
                $0.runOnStop = true
                $0.startBlocksLogin = true
                $0.timeout = .init(seconds: 90, nanos: 5)
                $0.displayName = "S"
            }
        ]
        message.apps = [
            .with {
                $0.id = Data(repeating: 7, count: 16)
                $0.url = "http://localhost:1/a/b"
                $0.external = true
                $0.slug = "code"
                $0.displayName = "Code"
                $0.command = "code"
                $0.icon = "/icon.svg"
                $0.subdomain = true
                $0.subdomainName = "code--main"
                $0.sharingLevel = .authenticated
                $0.healthcheck = .with {
                    $0.url = "http://localhost:1/healthz"
                    $0.interval = .init(seconds: 5)
                    $0.threshold = 6
                }
                $0.health = .initializing
                $0.hidden = true
            }, .init(),
        ]
        message.metadata = [
            .with {
                $0.displayName = "CPU"
                $0.key = "cpu"
                $0.script = "coder stat cpu"
                $0.interval = .init(seconds: 10)
                $0.timeout = .init(seconds: 1)
            }
        ]
        message.devcontainers = [
            .with {
                $0.id = Data(repeating: 8, count: 16)
                $0.name = "dev"
                $0.workspaceFolder = "/work"
                $0.configPath = "/work/.devcontainer.json"
            },
            .with { $0.name = "plain" },
        ]
        func id(_ digits: String) -> String {
            let text = String(repeating: digits, count: 16)
            return [text.prefix(8), text.dropFirst(8).prefix(4), text.prefix(4), text.prefix(4), text.prefix(12)]
                .joined(separator: "-")
        }
        let zero = id("00")
        let expected: NSDictionary = [
            "parent_id": id("03"), "agent_id": "01020304-0506-0708-090a-0b0c0d0e0f10", "agent_name": "main",
            "owner_name": "ann", "workspace_id": "11121314-1516-1718-191a-1b1c1d1e1f20", "workspace_name": "ws",
            "git_auth_configs": 2, "vscode_port_proxy_uri": "https://{{port}}.example",
            "apps": [
                [
                    "id": id("07"), "url": "http://localhost:1/a/b", "external": true, "slug": "code",
                    "display_name": "Code", "command": "code", "icon": "/icon.svg", "subdomain": true,
                    "subdomain_name": "code--main", "sharing_level": "authenticated",
                    "healthcheck": ["url": "http://localhost:1/healthz", "interval": 5, "threshold": 6] as NSDictionary,
                    "health": "initializing", "hidden": true,
                ] as NSDictionary,
                [
                    "id": zero, "url": "", "external": false, "slug": "", "display_name": "", "command": "",
                    "icon": "", "subdomain": false, "subdomain_name": "", "sharing_level": "",
                    "healthcheck": ["url": "", "interval": 0, "threshold": 0] as NSDictionary, "health": "",
                    "hidden": false,
                ] as NSDictionary,
            ],
            "derpmap": try #require(vector("tailnet_derpmap.json")["map"] as? NSDictionary),
            "derp_force_websockets": true, "environment_variables": ["A": "***REDACTED***", "EMPTY": ""],
            "directory": "~/src", "motd_file": "/etc/motd", "disable_direct_connections": true,
            "metadata": [
                ["display_name": "CPU", "key": "cpu", "script": "coder stat cpu", "interval": 10, "timeout": 1]
                    as NSDictionary
            ],
            "scripts": [
                [
                    "id": id("05"), "log_source_id": id("06"), "log_path": "x.log", "script": "#!/bin/sh\necho 1",
                    "cron": "@daily", "run_on_start": true, "run_on_stop": true, "start_blocks_login": true,
                    "timeout": 90_000_000_005, "display_name": "S",
                ] as NSDictionary
            ],
            "devcontainers": [
                [
                    "id": id("08"), "name": "dev", "workspace_folder": "/work",
                    "config_path": "/work/.devcontainer.json",
                ] as NSDictionary,
                ["id": zero, "name": "plain", "workspace_folder": ""] as NSDictionary,
            ],
        ]
        let found = try report(message)
        for key in Set((expected.allKeys + found.allKeys).compactMap { $0 as? String }) {
            #expect(found[key] as? NSObject == expected[key] as? NSObject, "\(key)")
        }
    }

    @Test func whatIsAbsentIsEmptyAndNeverACount() throws {
        var message = Coder_Agent_V2_Manifest()
        message.agentID = Data(1...16)
        let found = try report(message)
        #expect(found.count == 18)
        for key in ["apps", "metadata", "scripts", "devcontainers"] { #expect(found[key] as? NSArray == [], "\(key)") }
        for key in ["parent_id", "workspace_id"] {
            #expect(found[key] as? String == "00000000-0000-0000-0000-000000000000")
        }
        #expect(found["derpmap"] is NSNull && found["environment_variables"] as? NSDictionary == [:])
    }

    /// A hostile map or duration costs neither the answer nor a crash.
    @Test func numbersThatJSONDoesNotHave() throws {
        var message = ManifestSnapshotTests.message()
        message.derpMap.homeParams.regionScore = [1: .infinity, 2: .nan, 3: 0.5]
        message.scripts[0].timeout = .init(seconds: .max, nanos: .max)
        message.metadata = [.with { $0.interval = .init(seconds: .min, nanos: .min) }]
        let found = try report(message)
        let map = try #require(found["derpmap"] as? NSDictionary)
        #expect(map["HomeParams"] as? NSDictionary == ["RegionScore": ["3": 0.5]])
        #expect((found["scripts"] as? [[String: Any]])?.first?["timeout"] as? Int64 == .max)
    }
}
