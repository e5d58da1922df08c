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
        #expect(target.identities == ["~/.ssh/id_ed25519", "/keys/with blank"])
        #expect(SSHTarget("") == SSHTarget("", home: "/"))
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
