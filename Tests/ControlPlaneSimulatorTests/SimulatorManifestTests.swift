import AgentProto
import FoundationEssentials
import Testing

@testable import ControlPlaneSimulator

@Suite("Simulator: manifest")
struct SimulatorManifestTests {
    private static let id = "5c5f5d1e-8a7e-4d6e-9a5d-0f6c2d5b7a11"

    private func read(_ json: String) throws -> Coder_Agent_V2_Manifest {
        try SimulatedManifest(json: json.utf8).message
    }

    private func problem(_ json: String) -> String {
        do {
            _ = try read(json)
            return "no error"
        } catch {
            return "\(error)"
        }
    }

    @Test("everything a manifest holds is read, under both spellings, ids as text or base64")
    func complete() throws {
        let uuid = try #require(UUID(uuidString: Self.id))
        let manifest = try read(
            """
            {"agentId": "\(Self.id)", "workspace_id": "\(uuid.data.base64EncodedString())", "parentId": "\(Self.id)",
             "directory": "~/src", "environmentVariables": {"agent_id": "not an id", "N": "1"}, "gitAuthConfigs": 3,
             "derpMap": {"anything": [1]}, "motdPath": null,
             "scripts": [{"id": "\(Self.id)", "logSourceId": "\(Self.id)", "script": "true", "timeout": "1.5s",
                          "run_on_start": true, "cron": "@daily"}],
             "apps": [{"slug": "web", "sharingLevel": "OWNER", "health": 3,
                       "healthcheck": {"url": "http://x", "interval": "5s", "threshold": 6}}],
             "metadata": [{"key": "load", "script": "uptime", "interval": "10s"}],
             "devcontainers": [{"id": "\(Self.id)", "subagentId": "\(Self.id)"}],
             "secrets": [{"envName": "A", "value": "aGk"}]}
            """)
        #expect(manifest.agentID == uuid.data && manifest.workspaceID == uuid.data && manifest.parentID == uuid.data)
        #expect(manifest.environmentVariables == ["agent_id": "not an id", "N": "1"])
        #expect(manifest.gitAuthConfigs == 3)
        #expect(manifest.scripts[0].id == uuid.data && manifest.scripts[0].logSourceID == uuid.data)
        #expect(manifest.scripts[0].timeout.seconds == 1 && manifest.scripts[0].timeout.nanos == 500_000_000)
        #expect(manifest.scripts[0].runOnStart)
        #expect(manifest.apps[0].sharingLevel == .owner && manifest.apps[0].health.rawValue == 3)
        #expect(manifest.apps[0].healthcheck.threshold == 6)
        #expect(manifest.devcontainers[0].subagentID == uuid.data)
        #expect(manifest.secrets[0].value == Data("hi".utf8))
    }

    @Test("what a manifest cannot do without is filled in")
    func filledIn() throws {
        let manifest = try read(#"{"scripts": [{"script": "a"}, {"script": "b"}], "apps": [{"slug": "x"}]}"#)
        #expect(manifest.agentID.count == 16 && manifest.workspaceID.count == 16)
        #expect(Set(manifest.scripts.map(\.id)).count == 2)
        #expect(manifest.scripts.allSatisfy { $0.logSourceID.count == 16 })
        #expect(manifest.apps[0].id.count == 16)
    }

    @Test(
        "a mistake is named by its path",
        arguments: [
            (#"{"agentId": "nonsense"}"#, #"agentId: "nonsense" is neither a UUID nor the base64 of 16 bytes"#),
            (#"{"agentId": "aGk="}"#, "agentId: "),
            (#"{"scripts": [{"script": "a"}, {"script": "b", "timeout": "10"}]}"#, #"scripts[1].timeout: "10" is no"#),
            (#"{"scripts": [{"script": "a", "timeout": 10}]}"#, "scripts[0].timeout: must be a duration such as"),
            (#"{"scripts": [{"script": "a", "timeout": "s"}]}"#, "scripts[0].timeout"),
            (#"{"scripts": [{"script": "a", "timeout": "9223372036854775808s"}]}"#, "scripts[0].timeout"),
            (#"{"scripts": [{"script": 1}]}"#, "scripts[0].script: must be a string, not a number"),
            (#"{"scripts": [null]}"#, "scripts[0]: must not be null"),
            (#"{"scripts": {}}"#, "scripts: must be an array, not an object"),
            (#"{"scripts": [{}]}"#, "scripts[0].script: must not be empty"),
            (#"{"script": []}"#, "script: no such field; there are agentId, "),
            (#"{"agentId": "", "agent_id": ""}"#, "agent_id: is given twice"),
            (#"{"apps": [{"slug": "a"}, {"slug": "a"}]}"#, #"apps[1].slug: "a" is there twice"#),
            (#"{"apps": [{"slug": "a", "healthcheck": {"threshold": 1.5}}]}"#, "apps[0].healthcheck.threshold: "),
            (#"{"apps": [{"slug": "a", "sharingLevel": "ALL"}]}"#, #"apps[0].sharingLevel: "ALL" is none of"#),
            (#"{"apps": [{"slug": "a", "sharingLevel": 5}]}"#, "apps[0].sharingLevel: "),
            (#"{"environmentVariables": {"A": 1}}"#, "environmentVariables.A: must be a string"),
            (#"{"metadata": [{"script": "a"}]}"#, "metadata[0].key: must not be empty"),
            (#"{"secrets": [{"value": "aGk="}]}"#, "secrets[0]: needs envName or filePath"),
            (#"{"secrets": [{"envName": "A", "value": "%"}]}"#, "secrets[0].value: is not base64"),
            (#"{"gitAuthConfigs": -1}"#, "gitAuthConfigs: must be a whole number from 0 to"),
            ("[]", "the manifest must be an object, not an array"),
            ("null", "the manifest must be an object"),
            (#"{"a": "#, "the manifest is not JSON"),
            ("", "the manifest is not JSON"),
        ])
    func mistakes(_ json: String, _ text: String) {
        let problem = problem(json)
        #expect(problem.hasPrefix(text), "\(problem)")
    }

    @Test("JSON as deep as a manifest may be is read, deeper is refused")
    func depth() {
        func nested(_ depth: Int) -> String {
            #"{"derpMap": {"a": "# + String(repeating: "[", count: depth) + String(repeating: "]", count: depth) + "}}"
        }
        #expect(problem(nested(SimulatorLimits.manifestDepth - 2)) == "no error")
        #expect(problem(nested(SimulatorLimits.manifestDepth)).contains("nested more than"))
        #expect(problem(nested(100_000)) != "no error")
    }

    @Test("a file that cannot be read is named")
    func missingFile() {
        #expect {
            try SimulatedManifest(path: "/does/not/exist.json")
        } throws: {
            "\($0)" == "cannot read /does/not/exist.json: No such file or directory"
        }
    }

    @Test("the demonstration has one of everything, and passes its own checks")
    func demonstration() throws {
        let manifest = SimulatedManifest.demonstration(
            executable: "/opt/it's here/workspace-agent", agentSocket: "/run/a.sock",
            healthURL: "http://127.0.0.1:1/healthz"
        ).message
        #expect(manifest.scripts.filter(\.runOnStart).count == 2)
        #expect(manifest.scripts.contains { !$0.cron.isEmpty })
        #expect(manifest.scripts.contains { $0.script.contains(#"'/opt/it'\''here/workspace-agent' sync"#) } == false)
        #expect(manifest.scripts[0].script.contains(#"'/opt/it'\''s here/workspace-agent' sync start"#))
        #expect(manifest.metadata.count == 3 && manifest.apps.count == 1 && manifest.secrets.count == 1)
        #expect(!manifest.environmentVariables.isEmpty)
        let json = try manifest.jsonUTF8Data()
        #expect(try SimulatedManifest(json: json).message == manifest)
    }
}
