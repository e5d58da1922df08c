import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import GitCredentials

/// Git's questions, those of real git included.
@Suite("Git's questions", .timeLimit(.minutes(2))) struct GitPromptTests {
    static let understood: [(String, GitPrompt)] = [
        ("Username for \"http://host:8080\"", GitPrompt(field: .username, url: "http://host:8080", user: nil)),
        ("Password for \"https://me@host/x\"", GitPrompt(field: .password, url: "https://host/x", user: "me")),
        ("Password for https://me@host: ", GitPrompt(field: .password, url: "https://host", user: "me")),
        ("Password for 'https://a%2Fb%40c@host': ", GitPrompt(field: .password, url: "https://host", user: "a/b@c")),
        ("Password for 'https://100%@host': ", GitPrompt(field: .password, url: "https://host", user: "100%")),
        ("Username for 'https://github.com': ", GitPrompt(field: .username, url: "https://github.com", user: nil)),
        ("Username for 'https://host:8443': ", GitPrompt(field: .username, url: "https://host:8443", user: nil)),
        (
            "Username for 'https://host/group/project.git': ",
            GitPrompt(field: .username, url: "https://host/group/project.git", user: nil)
        ),
        ("Password for 'https://me@host': ", GitPrompt(field: .password, url: "https://host", user: "me")),
        (
            "Password for 'https://me@corp.com@host:1': ",
            GitPrompt(field: .password, url: "https://host:1", user: "me@corp.com")
        ),
        (
            "Password for 'http://me@[::1]:80/a b': ",
            GitPrompt(field: .password, url: "http://[::1]:80/a b", user: "me")
        ),
        (
            "Password for 'https://it's@host/it's': ",
            GitPrompt(field: .password, url: "https://host/it's", user: "it's")
        ),
        ("Password for 'https://host': ", GitPrompt(field: .password, url: "https://host", user: nil)),
        ("Password for 'https://mé@hôst': ", GitPrompt(field: .password, url: "https://hôst", user: "mé")),
    ]

    @Test(arguments: understood) func understands(text: String, prompt: GitPrompt) throws {
        #expect(GitPrompt.isPrompt(text))
        #expect(try GitPrompt(text) == prompt)
    }

    /// A login for one host must not go to another, whatever stands in a URL that was cloned.
    @Test(arguments: [
        "Password for 'https://github.com/x@evil.com': ", "Password for 'https://evil.com/x@github.com': ",
        "Password for 'https://me@evil.com/@github.com/x': ", "Username for 'https://me@github.com': ",
        "Username for 'https://evil.com?github.com': ", "Username for 'https://evil.com#@github.com': ",
        "Password for 'https://me@': ", "Password for 'https://': ", "Password for 'https:///path': ",
        "Password for 'https://me@host/\u{1b}[2J': ", "Password for 'https://me@ho\u{9b}st': ",
        "Password for 'https://me@host/\u{202e}': ", "Password for 'https://me@host\": ",
        "Password for 'me@host': ", "Password for ", "Password for '", "Password for '': ",
        "Username for 'https://a b': ",
        "Username for 'https://evil.com\\github.com': ", "Username for 'https://a\nb': ",
        "Password for 'ftp://me@host': ",
        "Password for 'cert:///key.pem': ", "Password for 'HTTPS://me@host': ", "Username: ", "Password: ",
        "Enter passphrase for key '/home/me/.ssh/id_rsa': ", "", "Password for 'smtp://me@mail:587': ",
    ]) func refuses(text: String) {
        let refusal = #expect(throws: GitPrompt.Refusal.self) { try GitPrompt(text) }
        // It may be a token.
        #expect(refusal?.message.contains("me@") != true)
    }

    /// What git really asks, with a GIT_ASKPASS that writes it down. Older ones leave a user name as it is, which then
    /// hides the host.
    @Test(
        arguments: [
            ("protocol=https\nhost=host:8443\n", [], ["https://host:8443", "https://host:8443"]),
            (
                "protocol=https\nhost=host\npath=group/project.git\n", ["-c", "credential.useHttpPath=true"],
                ["https://host/group/project.git", "https://host/group/project.git"]
            ),
            ("protocol=http\nhost=[::1]:8080\nusername=me@corp.com\n", [], ["http://[::1]:8080"]),
            ("protocol=https\nhost=github.com\nusername=a/b\n", [], ["https://github.com"]),
        ] as [(String, [String], [String])])
    func whatGitAsks(description: String, options: [String], urls: [String]) throws {
        let directory = try TemporaryDirectory()
        let script = "\(directory.path)/askpass"
        try "#!/bin/sh\nprintf '%s\\0' \"$1\" >> \(directory.path)/asked\necho answer\n".write(
            toFile: script, atomically: true, encoding: .utf8)
        chmod(script, 0o755)
        try description.write(toFile: "\(directory.path)/in", atomically: true, encoding: .utf8)
        let result = try CommandResult.of(
            ["/bin/sh", "-c", "exec git \"$@\" credential fill < \(directory.path)/in", "sh"] + options,
            environment: [
                "GIT_ASKPASS": script, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "HOME": directory.path,
            ])
        #expect(result.code == 0, "\(result.errors)")
        let asked = ProcFS.text("\(directory.path)/asked").split(separator: "\0").map(String.init)
        let understood = asked.map { try? GitPrompt($0).url }
        #expect(understood == urls || (understood == [nil] && asked[0].contains("a/b@")), "\(asked)")
        #expect(asked.allSatisfy(GitPrompt.isPrompt))
    }
}
