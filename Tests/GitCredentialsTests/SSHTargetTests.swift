import Testing

@testable import GitCredentials

/// What `ssh -G` says, and what is told when a key is refused.
@Suite("ssh's own settings") struct SSHTargetTests {
    @Test func filesThatExistInTheirOrder() {
        let settings = """
            user git
            hostname github.com
            port 22
            identityfile ~/.ssh/id_rsa
            identityfile ~/.ssh/id_ed25519
            identityfile /keys/with blank
            identityfile ~/.ssh/%h
            identityfile none
            identityfile /a"b
            sendenv LANG
            """
        let there: Set<String> = ["/home/me/.ssh/id_ed25519", "/keys/with blank", "/a\"b"]
        let target = SSHTarget(settings, home: "/home/me") { there.contains($0) }
        #expect(target.user == "git" && target.host == "github.com")
        #expect(target.identities == ["~/.ssh/id_ed25519", "/keys/with blank", "~/.ssh/%h"])
        #expect(SSHTarget("") == SSHTarget("", home: "/"))
    }

    /// A command on the server, or a jump host's ssh, may say the same of another.
    @Test func onlyWhatThisSSHSaysOfThisHostCounts() {
        let target = SSHTarget("user git\nhostname 127.0.0.1\nport 2222\n")
        let tooMany = """
            Warning: x\r
            Received disconnect from 127.0.0.1 port 2222:2: Too many authentication failures\r
            Disconnected from 127.0.0.1 port 2222\r\n
            """
        #expect(target.tookNoMoreKeys(tooMany))
        for other in [
            tooMany + "and more\n", tooMany.replacing("127.0.0.1", with: "10.0.0.1"),
            tooMany.replacing("port 2222:2", with: "port 22:2"), "Too many authentication failures\n", "",
            tooMany.replacing("127.0.0.1 port 2222", with: "UNKNOWN port 65535"),
        ] { #expect(!target.tookNoMoreKeys(other), "\(other)") }
        let proxied = SSHTarget("user git\nhostname h\nport 22\nproxyjump jump\n")
        #expect(proxied.tookNoMoreKeys(tooMany.replacing("127.0.0.1 port 2222", with: "UNKNOWN port 65535")))
        #expect(target.refusedAllKeys("x\r\ngit@127.0.0.1: Permission denied (publickey).\r\n"))
        for other in [
            "git@127.0.0.1: Permission denied (publickey).\nmore\n", "git@jump: Permission denied (publickey).\n",
            "me@127.0.0.1: Permission denied (publickey).\n", "Permission denied (publickey).", "",
        ] { #expect(!target.refusedAllKeys(other), "\(other)") }
    }

    @Test func whereToAddAKey() {
        let key = "ssh-ed25519 AAAA\nnot this"
        #expect(
            KeyAdvice.lines(publicKey: key, user: "git", host: "GitHub.com") == [
                "GitHub.com does not know the key of the control plane; add it to https://github.com/settings/keys:",
                "ssh-ed25519 AAAA",
            ])
        #expect(KeyAdvice.lines(publicKey: key, user: nil, host: nil)[0].contains("at the server, or ~/.ssh/"))
        #expect(
            KeyAdvice.lines(publicKey: "", user: nil, host: "h") == ["h does not know the key of the control plane"])
    }
}
