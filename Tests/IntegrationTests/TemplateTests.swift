import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import Foundation
import Glibc
import Testing

@testable import ControlPlaneSimulator
@testable import WorkspaceAgent

/// What public templates count on in a workspace: the program `coder` on PATH, a login's variables, helpers that find this
/// daemon, and a command line that is accepted.
@Suite("Templates", .blocking, .timeLimit(.minutes(5))) struct TemplateTests {
    private static let without = ["env", "-u", "USER", "-u", "LOGNAME", "-u", "SHELL", "-u", "HOME"]

    /// Waits for a value of each key.
    private func metadata(
        _ world: LinkWorld, _ keys: Int
    ) async throws -> [String: Coder_Agent_V2_WorkspaceAgentMetadata.Result] {
        @Sendable func results(_ seen: Recording) -> [Coder_Agent_V2_Metadata] {
            seen.requests(AgentAPI.batchUpdateMetadata).flatMap(\.metadata)
        }
        let seen = try await world.recorder.wait("metadata") { Set(results($0).map(\.key)).count >= keys }
        return Dictionary(results(seen).map { ($0.key, $0.result) }) { first, _ in first }
    }

    private func run(_ daemon: DaemonProcess, _ command: String, _ more: [String: Any] = [:]) throws -> String {
        try daemon.connect().run(command, more)["output"] as? String ?? ""
    }

    /// The block that most templates have.
    @Test func aTemplatesMetadataHasValues() async throws {
        let world = try await LinkWorld { manifest, _ in
            manifest.metadata = [
                LinkWorld.metadata("0_cpu_usage", "coder stat cpu", every: 10),
                LinkWorld.metadata("1_ram_usage", "coder stat mem", every: 10),
                LinkWorld.metadata("3_home_disk", "coder stat disk --path ${HOME}", every: 60),
                LinkWorld.metadata("4_cpu_usage_host", "coder stat cpu --host", every: 10),
                LinkWorld.metadata("5_mem_usage_host", "coder stat mem --host", every: 10),
                LinkWorld.metadata(
                    "6_load_host",
                    "\n  echo \"`cat /proc/loadavg | awk '{ print $1 }'` `nproc`\" | awk '{ printf \"%0.2f\", $1/$2 }'\n",
                    every: 60),
                LinkWorld.metadata("all", "coder stat -o json"),
            ]
        }
        let daemon = try world.daemon()
        let found = try await metadata(world, 7)
        for (key, result) in found { #expect(result.error == "", "\(key)") }
        func matches(_ key: String, _ pattern: Regex<Substring>) {
            let value = found[key]?.value ?? ""
            #expect(value.wholeMatch(of: pattern) != nil, "\(key): \(value)")
        }
        matches("0_cpu_usage", /[0-9.]+(?:\/[0-9.]+)? cores(?: \([0-9]+%\))?/)
        matches("1_ram_usage", /[0-9.]+(?:\/[0-9.]+)? GiB(?: \([0-9]+%\))?/)
        matches("3_home_disk", /[0-9.]+\/[0-9.]+ GiB \([0-9]+%\)/)
        matches("4_cpu_usage_host", /[0-9.]+\/[0-9]+ cores \([0-9]+%\)/)
        matches("5_mem_usage_host", /[0-9.]+\/[0-9.]+ GiB \([0-9]+%\)/)
        matches("6_load_host", /[0-9]+\.[0-9]{2}/)
        #expect(found["all"]?.value.contains("\"home_disk\": {") == true)
        #expect(world.recorder.recording.violations == [])
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    // MARK: The link

    @Test func coderIsTheLastEntryOfPathForEverythingThatIsStarted() async throws {
        let world = try await LinkWorld { manifest, _ in
            manifest.scripts = [LinkWorld.script("start", "command -v coder; echo $PATH")]
            manifest.metadata = [LinkWorld.metadata("m", "command -v coder")]
            manifest.environmentVariables = ["PATH": "/nonexistent:$PATH"]
        }
        let daemon = try world.daemon()
        let link = "\(world.directory.path)/state/bin/coder"
        #expect(try await metadata(world, 1)["m"]?.value == link)
        let lines = try await world.recorder.wait("the script's lines") {
            $0.requests(AgentAPI.batchCreateLogs).flatMap(\.logs).count >= 2
        }.requests(AgentAPI.batchCreateLogs).flatMap(\.logs).map(\.output)
        #expect(lines.first == link && lines.last?.hasSuffix(":\(world.directory.path)/state/bin") == true, "\(lines)")
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: link) == DaemonProcess.binary)
        #expect(try run(daemon, "command -v coder; coder version") == "\(link)\nworkspace-agent \(BuildInfo.version)\n")
        #expect(try run(daemon, "echo $PATH", ["env": ["PATH": "/usr/bin:/bin"]]) == "/usr/bin:/bin\n")
        #expect(try run(daemon, "coder exp sync want a b && coder exp sync list").contains("a     pending"))
        // Another program of the name wins.
        let other = "\(world.directory.path)/other"
        try FileManager.default.createDirectory(atPath: other, withIntermediateDirectories: false)
        try Data("#!/bin/sh\necho other\n".utf8).write(to: URL(fileURLWithPath: "\(other)/coder"))
        chmod("\(other)/coder", 0o755)
        #expect(try run(daemon, "PATH=\(other):$PATH; coder stat") == "other\n")
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test func withoutAControlPlaneCoderIsThereToo() async throws {
        let daemon = try DaemonProcess()
        #expect(try run(daemon, "coder stat mem --host").contains(" GiB ("))
        #expect(try run(daemon, "coder login; echo $?").hasSuffix("1\n"))
        #expect(try await daemon.stop() == 0)
    }

    @Test(arguments: [true, false]) func itCanBeTurnedOff(byFlag: Bool) async throws {
        let daemon = try DaemonProcess(
            arguments: byFlag ? ["--no-coder-link"] : [],
            environment: byFlag ? [:] : ["WORKSPACE_AGENT_NO_CODER_LINK": "true"])
        #expect(try !run(daemon, "echo $PATH").contains(daemon.directory.path))
        #expect(access("\(daemon.directory.path)/state/bin", F_OK) != 0)
        #expect(try await daemon.stop() == 0)
    }

    @Test func anOldLinkIsMendedAndOtherPeoplesDirectoryRefused() throws {
        let directory = try TemporaryDirectory()
        let state = directory.path
        #expect(try CoderLink.make(in: state, to: "/opt/one") == "\(state)/bin")
        func target() throws -> String {
            try FileManager.default.destinationOfSymbolicLink(atPath: "\(state)/bin/coder")
        }
        #expect(try target() == "/opt/one")
        #expect(try CoderLink.make(in: state, to: "/opt/two") == "\(state)/bin" && target() == "/opt/two")
        #expect(try CoderLink.make(in: state, to: "/opt/two") == "\(state)/bin" && target() == "/opt/two")
        // A file in its place, as after `cp`.
        unlink("\(state)/bin/coder")
        try Data("x".utf8).write(to: URL(fileURLWithPath: "\(state)/bin/coder"))
        #expect(try CoderLink.make(in: state, to: "/opt/three") == "\(state)/bin" && target() == "/opt/three")
        #expect(try FileManager.default.contentsOfDirectory(atPath: "\(state)/bin") == ["coder"])
        // One that cannot be replaced, and places that others could change.
        unlink("\(state)/bin/coder")
        mkdir("\(state)/bin/coder", 0o700)
        #expect(throws: CoreError.self) { try CoderLink.make(in: state, to: "/opt/four") }
        #expect(try FileManager.default.contentsOfDirectory(atPath: "\(state)/bin") == ["coder"])
        let open = "\(state)/open"
        mkdir(open, 0o700)
        mkdir("\(open)/bin", 0o700)
        chmod("\(open)/bin", 0o777)
        #expect(throws: CoreError.self) { try CoderLink.make(in: open, to: "/opt/agent") }
        let linked = "\(state)/linked"
        mkdir(linked, 0o700)
        symlink("/tmp", "\(linked)/bin")
        #expect(throws: CoreError.self) { try CoderLink.make(in: linked, to: "/opt/agent") }
        mkdir("\(state)/a:b", 0o700)
        #expect(throws: CoreError.self) { try CoderLink.make(in: "\(state)/a:b", to: "/opt/agent") }
    }

    @Test func aPlaceThatOthersCanChangeIsNotOnPath() async throws {
        let directory = try TemporaryDirectory()
        mkdir("\(directory.path)/state", 0o700)
        mkdir("\(directory.path)/state/bin", 0o700)
        chmod("\(directory.path)/state/bin", 0o777)
        let daemon = try DaemonProcess(directory: directory)
        #expect(try !run(daemon, "echo $PATH").contains("state/bin"))
        #expect(daemon.log.contains("commands do not find this program as coder on PATH"))
        #expect(try await daemon.stop() == 0)
    }

    // MARK: Variables

    @Test func aDaemonWithoutALoginGivesWhatTheUserDatabaseHas() async throws {
        let world = try await LinkWorld { manifest, _ in
            manifest.metadata = [LinkWorld.metadata("m", "echo $USER $LOGNAME $SHELL $HOME")]
        }
        let daemon = try world.daemon(wrapper: Self.without)
        let account = try #require(UserAccount.find())
        let expected = "\(account.name) \(account.name) \(account.shell) \(account.home)"
        #expect(try await metadata(world, 1)["m"]?.value == expected)
        #expect(try run(daemon, "echo $USER $LOGNAME $SHELL $HOME") == "\(expected)\n")
        #expect(
            try run(daemon, "echo $SSH_CLIENT/$SSH_CONNECTION/$CS_DISABLE_GETTING_STARTED_OVERRIDE")
                == "0.0.0.0 0 0/0.0.0.0 0 0.0.0.0 0/true\n")
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    /// As in a container that runs as an arbitrary user (`docker run --user 12345`).
    @Test(.enabled(if: geteuid() == 0)) func aUserWithoutAnEntryKeepsWhatTheDaemonHas() async throws {
        let directory = try TemporaryDirectory()
        chown(directory.path, 54_321, 54_321)
        let user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]
        let daemon = try DaemonProcess(
            environment: ["SHELL": "/bin/bash", "HOME": directory.path],
            wrapper: user + ["env", "-u", "USER", "-u", "LOGNAME"], directory: directory)
        #expect(
            try run(daemon, "echo ${USER-none} ${LOGNAME-none} $SHELL $HOME")
                == "none none /bin/bash \(directory.path)\n")
        #expect(try await daemon.stop() == 0)
    }

    /// A daemon that was given everything by flags: its helpers in children find it and the control plane all the same.
    @Test func helpersFindWhatTheDaemonWasGivenByFlags() async throws {
        let authority = try LinkTLSTests.Authority()
        let tls = try authority.issue()
        let login = SimulatorServer.ExternalAuth(accessToken: "a-token", username: "me", password: "pass")
        let world = try await LinkWorld(server: { ($0.tls, $0.externalAuth) = (tls, login) }) { manifest, _ in
            manifest.scripts = [LinkWorld.script("start", "coder external-auth access-token x >answer 2>&1")]
        }
        let port = world.server.address?.port ?? 0
        let daemon = try world.daemon(
            arguments: [
                "--agent-ca-file", authority.ca, "--agent-header", "X-One=a,\"b\"", "--agent-header", "X-Two=c",
                "--agent-header-command", "echo X-Three=d",
            ], url: "https://localhost:\(port)")
        try await world.reported(.ready)
        #expect(ProcFS.text("\(world.directory.path)/answer") == "a-token")
        let settings = """
            printf '%s\\n' "$CODER_AGENT_SOCKET_PATH" "$WORKSPACE_AGENT_HTTP_SOCKET" "$CODER_AGENT_CA_FILE" \
            "$CODER_AGENT_HEADER" "$CODER_AGENT_HEADER_COMMAND" "${CODER_AGENT_AUTH-none}" \
            "${CODER_AGENT_TOKEN_FILE-none}"
            """
        let headers = "\"X-One=a,\"\"b\"\"\",X-Two=c"
        #expect(
            try run(daemon, settings)
                == "\(daemon.agentSocketPath)\n\(daemon.socket)\n\(authority.ca)\n\(headers)\necho X-Three=d\nnone\nnone\n"
        )
        // By the agent socket, and where that is gone by the control plane itself.
        let askpass = "\"$GIT_ASKPASS\" \"Password for 'https://git.example': \""
        for command in [askpass, "CODER_AGENT_SOCKET_PATH=/nonexistent \(askpass)"] {
            let answer = try run(daemon, "\(command) 2>&1")
            #expect(answer == "pass\n", "\(answer)")
        }
        #expect(try run(daemon, "\(DaemonProcess.binary) sync ping") == "Success\n")
        #expect(try run(daemon, "\(DaemonProcess.binary) proc ls --all").contains("sync ping"))
        // It has the key, or would say why not.
        let ssh = try run(daemon, "$GIT_SSH_COMMAND -p 1 127.0.0.1 true 2>&1")
        #expect(ssh.contains("has no key"), "\(ssh)")
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test(arguments: [
        ("", []), ("A=1", ["A=1"]), ("A=1,B=2", ["A=1", "B=2"]), (",A=1,,", ["A=1"]),
        (#""A=1,2",B=3"#, ["A=1,2", "B=3"]),
        (#""A=""x"",y""#, [#"A="x",y"#]), (#"A="x""#, [#"A="x""#]), (#""A=1"#, ["A=1"]),
        (#""A=1"2,B=3"#, ["A=12", "B=3"]),
    ])
    func headersInAVariable(text: String, headers: [String]) {
        #expect(HeaderList.parse(text) == headers)
        #expect(HeaderList.parse(HeaderList.text(headers)) == headers)
    }

    // MARK: The command line

    @Test func flagsOfTheStockAgentAreAcceptedAndSaidOnce() async throws {
        let daemon = try DaemonProcess(
            arguments: [
                "--script-data-dir", "/tmp/x", "--pprof-address", "127.0.0.1:6060", "--debug-address=127.0.0.1:2113",
                "--log-stackdriver", "/dev/null", "--ssh-max-timeout", "72h", "--block-file-transfer",
                "--block-local-port-forwarding=true", "--block-reverse-port-forwarding=false", "--devcontainers-enable",
                "--devcontainers-project-discovery-enable=false", "--devcontainers-discovery-autostart-enable",
                "--socket-server-enabled", "--no-reap=false", "--tailnet-listen-port", "0",
            ],
            environment: [
                "CODER_AGENT_PPROF_ADDRESS": "x", "CODER_AGENT_BLOCK_REVERSE_PORT_FORWARDING": "true",
                "CODER_AGENT_DEBUG_ADDRESS": "",
            ])
        let lines = daemon.log.split(separator: "\n").filter { $0.contains("have no effect here") }
        #expect(lines.count == 1)
        #expect(
            lines.first?.hasSuffix(
                "settings of Coder's agent that have no effect here: --script-data-dir, --pprof-address, "
                    + "--debug-address, --log-stackdriver, --ssh-max-timeout, --block-file-transfer, "
                    + "--block-local-port-forwarding, --devcontainers-enable, "
                    + "--devcontainers-discovery-autostart-enable") == true, "\(lines)")
        #expect(access("\(daemon.directory.path)/agent.sock", F_OK) == 0)
        #expect(try await daemon.stop() == 0)
    }

    @Test func variablesOfTheStockAgentAreSaidToo() async throws {
        let daemon = try DaemonProcess(
            arguments: ["--socket-server-enabled=false"],
            environment: ["CODER_AGENT_PPROF_ADDRESS": "127.0.0.1:6060", "CODER_AGENT_BLOCK_FILE_TRANSFER": "false"])
        #expect(daemon.log.contains("that have no effect here: CODER_AGENT_PPROF_ADDRESS\n"))
        #expect(access("\(daemon.directory.path)/agent.sock", F_OK) != 0)
        #expect(try await daemon.stop() == 0)
        let quiet = try DaemonProcess()
        #expect(!quiet.log.contains("have no effect here"))
        #expect(try await quiet.stop() == 0)
    }

    @Test(arguments: [
        (["agent", "--no-reap=true"], ["agent", "--no-reap"]), (["agent", "--no-reap=F"], ["agent"]),
        (["dev", "--block-file-transfer"], ["dev", "--block-file-transfer=true"]),
        (["agent", "--no-reap=maybe"], ["agent", "--no-reap=maybe"]),
        (["agent", "--no-reap"], ["agent", "--no-reap"]),
        (["proc", "run", "--no-reap=true"], ["proc", "run", "--no-reap=true"]),
    ])
    func switchesMayHaveAValue(typed: [String], parsed: [String]) {
        #expect(TypedArguments.complete(typed, [:]) == parsed)
    }

    @Test func aTailnetPortThatIsNone() throws {
        let result = try CommandResult.ofAgent("agent", "--tailnet-listen-port", "70000")
        #expect(result.code == 2)
        #expect(result.errors.contains("--tailnet-listen-port: must be a port from 0 to 65535, not \"70000\""))
    }
}
