import AgentCore
import AgentTestSupport
import NIOCore
import Testing

@testable import ControlPlane

@Suite struct DialValueTests {
    @Test func addresses() throws {
        for (text, description, host, port) in [
            ("https://coder.example", "https://coder.example", "coder.example", 443),
            ("HTTPS://coder.example:8443/a/b//", "https://coder.example:8443/a/b", "coder.example", 8443),
            ("http://[::1]:80/", "http://[::1]", "::1", 80), ("http://u:p%40ss@h:1", "http://h:1", "h", 1),
            ("https://h:/x", "https://h/x", "h", 443),
        ] {
            let address = try ServerAddress(text, what: "--agent-url")
            #expect(address.description == description && address.host == host && address.port == port)
            #expect(!String(reflecting: address).contains("p@ss"))
        }
        let user = try ServerAddress("http://u:p%40ss@h", what: "")
        #expect(user.userInfo?.reveal() == "u:p@ss" && user.basicAuthorization?.reveal() == "Basic dTpwQHNz")
        for bad in [
            "", "coder.example", "ftp://h", "https://", "https://:1", "https://h:0", "https://h:65536", "https://h:x",
            "https://h?q", "https://h#f", "https://[::1", "https://[x]", "https://[::1]x", "https://h h", "https://é",
            "https://u%4@h",
            "https://u%zz:SECRET@h", "https://h\n",
        ] {
            let error = #expect(throws: ControlPlaneError(.configuration, "")) {
                try ServerAddress(bad, what: "--agent-url")
            }
            #expect(error?.message.contains("--agent-url") == true && error?.message.contains("SECRET") == false)
        }
    }

    @Test func proxiesAndTheirExceptions() throws {
        func direct(_ exceptions: String, _ url: String) throws -> Bool {
            let settings = try ProxySettings(environment: ["HTTPS_PROXY": "http://p:3128", "NO_PROXY": exceptions])
            return settings.proxy(for: try ServerAddress(url, what: "")) == nil
        }
        for (exceptions, url, expected) in [
            ("", "https://a.b.example", false), ("*", "https://a.b.example", true),
            ("b.example", "https://a.b.example", true),
            ("B.Example, x", "https://b.example", true), (".b.example", "https://b.example", false),
            (".b.example", "https://a.b.example", true), ("*.b.example", "https://a.b.example", true),
            ("b.example", "https://ab.example", false), ("b.example:443", "https://b.example", true),
            ("b.example:8443", "https://b.example", false), ("10.0.0.0/8", "https://10.1.2.3", true),
            ("10.0.0.0/9", "https://10.200.2.3", false), ("10.1.2.3", "https://10.1.2.3", true),
            ("10.1.2.3:443", "https://10.1.2.3", true), ("10.1.2.3:444", "https://10.1.2.3", false),
            ("fd00::/8", "https://[fd12::1]", true), ("[fd12::1]:443", "https://[fd12::1]", true),
            ("fe00::/9", "https://[fd12::1]", false), ("0.0.0.0/0", "https://8.8.8.8", true),
            ("0.0.0.0/0", "https://[fd12::1]", false),
            ("", "https://localhost", true), ("", "https://127.3.2.1", true), ("", "https://[::1]", true),
            (",, ,10.0.0.0/99", "https://b.example", false),
        ] { #expect(try direct(exceptions, url) == expected, "\(exceptions) \(url)") }

        let server = try ServerAddress("http://h", what: "")
        #expect(try ProxySettings(environment: ["HTTPS_PROXY": "p"]).proxy(for: server) == nil)
        #expect(try ProxySettings(environment: ["http_proxy": "p:1"]).proxy(for: server)?.description == "http://p:1")
        #expect(try ProxySettings(environment: ["http_proxy": "l", "HTTP_PROXY": "u"]).proxy(for: server)?.host == "u")
        #expect(try ProxySettings(environment: ["HTTP_PROXY": ""]).proxy(for: server) == nil)
        for bad in ["https://u:SECRET@p", "socks5://SECRET@p", "http://p:x"] {
            let error = #expect(throws: ControlPlaneError(.configuration, "")) {
                try ProxySettings(environment: ["HTTPS_PROXY": bad])
            }
            #expect(error?.message.contains("HTTPS_PROXY") == true && error?.message.contains("SECRET") == false)
        }
    }

    /// NIOSSL would check the certificate against the proxy's address.
    @Test func anHTTPSAddressThatIsAnIPIsRefusedThroughAProxy() throws {
        func make(_ url: String, _ environment: [String: String]) throws -> LinkConfiguration {
            var input = LinkConfiguration.Input()
            (input.url, input.token, input.environment) = (url, Secret("t"), environment)
            return try LinkConfiguration(input)
        }
        let proxy = ["HTTPS_PROXY": "http://p:3128", "HTTP_PROXY": "http://p:3128"]
        for url in ["https://10.1.2.3", "https://10.1.2.3:8443/base", "https://[2001:db8::1]"] {
            let error = #expect(throws: ControlPlaneError(.configuration, "")) { try make(url, proxy) }
            #expect(error?.message.contains("--agent-url") == true && error?.message.contains("NO_PROXY") == true)
        }
        for (url, environment) in [
            ("https://10.1.2.3", proxy.merging(["NO_PROXY": "10.0.0.0/8"]) { $1 }), ("https://10.1.2.3", [:]),
            ("http://10.1.2.3", proxy), ("https://127.0.0.1", proxy), ("https://[::1]", proxy),
            ("https://coder.example", proxy),
        ] {
            #expect(throws: Never.self, "\(url) \(environment)") { try make(url, environment) }
        }
    }

    @Test func configurations() throws {
        func make(_ change: (inout LinkConfiguration.Input) -> Void) throws -> LinkConfiguration {
            var input = LinkConfiguration.Input()
            input.url = "https://h"
            change(&input)
            return try LinkConfiguration(input)
        }
        guard case .token(let token) = try make({ $0.token = Secret("t") }).authentication else {
            throw DeadlineExceeded(what: "")
        }
        #expect(token.reveal() == "t")
        guard
            case .tokenFile("/f") = try make({
                $0.token = Secret("t")
                $0.tokenFile = "/f"
            }).authentication
        else { throw DeadlineExceeded(what: "the file is preferred") }
        for auth in ["aws-instance-identity", "google-instance-identity", "azure-instance-identity"] {
            _ = try make { $0.auth = auth }
        }
        let headers = try make {
            $0.token = Secret("t")
            $0.headers = ["A=b=c", "D=", "A=e"]
        }.headers
        #expect(headers["A"] == ["b=c", "e"] && headers["D"] == [""])
        let bad: [(inout LinkConfiguration.Input) -> Void] = [
            { _ in }, { $0.token = Secret("") }, { $0.auth = "password" }, { $0.url = "h" },
            { ($0.token, $0.headers) = (Secret("t"), ["novalue"]) }, { ($0.token, $0.headers) = (Secret("t"), ["=v"]) },
            { ($0.token, $0.headers) = (Secret("t"), ["A=b\r\nX: SECRET"]) },
            { ($0.token, $0.headers) = (Secret("t"), ["A b=c"]) },
            { ($0.token, $0.headers) = (Secret("t"), ["coder-session-token=SECRET"]) },
            { ($0.token, $0.headers) = (Secret("t"), ["Sec-WebSocket-Protocol=x"]) },
            { ($0.token, $0.headers) = (Secret("t"), Array(repeating: "a=b", count: 65)) },
            { ($0.token, $0.environment) = (Secret("t"), ["HTTPS_PROXY": "ftp://x"]) },
        ]
        for change in bad {
            let error = #expect(throws: ControlPlaneError(.configuration, "")) { try make(change) }
            #expect(error?.message.contains("SECRET") == false)
        }
        #expect(throws: ControlPlaneError(.token, "")) { try make { $0.token = Secret("a b") } }
        #expect(
            try make { ($0.token, $0.headers) = (Secret("t"), Array(repeating: "a=b", count: 64)) }.headers.count == 64)
    }

    @Test func proxyAnswersInPieces() throws {
        var random = SeededGenerator("proxyAnswersInPieces")
        for _ in 0..<100 {
            var answer = ProxyAnswer()
            var rest = ByteBuffer(string: "HTTP/1.1 204 Fine\r\nA: b\r\n\r\nbehind")
            var status: Int?
            while status == nil,
                var piece = rest.readSlice(length: min(Int.random(in: 1...9, using: &random), rest.readableBytes))
            {
                status = try answer.read(&piece)
                if status != nil {
                    piece.writeBuffer(&rest)
                    #expect(String(buffer: piece) == "behind")
                }
            }
            #expect(status == 204)
        }
    }

    @Test func peersTextIsOneShortLine() {
        #expect(PeerText.line("a\r\n\tb\u{7}\n") == "a b")
        #expect(PeerText.line("\nx") == "x")
        #expect(PeerText.line(String(repeating: "é", count: 501)).count == 501)
        #expect(PeerText.line(String(repeating: "é", count: 500)).count == 500)
    }
}
