import AgentTestSupport
import Glibc
import Testing

@Suite(.blocking) struct CommandLineTests {
    @Test func version() throws {
        for arguments in ["version", "--version"] {
            let result = try CommandResult.ofAgent(arguments)
            #expect(result.code == 0)
            #expect(result.output.hasPrefix("workspace-agent "))
            #expect(result.output.split(separator: "\n").count == 1)
            #expect(result.errors == "")
        }
    }

    @Test func help() throws {
        for arguments in [["--help"], ["agent", "--help"], ["version", "--help"], ["help", "agent"]] {
            let result = try CommandResult.of([DaemonProcess.binary] + arguments)
            #expect(result.code == 0)
            #expect(result.output.contains("USAGE: workspace-agent"))
            #expect(result.output.contains("Example:"))
        }
    }

    @Test(arguments: [
        ["agent", "--nonsense"], ["nonsense"], ["agent", "--http-address", "nonsense"],
        ["agent", "--http-address", "localhost:99999"], ["agent", "--http-address", ":1"],
        ["agent", "--http-socket", "relative"], ["agent", "--http-auth", "maybe"], ["agent", "--log-level", "loud"],
        ["agent", "--state-dir", "relative"], ["agent", "--directory", "relative"], ["agent", "stray"],
        ["agent", "--prometheus-address", "9"], ["agent", "--http-token-file"],
    ])
    func badUsage(arguments: [String]) throws {
        let result = try CommandResult.of([DaemonProcess.binary] + arguments)
        #expect(result.code == 2)
        #expect(result.output == "")
        #expect(!result.errors.isEmpty)
    }

    @Test func badEnvironment() throws {
        let result = try CommandResult.ofAgent("agent", environment: ["WORKSPACE_AGENT_LOG_LEVEL": "loud"])
        #expect(result.code == 2)
    }

    @Test func theFlagWinsOverTheEnvironment() throws {
        let daemon = try DaemonProcess(environment: [
            "WORKSPACE_AGENT_HTTP_SOCKET": "/nonexistent/socket", "WORKSPACE_AGENT_LOG_LEVEL": "loud",
            "WORKSPACE_AGENT_STATE_DIR": "relative",
        ])
        #expect(try daemon.connect().request("GET", "/").status == 200)
    }

    @Test func theDirectoryFlagIsWhereCommandsRun() throws {
        let directory = try TemporaryDirectory()
        let daemon = try DaemonProcess(arguments: ["--directory", directory.path])
        #expect(try daemon.connect().run("pwd")["output"] as? String == "\(directory.path)\n")
    }

    @Test(arguments: [SIGTERM, SIGINT]) func aSignalEndsTheDaemonInOrder(signal: Int32) async throws {
        let daemon = try DaemonProcess()
        daemon.signal(signal)
        #expect(try await daemon.wait() == 0)
        #expect(daemon.log.contains("stopped"))
    }

    @Test func theSecondSignalEndsItAtOnce() async throws {
        let daemon = try DaemonProcess()
        // Keeps the shutdown busy for two seconds.
        let connection = try daemon.connect()
        let child = try connection.pid(try connection.start("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
        try await eventually("it ignores SIGTERM") {
            try connection.list("?running=true").first?["total_bytes"] as? Int == 6
        }
        daemon.signal(SIGTERM)
        _ = try daemon.notified("STOPPING=1")
        daemon.signal(SIGTERM)
        #expect(try await daemon.wait() >> 8 == 1)
        #expect(!daemon.log.contains("stopped"))
        kill(-child, SIGKILL)
    }
}
