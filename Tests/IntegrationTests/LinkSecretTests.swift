import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import Foundation
import Glibc
import SwiftProtobuf
import Testing

@testable import ControlPlaneSimulator

/// Secrets of every kind are planted, everything that can fail is made to fail, and then everything
/// that the daemon has said anywhere is searched for them.
@Suite("Link: secrets", .blocking, .timeLimit(.minutes(15))) struct LinkSecretTests {
    private static let header = "planted-header-7f3a91c2"
    private static let userinfo = "planted-userinfo-5d20be81"
    private static let environment = "planted-environment-c41e07aa"
    private static let file = "planted-file-930bd6f4"
    private static let variable = "planted-variable-18c7a5e3"
    private static let unwritten = "planted-unwritten-64a9ff02"
    private static let wrongToken = "planted-wrong-token-e07d3b15"
    private static let all = [
        LinkWorld.token, header, userinfo, environment, file, variable, unwritten, wrongToken,
    ]

    private static func secret(_ value: String, env: String = "", file: String = "") -> Coder_Agent_V2_WorkspaceSecret {
        var secret = Coder_Agent_V2_WorkspaceSecret()
        secret.envName = env
        secret.filePath = file
        secret.value = Data(value.utf8)
        return secret
    }

    private func plant(_ manifest: inout Coder_Agent_V2_Manifest, _ directory: String) {
        manifest.secrets = [
            Self.secret(Self.environment, env: "PLANTED_ENV"),
            Self.secret(Self.file, file: "\(directory)/secrets/file"),
            // Lies below what is a file.
            Self.secret(Self.unwritten, file: "\(directory)/token/below"),
        ]
        manifest.environmentVariables = ["PLANTED_VARIABLE": Self.variable]
        manifest.scripts = [
            LinkWorld.script("fails", "exit 9"),
            LinkWorld.script(
                "works", "printenv PLANTED_ENV PLANTED_VARIABLE > seen; while [ ! -e go ]; do sleep 0.05; done"),
        ]
        manifest.metadata = [
            LinkWorld.metadata("fails", "echo bad >&2; exit 1"),
            LinkWorld.metadata("missing", "no-such-program", every: 1),
        ]
    }

    /// Asserts that no planted secret is in the text.
    private func expectNone(_ text: String, _ place: String) {
        for secret in Self.all where text.contains(secret) {
            let line = text.split(separator: "\n").first { $0.contains(secret) } ?? ""
            Issue.record("\(secret) is in \(place): \(line.prefix(500))")
        }
    }

    private func files(below directory: String) -> [String] {
        let names = FileManager.default.subpaths(atPath: directory) ?? []
        return names.map { "\(directory)/\($0)" }
    }

    private func searchEverything(_ daemon: DaemonProcess, _ world: LinkWorld) throws {
        let connection = try daemon.connect()
        for path in [
            "/debug/logs", "/debug/manifest", "/debug/prometheus", "/healthz", "/api/v0/processes/list", "/nowhere",
            "/api/v0/listening-ports", "/healthz?bad=1",
        ] {
            expectNone(try connection.request("GET", path).text, "GET \(path)")
        }
        let bad = try connection.request(
            "POST", "/api/v0/processes/start", body: #"{"command":"true","workdir":"/nowhere"}"#)
        expectNone(bad.text, "an error body")
        expectNone(daemon.log, "the human log")
        for file in files(below: "\(world.directory.path)/log") { expectNone(ProcFS.text(file), file) }
        expectNone(ProcFS.text("\(world.directory.path)/agent.json"), "the JSON log")
        // The daemon, and all below it.
        var pids = [daemon.pid]
        while let pid = pids.popLast() {
            expectNone(ProcFS.text("/proc/\(pid)/cmdline"), "the arguments of \(pid)")
            pids += ProcFS.children(of: pid).map(\.pid)
        }
    }

    private func variables(_ world: LinkWorld) throws -> [String: String] {
        let port = try #require(world.server.address?.port)
        return [
            "CODER_AGENT_URL": "http://somebody:\(Self.userinfo)@127.0.0.1:\(port)",
            "CODER_AGENT_HEADER": "X-Access=\(Self.header)",
        ]
    }

    private func startDaemon(_ world: LinkWorld, _ variables: [String: String]) throws
        -> DaemonProcess
    {
        let arguments = [
            "--agent-token-file", world.tokenFile, "--boundary-log-proxy-socket-path",
            "\(world.directory.path)/boundary.sock", "--log-json", "\(world.directory.path)/agent.json",
        ]
        return try DaemonProcess(
            arguments: arguments,
            environment: variables.merging(["HOME": world.directory.path]) { old, _ in old },
            logLevel: "trace", directory: world.directory)
    }

    @Test func nothingThatTheDaemonSaysHasOne() async throws {
        let world = try await LinkWorld { manifest, directory in plant(&manifest, directory) }
        let daemon = try startDaemon(world, try variables(world))
        try await world.recorder.wait("scripts and metadata") {
            !$0.requests(AgentAPI.scriptCompleted).isEmpty
                && Set($0.requests(AgentAPI.batchUpdateMetadata).flatMap(\.metadata).map(\.key)).count == 2
        }
        let seen = "\(world.directory.path)/seen"
        try await eventually("the script has seen its environment") { ProcFS.text(seen).contains(Self.variable) }
        #expect(ProcFS.text(seen) == "\(Self.environment)\n\(Self.variable)\n", "the search would find nothing")
        #expect(ProcFS.text("\(world.directory.path)/secrets/file") == Self.file)
        // A command of the process API has them too, and an error of its own.
        let child = try daemon.connect().run("test -n \"$PLANTED_ENV\" && echo there")
        #expect(child["output"] as? String == "there\n")
        // A secret that cannot be written is a warning.
        _ = try await daemon.logged("token/below")
        // While the script runs.
        try searchEverything(daemon, world)
        // A connection that is lost, and one that is refused, with an answer that says the token.
        world.faults.planConnection(
            .refuse(status: 403, body: #"{"message":"the token \#(LinkWorld.token) is out of date"}"#))
        world.server.reset()
        try await eventually("it is refused") { try daemon.linkHealth().contains("refused since") }
        try searchEverything(daemon, world)
        #expect(FileManager.default.createFile(atPath: "\(world.directory.path)/go", contents: nil))
        try await world.reported(.startError)
        try searchEverything(daemon, world)
        for call in world.recorder.recording.calls(AgentAPI.updateStats) { expectNone("\(call.request)", "stats") }
        for call in world.recorder.recording.calls(AgentAPI.batchCreateLogs) { expectNone("\(call.request)", "logs") }
        #expect(try await daemon.stop() == 0)
        expectNone(daemon.log, "the human log")
        expectNone(ProcFS.text("\(world.directory.path)/agent.json"), "the JSON log")
        await world.stop()
    }

    /// A token that is wrong is a secret too, perhaps somewhere else; one that takes its place in the
    /// file is taken without a restart.
    @Test func aTokenThatIsReplaced() async throws {
        let world = try await LinkWorld { manifest, directory in plant(&manifest, directory) }
        try Data(Self.wrongToken.utf8).write(to: URL(fileURLWithPath: world.tokenFile))
        let daemon = try startDaemon(world, try variables(world))
        try await eventually("it is refused") { try daemon.linkHealth().contains("refused since") }
        #expect(try daemon.linkHealth().contains("401"))
        try searchEverything(daemon, world)
        #expect(FileManager.default.createFile(atPath: "\(world.directory.path)/go", contents: nil))
        try Data("\(LinkWorld.token)\n".utf8).write(to: URL(fileURLWithPath: world.tokenFile))
        try await world.reported(.startError)
        #expect(try daemon.linkHealth().contains("connected since"))
        #expect(try await daemon.stop() == 0)
        expectNone(daemon.log, "the human log")
        await world.stop()
    }

    /// What makes no sense is named without its secret.
    @Test(arguments: [
        ["CODER_AGENT_URL": "ftp://somebody:\(userinfo)@127.0.0.1/"],
        ["CODER_AGENT_URL": "http://somebody:\(userinfo)@:99999/"],
        ["CODER_AGENT_URL": "http://127.0.0.1:1", "CODER_AGENT_HEADER": header],
        ["CODER_AGENT_URL": "http://127.0.0.1:1", "CODER_AGENT_HEADER": "bad name=\(header)"],
        ["CODER_AGENT_URL": "http://127.0.0.1:1", "CODER_AGENT_TOKEN": "two\nlines \(wrongToken)"],
        ["CODER_AGENT_URL": "http://127.0.0.1:1", "CODER_AGENT_AUTH": "nonsense", "CODER_AGENT_TOKEN": wrongToken],
    ]) func settingsThatMakeNoSense(variables: [String: String]) throws {
        let directory = try TemporaryDirectory()
        let result = try CommandResult.of(
            [
                "timeout", "60", DaemonProcess.binary, "agent", "--http-socket", "\(directory.path)/http.sock",
                "--state-dir", "\(directory.path)/state", "--log-dir", "\(directory.path)/log", "--socket-path",
                "\(directory.path)/agent.sock", "--boundary-log-proxy-socket-path", "",
            ], environment: ["CODER_AGENT_TOKEN": "x"].merging(variables) { _, new in new })
        #expect(result.code == 2, "\(result.errors)")
        #expect(!result.errors.isEmpty)
        expectNone(result.output + result.errors, "what it prints")
    }
}
