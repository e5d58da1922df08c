import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import WorkspaceAgent

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

    /// The first Ctrl-C ends it in order, the second at once and as a shell expects of an interrupted program.
    @Test func theSecondInterruptExits130() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let child = try connection.pid(try connection.start("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
        try await eventually("it ignores SIGTERM") {
            try connection.list("?running=true").first?["total_bytes"] as? Int == 6
        }
        daemon.signal(SIGINT)
        _ = try daemon.notified("STOPPING=1")
        daemon.signal(SIGINT)
        #expect(try await daemon.wait() >> 8 == 130)
        kill(-child, SIGKILL)
    }

    @Test(arguments: [
        (["agent", "--log-level", "loud"], "agent"), (["agent", "--nonsense"], "agent"),
        (["dev", "--http-auth", "maybe"], "dev"), (["dev", "--state-dir", "relative"], "dev"),
        (["sync", "want"], "sync want"), (["desktop", "screenshot", "--width", "3", "x"], "desktop screenshot"),
    ])
    func aUsageErrorShowsTheUsageOfWhatWasTyped(arguments: [String], command: String) throws {
        let result = try CommandResult.of([DaemonProcess.binary] + arguments)
        #expect(result.code == 2)
        #expect(result.errors.contains("Usage: workspace-agent \(command) "), "\(result.errors)")
        #expect(result.errors.contains("'workspace-agent \(command) --help'"), "\(result.errors)")
    }

    /// `--flag=` is an empty value, which wins over the variable as any other does.
    @Test func anEmptyFlagIsAnEmptyValue() throws {
        let directory = try TemporaryDirectory()
        let daemon = try DaemonProcess(
            arguments: ["--http-address=", "--log-json=", "--http-allowed-host=", "--directory="],
            environment: [
                "WORKSPACE_AGENT_HTTP_ADDRESS": "nonsense", "CODER_AGENT_LOGGING_JSON": "\(directory.path)/log.json",
                "WORKSPACE_AGENT_DIRECTORY": "relative",
            ])
        #expect(try daemon.connect().request("GET", "/").status == 200)
        #expect(!FileManager.default.fileExists(atPath: "\(directory.path)/log.json"))
        #expect(try CommandResult.ofAgent("desktop", "screenshot", "--width=", "x").code == 2)
    }

    @Test func variablesStandForFlagsThatAreNotTyped() {
        let environment = [
            "WORKSPACE_AGENT_SYNC_OUTPUT": "json", "WORKSPACE_AGENT_SYNC_TIMEOUT": "3s",
            "WORKSPACE_AGENT_SYNC_FOLLOW": "yes", "WORKSPACE_AGENT_NO_OPEN": "0", "WORKSPACE_AGENT_CHAT": "",
        ]
        func complete(_ line: String) -> String {
            TypedArguments.complete(line.split(separator: " ").map(String.init), environment).joined(separator: " ")
        }
        #expect(complete("sync list") == "sync list --output json")
        #expect(complete("exp sync list") == "exp sync list --output json")
        #expect(complete("sync list --output=table") == "sync list --output=table")
        #expect(complete("sync list -o table") == "sync list -o table")
        #expect(complete("sync start u") == "sync start --timeout 3s u")
        #expect(complete("sync start u --timeout= -- --x=") == "sync start u --timeout  -- --x=")
        #expect(complete("sync timeline -o table") == "sync timeline --follow -o table")
        #expect(complete("desktop view") == "desktop view")
        #expect(complete("git watch") == "git watch")
        #expect(complete("gitssh -- sync list") == "gitssh -- sync list")
        #expect(complete("") == "")
    }

    /// Each flag's help ends with the name of its variable.
    @Test func everyFlagNamesItsVariable() throws {
        struct Argument: Decodable {
            var kind: String
            var valueName: String?
            var abstract: String?
        }
        struct Command: Decodable {
            var commandName: String
            var arguments: [Argument]?
            var subcommands: [Command]?
        }
        struct Dump: Decodable { var command: Command }
        let result = try CommandResult.ofAgent("--experimental-dump-help")
        let dump = try JSONDecoder().decode(Dump.self, from: Data(result.output.utf8))
        var count = 0
        func check(_ command: Command, _ path: String) {
            for argument in command.arguments ?? [] where argument.kind != "positional" {
                guard let name = argument.valueName, !["help", "version"].contains(name) else { continue }
                count += 1
                let text = argument.abstract ?? ""
                let names = text.range(
                    of: #"\[(WORKSPACE_AGENT|CODER_AGENT)_[A-Z_]+(, commas)?\]$"#, options: .regularExpression)
                #expect(names != nil, "\(path) --\(name): \(text)")
            }
            for child in command.subcommands ?? [] where child.commandName != "help" {
                check(child, "\(path) \(child.commandName)")
            }
        }
        check(dump.command, "workspace-agent")
        #expect(count > 60)
    }

    /// Programs below it come first in the PATH of every child, so another user must not be able to fill it.
    @Test(arguments: [mode_t(0o777), 0o770, 0o702]) func aStateDirectoryOpenToOthersIsRefused(mode: mode_t) throws {
        let directory = try TemporaryDirectory()
        chmod(directory.path, mode)
        let result = try CommandResult.ofAgent(
            "agent", "--http-socket=", "--socket-path", "\(directory.path)/s", "--state-dir", directory.path)
        #expect(result.code == 1)
        #expect(result.errors.contains("workspace-agent: the state directory cannot be used: \(directory.path) is"))
        #expect(result.errors.split(separator: "\n").count == 1, "\(result.errors)")
    }

    @Test(.enabled(if: geteuid() == 0)) func aStateDirectoryOfAnotherUserIsRefused() throws {
        let directory = try TemporaryDirectory()
        chown(directory.path, 65534, 65534)
        let result = try CommandResult.ofAgent("agent", "--http-socket=", "--state-dir", directory.path)
        #expect(result.code == 1)
        #expect(result.errors.contains("belongs to uid 65534"), "\(result.errors)")
    }

    /// What another user left in a shared log directory neither holds the start nor the threads that read the log.
    @Test(.timeLimit(.minutes(3))) func aFIFOInThePlaceOfTheLogStopsNothing() async throws {
        let directory = try TemporaryDirectory()
        mkfifo("\(directory.path)/workspace-agent.log", 0o666)
        let daemon = try DaemonProcess(arguments: ["--log-dir", directory.path])
        let connection = try daemon.connect()
        for _ in 0..<20 { #expect(try connection.request("GET", "/debug/logs").status == 200) }
        #expect(try connection.run("echo hello")["output"] as? String == "hello\n")
        #expect(daemon.log.contains("no log file: \(directory.path)/workspace-agent.log is a named pipe"))
        #expect(try await daemon.stop() == 0)

        unlink("\(directory.path)/workspace-agent.log")
        for number in 1...3 { mkfifo("\(directory.path)/workspace-agent.log.\(number)", 0o666) }
        let second = try DaemonProcess(arguments: ["--log-dir", directory.path])
        let logs = try second.connect().request("GET", "/debug/logs")
        #expect(logs.status == 200 && logs.text.contains("listening on"))
        #expect(try await second.stop() == 0)
    }

    /// A client sends nothing to a socket that another user serves under the name it looks for.
    @Test(.enabled(if: geteuid() == 0)) func aSocketOfAnotherUserIsRefused() async throws {
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o777)
        let path = "\(directory.path)/agent.sock"
        let program = """
            import socket, sys
            s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(9); print('up', flush=True)
            while True: print(s.accept()[0].recv(9), flush=True)
            """
        let line =
            "exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c \"$0\" \(path) > \(path).out"
        let server = try DaemonProcess.spawn(
            ["/bin/sh", "-c", line, program], ProcessInfo.processInfo.environment)
        defer {
            kill(server, SIGKILL)
            waitpid(server, nil, 0)
        }
        try await eventually("it listens") { readTextFile("\(path).out")?.hasPrefix("up") == true }
        for arguments in [["sync", "ping", "--socket-path", path], ["desktop", "start", "--http-socket", path]] {
            let result = try CommandResult.of([DaemonProcess.binary] + arguments)
            #expect(result.code == 1)
            #expect(result.errors.contains("\(path) is served by uid 65534, neither you nor root"), "\(result.errors)")
        }
        // Both have connected and sent nothing.
        try await eventually("it saw both") { readTextFile("\(path).out") == "up\nb''\nb''\n" }
    }
}
