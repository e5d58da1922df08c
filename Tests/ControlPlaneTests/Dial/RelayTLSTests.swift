import AgentTestSupport
import DERP
import NIOCore
import NIOSSL
import Synchronization
import Testing

@testable import ControlPlane

@Suite struct RelayTLSTests {
    private let certificates: Certificates
    init() throws { certificates = try Certificates.shared.get() }

    /// Dialled at 127.0.0.1, whatever its names are.
    private func relay(_ server: StandIn, host: String, certificate: String = "") throws -> RelayURL {
        try RelayTest.relay(server) {
            ($0.ipv4, $0.hostName, $0.certName, $0.forceHTTP) = ("127.0.0.1", host, certificate, false)
            $0.insecureForTests = true
        }
    }

    private func dialler() throws -> RelayDialler { try RelayTest.dialler { $0.caFile = certificates.ca } }

    @Test func theCertificateMayBeForAnyNameThatTheMapGives() async throws {
        for (names, host, certificate) in [
            ("DNS:relay.example", "relay.example", ""), ("DNS:*.example", "relay.example", ""),
            ("DNS:cert.example", "relay.example", "cert.example"), ("DNS:*.example", "relay.test", "CERT.example."),
            ("IP:127.0.0.1", "127.0.0.1", ""), ("IP:127.0.0.1", "", ""), ("IP:10.1.2.3", "relay.example", "10.1.2.3"),
            ("DNS:cert.example", "127.0.0.1", "cert.example"),
        ] {
            let server = try await StandIn(tls: certificates.server(names)) { $1.upgradeToDERP() }
            try await RelayTest.echo(try dialler(), relay(server, host: host, certificate: certificate))
        }
    }

    @Test func aCertificateForAnotherNameIsRefused() async throws {
        for (names, host, certificate) in [
            ("DNS:other.example", "relay.example", ""), ("DNS:relay.example", "relay.example", "cert.example"),
            ("DNS:a.cert.example", "relay.example", "cert.example"), ("DNS:127.0.0.1", "127.0.0.1", ""),
            ("IP:127.0.0.1", "relay.example", "cert.example"), ("DNS:localhost", "127.0.0.1", ""),
        ] {
            let ends = Ends()
            let server = try await StandIn(tls: certificates.server(names), onConnect: ends.add) {
                $1.upgradeToDERP()
            }
            let relay = try relay(server, host: host, certificate: certificate)
            let error = try await RelayTest.error(try dialler(), relay)
            #expect(error.description.contains("for another host name") && !error.refusesUpgrade, "\(error)")
            #expect(server.requests.isEmpty)
            try await ends.closed()
        }
    }

    /// Whether or not NIOSSL checks the name.
    @Test func aChainIsCheckedWithAnyName() async throws {
        for certificate in ["", "cert.example"] {
            let names = "DNS:relay.example,DNS:cert.example"
            let good = try await StandIn(tls: certificates.server(names)) { $1.upgradeToDERP() }
            let relay = try relay(good, host: "relay.example", certificate: certificate)
            #expect(try await RelayTest.error(RelayTest.dialler(), relay).description.contains("not trusted"))
            let other = try RelayTest.dialler { $0.caFile = try Certificates.other.get().ca }
            #expect(try await RelayTest.latencyError(other, relay).description.contains("not trusted"))
            let expired = try await StandIn(tls: certificates.server(names, isExpired: true)) { $1.upgradeToDERP() }
            let old = try self.relay(expired, host: "relay.example", certificate: certificate)
            #expect(try await RelayTest.error(try dialler(), old).description.contains("expired"))
            #expect(good.requests.isEmpty && expired.requests.isEmpty)
        }
    }

    @Test func theHandshakeNamesTheHost() async throws {
        let hello = Mutex("")
        let server = try await StandIn(onConnect: { connection in
            try? connection.channel.pipeline.syncOperations.addHandler(
                FirstBytes { text in hello.withLock { $0 = text } })
            return true
        }) { _, _ in }
        let relay = try relay(server, host: "relay.example", certificate: "cert.example")
        _ = try await RelayTest.error(try dialler(), relay)
        #expect(hello.withLock { $0.contains("relay.example") && !$0.contains("cert.example") })
    }

    private final class FirstBytes: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        let take: @Sendable (String) -> Void
        init(_ take: @escaping @Sendable (String) -> Void) { self.take = take }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            take(String(buffer: unwrapInboundIn(data)))
            context.close(promise: nil)
        }
    }

    @Test func tlsGoesThroughTheProxyForAddressesToo() async throws {
        for (names, host, address) in [
            ("DNS:relay.example", "relay.example", ""), ("IP:192.0.2.1", "192.0.2.1", ""),
            ("DNS:relay.example", "relay.example", "192.0.2.1"),
        ] {
            let server = try await StandIn(tls: certificates.server(names)) { $1.upgradeToDERP() }
            let proxy = try await StandIn { $1.tunnel(to: server.port) }
            let dialler = try RelayTest.dialler {
                $0.caFile = certificates.ca
                $0.proxies = try ProxySettings(environment: ["HTTPS_PROXY": "http://127.0.0.1:\(proxy.port)"])
            }
            let relay = try RelayTest.relay(server) {
                ($0.ipv4, $0.hostName, $0.derpPort, $0.forceHTTP) = (address, host, 0, false)
            }
            try await RelayTest.echo(dialler, relay)
            #expect(proxy.requests.map(\.uri) == ["\(address.isEmpty ? host : address):443"])
        }
    }

    @Test func namesOfCertificates() {
        for (pattern, name, isCovered) in [
            ("a.example", "A.Example.", true), ("*.example", "a.example", true), ("*.example", "a.b.example", false),
            ("*.example", "example", false), ("*", "a", false), ("a*.example", "ab.example", false),
            ("*.*.example", "a.b.example", false), ("a.*", "a.example", false), ("", "", false), (".", ".", false),
            ("a..example", "a..example", false), ("a.example", "b.example", false), ("a.exämple", "a.exämple", false),
            ("a.example\u{0}", "a.example", false), ("a.example", "a.example.evil", false),
        ] {
            #expect(NIOSSLCertificate.covers(pattern, name) == isCovered, "\(pattern) \(name)")
        }
    }
}
