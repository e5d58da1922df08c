import Glibc
import Testing

@testable import GitCredentials

@Suite("Arguments of ssh") struct SSHArgumentsTests {
    /// What it was given, and how that changes arguments that have no more than the host `h`.
    private static var understood: [([String], (inout SSHArguments) -> Void)] {
        [
            (["h"], { _ in }),
            (["h", "git-upload-pack 'a b'"], { $0.command = "git-upload-pack 'a b'" }),
            (["h", "git-upload-pack", "'a'"], { $0.command = "git-upload-pack 'a'" }),
            (["u@h"], { $0.user = "u" }),
            (["u@v@h"], { $0.user = "u@v" }),
            (["-l", "v", "u@h"], { $0.user = "v" }),
            (["-lv", "-o", "User=w", "h"], { $0.user = "v" }),
            (["-p", "23", "h"], { $0.port = 23 }),
            (["-p23", "-p24", "h"], { $0.port = 23 }),
            (["-4", "h"], { $0.family = AF_INET }),
            (["-6", "h"], { $0.family = AF_INET6 }),
            (["-Tqxa4", "h"], { $0.family = AF_INET }),
            (["-Tp", "23", "h"], { $0.port = 23 }),
            (["-vvv", "h"], { $0.isVerbose = true }),
            (["-n", "h"], { $0.readsInput = false }),
            (["h", "-p", "23", "x"], { ($0.port, $0.command) = (23, "x") }),
            (["h", "x", "-p", "23"], { $0.command = "x -p 23" }),
            (["--", "h", "-p", "23"], { $0.command = "-p 23" }),
            (["h", "--", "x"], { $0.command = "x" }),
            (["-i", "/a b", "-i/c", "-oIdentityFile=~/d", "h"], { $0.identityFiles = ["/a b", "/c", "~/d"] }),
            (["-o", "SendEnv=GIT_PROTOCOL", "h"], { $0.sendEnv = ["GIT_PROTOCOL"] }),
            (["-o", "SendEnv=A B", "-o", "sendenv C -A", "h"], { $0.sendEnv = ["B", "C"] }),
            (
                ["-o", "SetEnv=A=b C=\"d e\"", "h"],
                { $0.setEnv = [.init(name: "A", value: "b"), .init(name: "C", value: "d e")] }
            ),
            (["-o", "Port 23", "h"], { $0.port = 23 }),
            (["-oPORT = 23", "h"], { $0.port = 23 }),
            (
                ["-o", "HostName=real", "-o", "HostKeyAlias=alias", "h"],
                { ($0.hostName, $0.hostKeyAlias) = ("real", "alias") }
            ),
            (["-o", "StrictHostKeyChecking=accept-new", "h"], { $0.unknownHosts = .accept }),
            (
                ["-o", "StrictHostKeyChecking=NO", "-o", "StrictHostKeyChecking=yes", "h"],
                { $0.unknownHosts = .accept }
            ),
            (["-o", "StrictHostKeyChecking=false", "h"], { $0.unknownHosts = .accept }),
            (["-o", "StrictHostKeyChecking=ask", "h"], { $0.unknownHosts = .refuse }),
            (["-o", "UserKnownHostsFile=/a \"/b c\"", "h"], { $0.userKnownHosts = ["/a", "/b c"] }),
            (["-o", "GlobalKnownHostsFile=none", "h"], { $0.globalKnownHosts = ["none"] }),
            (["-o", "ConnectTimeout=5", "-o", "BatchMode=yes", "h"], { $0.connectTimeout = 5 }),
            (
                ["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "h"],
                { ($0.usesIdentitiesOnly, $0.identityAgent) = (true, "none") }
            ),
            (["ssh://h"], { _ in }), (["ssh://h/"], { _ in }),
            (["ssh://u@h:23"], { ($0.user, $0.port) = ("u", 23) }),
            (["-p", "24", "ssh://h:23"], { $0.port = 24 }),
            (["ssh://[::1]:23"], { ($0.host, $0.port) = ("::1", 23) }),
            (["ssh://[::1]"], { $0.host = "::1" }), (["[::1]"], { $0.host = "::1" }),
            (["u@::1"], { ($0.host, $0.user) = ("::1", "u") }),
            (["-G", "h"], { $0.purpose = .printConfiguration }),
            (["-C", "-F", "none", "-F/dev/null", "-o", "LogLevel=QUIET", "-oServerAliveInterval 5", "h"], { _ in }),
        ]
    }

    @Test func whatGitGivesIsUnderstood() throws {
        for (arguments, change) in Self.understood {
            var expected = try SSHArguments(["h"])
            change(&expected)
            #expect(try SSHArguments(arguments) == expected, "\(arguments)")
        }
        #expect(try SSHArguments(["-V"]).purpose == .printVersion)
    }

    /// What is refused, and what the message has to name.
    private static let refused: [([String], String)] =
        "bBcDeEIJkKLmMNOPQRsStWwXyYfgA1".map { (["-\($0)", "x", "h"], "-\($0);") }
        + ["ProxyJump=x", "ProxyCommand=x", "LocalForward=1 x:2", "Include=x", "ForwardAgent=yes", "=x"].map { option in
            (["-o", option, "h"], "-o \(option.prefix { $0 != "=" });")
        } + [
            (["-F", "/my/config", "h"], "-F /my/config;"), ([], "no host"), (["-4"], "no host"), (["--"], "no host"),
            (["-p"], "-p has no value"), (["-p", "0", "h"], "-p is \"0\""), (["-p", "65536", "h"], "65536"),
            (["-px", "h"], "\"x\""),
            (["-o", "Port", "h"], "-o Port has no value"), (["-o", "Port=1 2", "h"], "one value"),
            (["-o", "User=\"x", "h"], "quotation mark"), (["-l", "", "h"], "-l has no value"),
            (["@h"], "no user"), ([""], "\"\" is not a host"), (["--", "-oProxyCommand=x"], "-oProxyCommand=x"),
            (["a b"], "\"a b\""), (["*"], "\"*\""), (["a,b"], "a,b"), (["ssh://h:x"], "\"x\""),
            (["ssh://h/path"], "h/path"),
            (["-o", "HostKeyAlias=*", "h"], "\"*\""), (["-o", "HostName=-x", "h"], "\"-x\""),
            (["-o", "StrictHostKeyChecking=maybe", "h"], "accept-new, ask, no, off, yes"),
            (["-o", "ConnectTimeout=0", "h"], "\"0\""), (["-o", "SetEnv=A", "h"], "NAME=VALUE"),
            (["-o", "IdentitiesOnly=x", "h"], "no, yes"),
        ]

    @Test func theRestIsRefusedByName() {
        for (arguments, name) in Self.refused {
            let failure = #expect(throws: BuiltInSSHFailure.self, "\(arguments)") { _ = try SSHArguments(arguments) }
            let text = failure?.lines.joined(separator: "\n") ?? ""
            #expect(text.contains(name), "\(arguments): \(text)")
            if name.hasSuffix(";") { #expect(text.contains("openssh-client")) }
        }
    }

    @Test func patterns() {
        let cases: [(String, String, Bool)] = [
            ("", "", true), ("", "a", false), ("*", "", true), ("a*c", "abbc", true), ("a*c", "abcd", false),
            ("a?c", "ac", false), ("*a*b*", "xxaxxbxx", true), ("GIT_*", "GIT_PROTOCOL", true), ("LC_*", "LANG", false),
        ]
        for (pattern, text, matches) in cases {
            #expect(WildcardPattern.matches(pattern, text) == matches, "\(pattern) \(text)")
        }
        // One that takes exponential time when each * tries each length.
        let long = String(repeating: "a", count: 10_000)
        #expect(!WildcardPattern.matches(String(repeating: "*a", count: 50) + "b", long))
    }
}
