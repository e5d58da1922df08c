import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

/// What git shows to a person when it calls us and there is no control plane.
@Suite("Git commands", .blocking, .timeLimit(.minutes(5))) struct GitCommandTests {
    private let directory: TemporaryDirectory
    init() throws { directory = try TemporaryDirectory() }

    private func run(_ arguments: [String], _ variables: [String: String]) throws -> CommandResult {
        // An ssh that shows that it ran.
        let ssh = "\(directory.path)/ssh"
        try Data("#!/bin/sh\necho ssh \"$@\"\n".utf8).write(to: URL(fileURLWithPath: ssh))
        chmod(ssh, 0o755)
        let clean = [
            "CODER_AGENT_URL", "CODER_AGENT_TOKEN", "CODER_AGENT_TOKEN_FILE", "CODER_AGENT_CA_FILE", "http_proxy",
            "https_proxy", "HTTP_PROXY", "HTTPS_PROXY",
        ].flatMap { ["-u", $0] }
        let set = variables.map { "\($0)=\($1)" } + ["PATH=\(directory.path):/usr/bin:/bin"]
        return try CommandResult.of(["/usr/bin/env"] + clean + set + [DaemonProcess.binary] + arguments)
    }

    static let missing: [(variables: [String: String], says: String)] = [
        ([:], "CODER_AGENT_URL is not set"),
        (["CODER_AGENT_URL": "http://127.0.0.1:1"], "neither CODER_AGENT_TOKEN nor CODER_AGENT_TOKEN_FILE is set"),
        (
            ["CODER_AGENT_URL": "http://127.0.0.1:1", "CODER_AGENT_TOKEN": "x"],
            "Connection refused; check CODER_AGENT_URL"
        ),
        (
            ["CODER_AGENT_URL": "http://no-such-host.invalid", "CODER_AGENT_TOKEN": "x"],
            "the host name no-such-host.invalid is not known; check CODER_AGENT_URL"
        ),
        (
            ["CODER_AGENT_URL": "https://127.0.0.1:1", "CODER_AGENT_TOKEN": "x", "CODER_AGENT_CA_FILE": "/no/such"],
            "--agent-ca-file: cannot read /no/such: No such file or directory; check the variables CODER_AGENT_"
        ),
        (
            ["CODER_AGENT_URL": "https://127.0.0.1:1", "CODER_AGENT_TOKEN": "x", "CODER_AGENT_CA_FILE": "/etc/passwd"],
            "--agent-ca-file: /etc/passwd has no PEM certificates"
        ),
        (
            ["CODER_AGENT_URL": "http://127.0.0.1:1", "CODER_AGENT_TOKEN_FILE": "/no/such"],
            "--agent-token-file: cannot read /no/such: No such file or directory; check the variables CODER_AGENT_"
        ),
    ]

    @Test(arguments: missing.indices, [["gitssh", "--", "git@github.com"], ["Username for 'https://github.com': "]])
    func oneLineSaysWhatToTry(index: Int, arguments: [String]) throws {
        let (variables, says) = Self.missing[index]
        let result = try run(arguments, variables)
        // ssh may do with the machine's own keys; for a password there is no other source.
        let isSSH = arguments[0] == "gitssh"
        #expect(result.code == (isSSH ? 0 : 1))
        #expect(result.output == (isSSH ? "ssh git@github.com\n" : ""))
        #expect(result.errors.hasPrefix("workspace-agent: ") && result.errors.contains(says), "\(result.errors)")
        #expect(result.errors.split(separator: "\n").count == 1)
        for word in ["Error", "Failure", "NIO", "errno", "(message"] { #expect(!result.errors.contains(word)) }
        #expect(result.errors.contains("going on with this machine's keys") == isSSH)
    }

    @Test func helpIsOurs() throws {
        for arguments in [["gitssh", "--help"], ["gitssh", "-h"], ["help", "gitssh"]] {
            let result = try run(arguments, [:])
            #expect(result.code == 0 && result.errors == "")
            #expect(result.output.contains("USAGE: workspace-agent gitssh"), "\(result.output)")
        }
    }

    /// A control plane that has no key is no reason to withhold this machine's; and what follows -- is ssh's.
    @Test func sshGetsEverythingBehindTheDashes() async throws {
        let world = try await LinkWorld { _, _ in }
        let variables = ["CODER_AGENT_URL": world.url, "CODER_AGENT_TOKEN": LinkWorld.token]
        for (given, got) in [
            (["gitssh", "--", "--help"], "ssh --help\n"), (["gitssh", "--", "-h", "--", "x y"], "ssh -h -- x y\n"),
            (["gitssh", "-p", "22", "git@host", "--version"], "ssh -p 22 git@host --version\n"),
        ] {
            let result = try run(given, variables)
            #expect(result.code == 0 && result.output == got)
            #expect(result.errors.contains("going on with this machine's"))
        }
        await world.stop()
    }

    /// A wrong file ends the daemon at its start; it would wait for a connection for ever.
    @Test func aBadCAFileIsSaidAtTheStart() throws {
        mkfifo("\(directory.path)/pipe", 0o600)
        for (file, says) in [
            ("/no/such", "cannot read /no/such: No such file or directory"),
            ("/etc/passwd", "/etc/passwd has no PEM certificates"),
            ("\(directory.path)/pipe", "is a named pipe"),
        ] {
            let result = try CommandResult.of([
                "timeout", "60", DaemonProcess.binary, "agent", "--agent-url", "https://127.0.0.1:1", "--agent-token",
                "x", "--agent-ca-file", file, "--http-socket", "\(directory.path)/http.sock", "--state-dir",
                "\(directory.path)/state", "--log-dir", "\(directory.path)/log", "--socket-path",
                "\(directory.path)/agent.sock", "--boundary-log-proxy-socket-path", "",
            ])
            #expect(result.code == 1)
            #expect(result.errors.hasPrefix("workspace-agent: --agent-ca-file: ") && result.errors.contains(says))
            #expect(result.errors.split(separator: "\n").count == 1, "\(result.errors)")
        }
    }
}
