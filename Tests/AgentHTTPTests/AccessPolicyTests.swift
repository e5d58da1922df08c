import AgentCore
import HTTPTypes
import Testing

@testable import AgentHTTP

@Suite struct AccessPolicyTests {
    private let policy = AccessPolicy(
        tokenRule: .required(Secret("0123456789abcdef")), allowedHosts: ["Workspace.Example"], ownUID: 1000)
    private let tcp = ConnectionInfo(transport: .tcp(localHost: "10.1.2.3", localPort: 7717), peer: "x")

    private func head(
        _ path: String = "/", host: String? = "localhost", _ fields: [String: String] = [:], token: String? = nil
    ) -> HTTPRequest {
        var head = HTTPRequest(method: .get, scheme: "http", authority: host, path: path)
        for (name, value) in fields { head.headerFields[HTTPField.Name(name)!] = value }
        if let token { head.headerFields[.authorization] = "Bearer \(token)" }
        return head
    }

    private func unix(_ uid: UInt32) -> ConnectionInfo {
        ConnectionInfo(transport: .unix(pid: 1, uid: uid), peer: "x")
    }

    @Test func unixPeersAreOwnerOrRoot() {
        #expect(policy.refusal(of: head(), from: unix(1000)) == nil)
        #expect(policy.refusal(of: head(), from: unix(0)) == nil)
        #expect(policy.refusal(of: head(), from: unix(1001))?.status == .forbidden)
        // Any Host will do: no browser gets here.
        #expect(policy.refusal(of: head(host: "anything"), from: unix(1000)) == nil)
    }

    /// No token, but no name either that a page's owner could have registered.
    @Test func peersOfATunnelAreTheOwners() {
        let tunnel = ConnectionInfo(transport: .tunnel, peer: "x")
        func status(_ host: String?, _ fields: [String: String] = [:]) -> Int? {
            policy.refusal(of: head(host: host, fields), from: tunnel)?.status.code
        }
        for host in [
            nil, "[fd7a:115c:a1e0::1]:4", "workspace", "workspace:4", "main.me.coder", "workspace.example",
            "10.1.2.3:4", "workspace.", "main.me.coder.",
        ] {
            #expect(status(host) == nil, "\(host ?? "")")
        }
        for host in ["evil.example.com", "evil.example.com.", "1.2.3", "1.2.3.4.5", "1.2.3.256", "coder.evil.com"] {
            #expect(status(host) == 403, "\(host)")
        }
        #expect(status("[") == 400)
        #expect(status("workspace", ["Origin": "http://workspace"]) == nil)
        #expect(status("workspace", ["Origin": "http://evil.example.com"]) == 403)
        #expect(status("workspace", ["Origin": "null"]) == 403)
        // The host of a target in absolute form, too.
        #expect(policy.refusal(of: head(), from: tunnel, targetHost: "evil.example.com")?.status == .forbidden)
    }

    @Test func tokenIsRequiredOnTCP() {
        #expect(policy.refusal(of: head(), from: tcp)?.status == .unauthorized)
        #expect(policy.refusal(of: head(token: "0123456789abcdef"), from: tcp) == nil)
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeg"] {
            #expect(policy.refusal(of: head(token: wrong), from: tcp)?.status == .unauthorized)
        }
        #expect(policy.refusal(of: head("/healthz"), from: tcp) == nil)
        #expect(policy.refusal(of: head("/healthz/x"), from: tcp)?.status == .unauthorized)
        #expect(policy.refusal(of: head("", ["Authorization": "bearer  0123456789abcdef"]), from: tcp) == nil)
        #expect(policy.refusal(of: head("", ["Authorization": "Basic 0123456789abcdef"]), from: tcp) != nil)
    }

    @Test func queryTokenIsForWebSocketsAlone() {
        func status(_ path: String, _ takesQueryToken: Bool) -> Int? {
            policy.refusal(of: head(path), from: tcp, takesQueryToken: takesQueryToken)?.status.code
        }
        #expect(status("/x?a=b&token=0123456789abcdef", false) == 401)
        #expect(status("/x?a=b&token=0123456789abcdef", true) == nil)
        #expect(status("/x?token=no", true) == 401)
    }

    @Test func aTargetsHostIsCheckedAsHostIs() {
        let request = head(token: "0123456789abcdef")
        #expect(policy.refusal(of: request, from: tcp, targetHost: "10.1.2.3:7717") == nil)
        #expect(policy.refusal(of: request, from: tcp, targetHost: "evil.example")?.status == .forbidden)
        let evil = head(host: "evil.example", token: "0123456789abcdef")
        #expect(policy.refusal(of: evil, from: tcp, targetHost: "localhost")?.status == .forbidden)
        let page = head("/", ["Origin": "http://localhost"])
        #expect(policy.refusal(of: page, from: unix(1000), targetHost: "localhost") == nil)
        #expect(policy.refusal(of: page, from: unix(1000), targetHost: "localhost:1")?.status == .forbidden)
    }

    @Test func bodiesOnTCPSayWhatTheyAre() {
        let token = "0123456789abcdef"
        // With the token in its header it is not a page's; with the token in the query it may be.
        #expect(policy.refusal(of: head(token: token), from: tcp, hasBody: true) == nil)
        let query = policy.refusal(of: head("/?token=\(token)"), from: tcp, hasBody: true, takesQueryToken: true)
        #expect(query?.status == .unsupportedMediaType)
        var open = policy
        open.tokenRule = .none
        #expect(open.refusal(of: head(token: token), from: tcp, hasBody: true)?.status == .unsupportedMediaType)
        #expect(policy.refusal(of: head("/", ["Content-Type": "x"], token: token), from: tcp, hasBody: true) == nil)
        #expect(policy.refusal(of: head(token: token), from: tcp) == nil)
        #expect(policy.refusal(of: head(), from: tcp, hasBody: true)?.status == .unauthorized)
        #expect(policy.refusal(of: head(), from: unix(1000), hasBody: true) == nil)
    }

    @Test func hostsThatAreNotOursAreRefused() {
        let token = "0123456789abcdef"
        for host in [
            "localhost", "localhost:7717", "127.0.0.1:1", "[::1]:7717", "10.1.2.3:7717", "workspace.example",
            "localhost.", "LocalHost.:7717", "Workspace.Example.", "[0:0:0:0:0:0:0:1]:7717", "[0000::0001]",
            "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]:1", "[::ffff:a01:203]",
        ] {
            #expect(policy.refusal(of: head(host: host, token: token), from: tcp) == nil, "\(host)")
        }
        for host in [
            "evil.example", "10.1.2.4", "localhost.evil.example", "evil.example:7717", "localhost..", "evil.example.",
            "[::2]", "[::ffff:10.1.2.4]", ".",
        ] {
            #expect(policy.refusal(of: head(host: host, token: token), from: tcp)?.status == .forbidden, "\(host)")
        }
        for host in [nil, "", "a:b:c", "host:99999", "[::1", "user@localhost"] {
            #expect(
                policy.refusal(of: head(host: host, token: token), from: tcp)?.status == .badRequest, "\(host ?? "")")
        }
    }

    @Test func originsMustMatchTheHost() {
        let cases: [(origin: String, host: String, same: Bool)] = [
            ("http://localhost:7717", "localhost:7717", true),
            ("http://localhost", "localhost", true),
            ("http://localhost:80", "localhost", true),
            ("https://localhost", "localhost:443", true),
            ("https://app.example", "app.example", true),
            ("http://LOCALHOST:7717", "localhost:7717", true),
            ("http://localhost:3000", "localhost:7717", false),
            ("http://evil.example", "localhost", false),
            ("null", "localhost", false),
            ("", "localhost", false),
            ("http://[::1]:7717", "[::1]:7717", true),
        ]
        for (origin, host, same) in cases {
            #expect(AccessPolicy.isSameOrigin(origin, host: host) == same, "\(origin) \(host)")
            let refusal = policy.refusal(of: head(host: host, ["Origin": origin]), from: unix(1000))
            #expect((refusal == nil) == same)
        }
        #expect(policy.refusal(of: head(host: nil, ["Origin": "http://a"]), from: unix(1000))?.status == .forbidden)
    }

    @Test func withoutAuthOnlyTheTokenIsWaived() {
        var open = policy
        open.tokenRule = .none
        #expect(open.refusal(of: head(), from: tcp) == nil)
        #expect(open.refusal(of: head(host: "evil.example"), from: tcp)?.status == .forbidden)
    }
}
