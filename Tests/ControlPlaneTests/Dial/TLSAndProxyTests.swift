import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import NIOCore
import Synchronization
import NIOSSL
import Testing

@testable import ControlPlane

@Suite struct TLSAndProxyTests {
    private let certificates: Certificates
    private let other: Certificates
    init() throws {
        certificates = try Certificates.shared.get()
        other = try Certificates.other.get()
    }

    private func configuration(_ server: StandIn, host: String = "localhost", ca: String?) throws -> LinkConfiguration {
        try DialTest.configuration("https://\(host):\(server.port)") { $0.caFile = ca }
    }

    @Test func aCertificateOfTheCAFileIsTrusted() async throws {
        let server = try await StandIn(tls: certificates.server("DNS:localhost,IP:127.0.0.1")) { $1.upgrade($0) }
        for host in ["localhost", "127.0.0.1"] {
            _ = try await DialTest.echo(try configuration(server, host: host, ca: certificates.ca))
        }
    }

    @Test func certificatesThatDoNotFitAreRefused() async throws {
        let good = try certificates.server("DNS:localhost")
        let cases = [
            (good, String?.none, "not trusted"),
            (try certificates.server("DNS:other.example"), certificates.ca, "another host name"),
            (try certificates.server("DNS:localhost", isExpired: true), certificates.ca, "expired"),
        ]
        for (tls, ca, text) in cases {
            let server = try await StandIn(tls: tls) { $1.upgrade($0) }
            let error = try await DialTest.dialError(try configuration(server, ca: ca))
            #expect(error.code == .tls && error.description.contains(text), "\(error)")
            #expect(server.requests.isEmpty)
        }
    }

    @Test func aCAFileThatIsNoneIsNamed() async throws {
        let server = try await StandIn(tls: certificates.server("DNS:localhost")) { $1.upgrade($0) }
        for ca in ["/nonexistent/ca.pem", "/etc/passwd", "/dev/null"] {
            let error = try await DialTest.dialError(try configuration(server, ca: ca))
            #expect(error.code == .configuration && error.message.contains(ca), "\(error)")
        }
    }

    @Test func restRequestsAreCheckedTheSameWay() async throws {
        let tls = try certificates.server("DNS:localhost")
        let server = try await StandIn(tls: tls) { $1.answer(200, #"{"public_key":"p","private_key":"k"}"#) }
        let trusting = DialTest.link(try configuration(server, ca: certificates.ca))
        #expect(try await trusting.rest.gitSSHKey().publicKey == "p")
        await trusting.shutdown()
        let wary = DialTest.link(try configuration(server, ca: nil))
        await #expect(throws: ControlPlaneError(.tls, "")) { try await wary.rest.gitSSHKey() }
        await wary.shutdown()
    }

    private func copy(_ from: String, to path: String) throws {
        let data = try Data(contentsOf: URL(fileURLWithPath: from))
        try data.write(to: URL(fileURLWithPath: path), options: .atomic)
    }

    /// The link reads the file at each connect; the REST client must not go on with what it was made with.
    @Test func restFollowsTheCAFile() async throws {
        let server = try await StandIn(tls: certificates.server("DNS:localhost")) {
            $1.answer(200, #"{"public_key":"p","private_key":"k"}"#)
        }
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/ca.pem"
        let link = DialTest.link(try configuration(server, ca: file))
        try copy(other.ca, to: file)
        await #expect(throws: ControlPlaneError(.tls, "")) { try await link.rest.gitSSHKey() }
        try copy(certificates.ca, to: file)
        for _ in 0..<3 { #expect(try await link.rest.gitSSHKey().publicKey == "p") }
        // One that is no longer trusted isn't, although a connection is still there.
        try copy(other.ca, to: file)
        await #expect(throws: ControlPlaneError(.tls, "")) { try await link.rest.gitSSHKey() }
        unlink(file)
        await #expect(throws: ControlPlaneError(.configuration, "")) { try await link.rest.gitSSHKey() }
        try copy(certificates.ca, to: file)
        #expect(try await link.rest.gitSSHKey().publicKey == "p")
        await link.shutdown()
        await #expect(throws: ControlPlaneError(.unreachable, "")) { try await link.rest.gitSSHKey() }
        #expect(server.requests.count == 4)
    }

    /// What is under way when the file changes is not ended by that.
    @Test func aRequestUnderWayOutlivesTheCAFile() async throws {
        let held = Mutex<StandIn.Connection?>(nil)
        let answer = #"{"public_key":"p","private_key":"k"}"#
        let server = try await StandIn(tls: certificates.server("DNS:localhost")) { _, connection in
            let isFirst = held.withLock { held in
                guard held == nil else { return false }
                held = connection
                return true
            }
            if !isFirst { connection.answer(200, answer) }
        }
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/ca.pem"
        try copy(certificates.ca, to: file)
        let link = DialTest.link(try configuration(server, ca: file))
        let first = Task { try await link.rest.gitSSHKey().publicKey }
        try await eventually("it is under way") { held.withLock { $0 != nil } }
        let both =
            try Data(contentsOf: URL(fileURLWithPath: other.ca))
            + Data(contentsOf: URL(fileURLWithPath: certificates.ca))
        try both.write(to: URL(fileURLWithPath: file), options: .atomic)
        #expect(try await link.rest.gitSSHKey().publicKey == "p")
        held.withLock { $0 }?.answer(200, answer)
        #expect(try await first.value == "p")
        await link.shutdown()
    }

    private func proxied(_ proxy: StandIn, _ url: String, ca: String?) throws -> LinkConfiguration {
        let environment = [
            "https_proxy": "http://user:SECRET@127.0.0.1:\(proxy.port)", "HTTP_PROXY": "127.0.0.1:\(proxy.port)",
        ]
        return try DialTest.configuration(url) {
            $0.caFile = ca
            $0.proxies = try ProxySettings(environment: environment)
            $0.times.dial = .seconds(20)
        }
    }

    @Test func tlsGoesThroughTheProxyWithItsCredentials() async throws {
        let server = try await StandIn(tls: certificates.server("DNS:coder.example")) { request, connection in
            if request.uri.contains("rpc") {
                connection.upgrade(request)
            } else {
                connection.answer(200, #"{"public_key":"p","private_key":"k"}"#)
            }
        }
        let proxy = try await StandIn { $1.tunnel(to: server.port) }
        let configuration = try proxied(proxy, "https://coder.example", ca: certificates.ca)
        _ = try await DialTest.echo(configuration)
        let connect = try #require(proxy.requests.first)
        #expect(connect.method == "CONNECT" && connect.uri == "coder.example:443")
        #expect(connect.headers["Proxy-Authorization"] == ["Basic dXNlcjpTRUNSRVQ="])
        #expect(server.requests.first?.headers["Proxy-Authorization"] == [])

        let link = DialTest.link(configuration)
        #expect(try await link.rest.gitSSHKey().publicKey == "p")
        await link.shutdown()
        #expect(proxy.requests.count == 2)
        #expect(proxy.requests.last?.headers["Proxy-Authorization"] == ["Basic dXNlcjpTRUNSRVQ="])
    }

    /// A connection that breaks below TLS is no fault of TLS.
    @Test func whatIsNoFaultOfTLSIsNotCalledOne() throws {
        let server = try ServerAddress("https://coder.example", what: "")
        #expect(Trust.failure(NIOSSLError.uncleanShutdown, to: server) == nil)
        #expect(Trust.failure(CancellationError(), to: server) == nil)
        let refused = Trust.failure(NIOSSLExtraError.failedToValidateHostname, to: server)
        #expect(refused?.code == .tls && refused?.message.contains("for another host name") == true)
        #expect(Trust.failure(NIOSSLError.noCertificateToValidate, to: server)?.code == .tls)
    }

    @Test func plainHTTPGoesThroughItsProxyToo() async throws {
        let server = try await StandIn { $1.upgrade($0) }
        let proxy = try await StandIn { $1.tunnel(to: server.port) }
        _ = try await DialTest.echo(try proxied(proxy, "http://coder.example", ca: nil))
        #expect(proxy.requests.first?.uri == "coder.example:80")
    }

    @Test func aProxyThatRefusesIsNamed() async throws {
        for (answer, text) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407"), ("HTTP/1.1 503 No\r\nX: y\r\n\r\n", "503"),
            ("SSH-2.0-OpenSSH\r\n", "not HTTP"), ("HTTP/1.1 two hundred\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 200 " + String(repeating: "x", count: 20_000), "not HTTP"),
        ] {
            let proxy = try await StandIn { $1.send(answer) }
            let error = try await DialTest.dialError(try proxied(proxy, "https://coder.example", ca: nil))
            #expect([.unreachable, .protocolViolation].contains(error.code))
            #expect(
                error.message.contains(text) && error.message.contains("proxy http://127.0.0.1:\(proxy.port)"),
                "\(error)")
        }
        let closing = try await StandIn { $1.close() }
        #expect(
            try await DialTest.dialError(try proxied(closing, "https://coder.example", ca: nil)).code == .unreachable)
        let silent = try await StandIn { _, _ in }
        var hanging = try proxied(silent, "https://coder.example", ca: nil)
        hanging.times.dial = .milliseconds(100)
        #expect(try await DialTest.dialError(hanging).code == .timeout)
    }
}
