import AgentTestSupport
import ControlPlaneSimulator
import Foundation
import Testing

@testable import WorkspaceAgent

/// The program under the name `coder`.
@Suite("The name coder", .blocking, .timeLimit(.minutes(5))) struct CoderCommandTests {
    /// Runs the built program by a link of that name.
    private func coder(
        _ arguments: String..., link: String = "coder", environment: [String: String] = [:]
    ) throws -> CommandResult {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/\(link)"
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: DaemonProcess.binary)
        return try CommandResult.of([path] + arguments, environment: environment)
    }

    @Test(arguments: [
        ("login", "login"), ("dotfiles https://example.com/x -y", "dotfiles"), ("exp mcp server", "exp mcp"),
        ("exp chat context list", "exp chat"), ("external-auth login", "external-auth login"),
        ("stat foo", "stat foo"), ("sync nonsense", "sync nonsense"), ("proc ls", "proc"),
    ])
    func aCommandThatIsNotOursIsNamed(line: String, command: String) throws {
        let arguments = line.split(separator: " ").map(String.init)
        let text = "coder \(command) is not part of workspace-agent; install Coder's CLI to use it."
        #expect(CoderCommand.refusal(of: arguments) == text)
        let directory = try TemporaryDirectory()
        let link = "\(directory.path)/coder"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: DaemonProcess.binary)
        let result = try CommandResult.of([link] + arguments)
        #expect(result.code == 1 && result.output == "" && result.errors == "\(text)\n")
    }

    @Test(arguments: [
        "", "--help", "help stat", "version", "stat", "stat cpu --host", "stat disk /tmp", "exp sync want a b", "sync",
        "gitssh -- login", "gitaskpass login", "agent --nonsense", "external-auth access-token login", "--nonsense x",
    ])
    func whatIsOursIsNotRefused(line: String) {
        #expect(CoderCommand.refusal(of: line.split(separator: " ").map(String.init)) == nil)
    }

    @Test func controlCharactersOfACommandAreShown() {
        #expect(CoderCommand.refusal(of: ["a\u{1b}[2J\nb"])?.hasPrefix("coder a␛[2J b is not") == true)
    }

    @Test func onlyTheLastPartOfTheNameCounts() throws {
        for name in ["coder", "/usr/bin/coder", "./coder"] { #expect(CoderCommand.isName(name)) }
        for name in ["", "/", "workspace-agent", "coder-x", "/coder/workspace-agent"] {
            #expect(!CoderCommand.isName(name))
        }
        #expect(try coder("proc", "--help", link: "workspace-agent").code == 0)
    }

    @Test func versionAndHelp() throws {
        #expect(try coder("version").output == "workspace-agent \(BuildInfo.version)\n")
        #expect(try coder("--version").output == "workspace-agent \(BuildInfo.version)\n")
        for help in [try coder(), try coder("--help")] {
            #expect(help.code == 0 && help.output.contains("USAGE: coder <subcommand>"), "\(help.output)")
        }
        #expect(try coder("stat", "cpu", "--help").output.contains("USAGE: coder stat cpu"))
        #expect(try coder("agent", "--nonsense").code == 2)
        // What git asks comes in the place of a command.
        let prompt = try coder(
            "Username for 'https://git.example': ",
            environment: ["CODER_AGENT_SOCKET_PATH": "/nonexistent", "CODER_AGENT_URL": ""])
        #expect(prompt.code == 1 && prompt.errors.contains("CODER_AGENT_URL is not set"), "\(prompt.errors)")
    }

    // MARK: external-auth

    private static let token = "gho_\"tok/en\""

    private func auth(
        _ auth: SimulatorServer.ExternalAuth?, _ body: ([String: String], LinkWorld) throws -> Void
    ) async throws {
        let world = try await LinkWorld(server: { $0.externalAuth = auth }) { _, _ in }
        let environment = [
            "CODER_AGENT_URL": world.url, "CODER_AGENT_TOKEN": LinkWorld.token, "no_proxy": "*",
        ]
        try body(environment, world)
        await world.stop()
    }

    @Test func anAccessToken() async throws {
        var answer = SimulatorServer.ExternalAuth(accessToken: Self.token, type: "github")
        answer.id = "git hub"
        answer.tokenExtra = #"{"authed_user":{"id":"U1","scopes":["a"]},"n":7}"#
        try await auth(answer) { environment, world in
            func token(_ arguments: String...) throws -> CommandResult {
                try CommandResult.of(
                    [DaemonProcess.binary, "external-auth", "access-token"] + arguments, environment: environment)
            }
            let plain = try token("git hub")
            #expect(plain.code == 0 && plain.output == Self.token && plain.errors == "", "no newline is added")
            #expect(world.requests("external-auth").last?.hasSuffix("?id=git%20hub&match=") == true)
            #expect(
                try coder("external-auth", "access-token", "git hub", environment: environment).output == Self.token)
            #expect(try token("git hub", "--extra", "authed_user.id").output == "U1")
            #expect(try token("git hub", "--extra", "n").output == "7")
            #expect(try token("git hub", "--extra", "authed_user").output == #"{"id":"U1","scopes":["a"]}"#)
            let none = try token("git hub", "--extra", "nope")
            #expect(none.code == 1 && none.output == "" && none.errors.contains("no field \"nope\""))
            let json = try token("git hub", "-o", "json")
            #expect(json.code == 0 && json.output.hasPrefix("{\n  \"access_token\": \"gho_\\\"tok"), "\(json.output)")
            #expect(json.output.contains("\n  \"token_extra\": {\n    \"authed_user\": {\n      \"id\": \"U1\","))
            #expect(json.output.hasSuffix("\n}"))
            let unknown = try token("other")
            #expect(unknown.code == 1 && unknown.errors.contains("there is no provider other"), "\(unknown.errors)")
            // By flags instead of variables.
            let flags = try CommandResult.of(
                [
                    DaemonProcess.binary, "external-auth", "access-token", "git hub", "--agent-url", world.url,
                    "--agent-token-file", world.tokenFile,
                ], environment: ["CODER_AGENT_URL": "http://127.0.0.1:1", "no_proxy": "*"])
            #expect(flags.output == Self.token, "\(flags.errors)")
        }
    }

    @Test func aTokenWithoutExtraProperties() async throws {
        try await auth(.init(accessToken: "t")) { environment, _ in
            let result = try coder("external-auth", "access-token", "x", "--extra", "a", environment: environment)
            #expect(result.code == 1 && result.output == "")
            #expect(result.errors == "no extra properties found for token\n")
        }
    }

    @Test func whereTheUserHasYetToLogIn() async throws {
        try await auth(.init(accessToken: "", url: "https://c.example/external-auth/github")) { environment, _ in
            let result = try coder("external-auth", "access-token", "github", environment: environment)
            #expect(result.code == 1 && result.output == "https://c.example/external-auth/github")
            let json = try coder(
                "external-auth", "access-token", "github", "--output", "json", environment: environment)
            #expect(json.code == 1 && json.output.contains("\n  \"url\": \"https://c.example/external-auth/github\""))
        }
    }

    @Test(arguments: [
        ("{}", "{}"), ("[ ]", "[]"), (#""a, b: {c}""#, #""a, b: {c}""#), (" 1 ", "1"),
        (#"{"b":1,"a":[]}"#, "{\n  \"b\": 1,\n  \"a\": []\n}"),
        (
            #"{"a" : { "b":[1,{"c":null}], "d": {} } }"#,
            "{\n  \"a\": {\n    \"b\": [\n      1,\n      {\n        \"c\": null\n      }\n    ],\n    \"d\": {}\n  }\n}"
        ),
        (#"{"q":"\"]\\"}"#, "{\n  \"q\": \"\\\"]\\\\\"\n}"), ("[[]]", "[\n  []\n]"),
        (#"["",""]"#, "[\n  \"\",\n  \"\"\n]"),
    ])
    func jsonForPeople(text: String, expected: String) { #expect(IndentedJSON.text(text) == expected) }
}
