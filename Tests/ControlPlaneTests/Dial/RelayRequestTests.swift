import AgentCore
import AgentTestSupport
import DERP
import NIOCore
import Synchronization
import Testing

@testable import ControlPlane

/// What a relay is sent, and how its latency is measured.
@Suite struct RelayRequestTests {
    @Test func aRelayGetsTheExtraHeadersAndNeverTheToken() async throws {
        let server = try await StandIn { request, connection in
            request.uri == "/derp" ? connection.upgradeToDERP() : connection.answer(204)
        }
        let dialler = try RelayTest.dialler {
            $0.url = try ServerAddress("http://user:SECRET@control-plane.example/coder", what: "")
            $0.headers = ["X-Extra": "1"]
            $0.headerCommand = "echo X-Made=by command"
        }
        let relay = try RelayTest.relay(server)
        try await RelayTest.echo(dialler, relay)
        _ = try await dialler.latency(relay, on: RelayTest.loop, within: .seconds(30))
        #expect(server.requests.map(\.uri) == ["/derp", "/derp/latency-check"])
        for request in server.requests {
            #expect(request.headers["X-Extra"] == ["1"] && request.headers["X-Made"] == ["by command"])
            #expect(request.headers["User-Agent"] == ["workspace-agent"])
            #expect(request.headers["Host"] == ["127.0.0.1:\(server.port)"])
            #expect(!request.headers.contains(name: "Authorization"))
            #expect(!request.headers.contains { $0.value.contains(testToken) || $0.value.contains("SECRET") })
        }
    }

    /// What guards the control plane guards its own relay too.
    @Test func onlyTheControlPlanesRelayGetsItsUser() async throws {
        let server = try await StandIn { $1.upgradeToDERP() }
        let other = try await StandIn { $1.upgradeToDERP() }
        let dialler = try RelayTest.dialler {
            $0.url = try ServerAddress("http://user:SECRET@127.0.0.1:\(server.port)/coder/", what: "")
        }
        for server in [server, other] { try await RelayTest.echo(dialler, RelayTest.relay(server)) }
        try await RelayTest.echo(dialler, RelayTest.relay(server) { $0.hostName = "localhost" })
        #expect(server.requests.map { $0.headers["Authorization"] } == [["Basic dXNlcjpTRUNSRVQ="], []])
        #expect(other.requests.map { $0.headers["Authorization"] } == [[]])
        #expect(server.requests.allSatisfy { $0.uri == "/derp" && !$0.headers.contains(name: "Coder-Session-Token") })
    }

    @Test func aHeaderCommandCountsWithinTheLimit() async throws {
        let server = try await StandIn { $1.upgradeToDERP() }
        let relay = try RelayTest.relay(server)
        let failing = try RelayTest.dialler { $0.headerCommand = "echo SECRET; exit 3" }
        #expect(try await RelayTest.error(failing, relay).description.contains("--agent-header-command exited with 3"))

        let time = ManualClock()
        let hanging = DialTest.link(
            try DialTest.configuration("http://control-plane.example") { $0.headerCommand = "exec sleep 1000" },
            clock: AgentClock(time)
        ).relays
        let dial = Task { try await RelayTest.error(hanging, relay, within: .seconds(5)) }
        // The command's own limit, and the dial's.
        await time.sleepers(2)
        time.advance(by: .seconds(5))
        #expect(try await dial.value.description.contains("took longer than 5.0 seconds"))
        #expect(server.requests.isEmpty)
    }

    @Test func aRelayIsReachedThroughTheProxy() async throws {
        let server = try await StandIn { request, connection in
            request.uri == "/derp" ? connection.upgradeToDERP() : connection.answer(200)
        }
        let proxy = try await StandIn { $1.tunnel(to: server.port) }
        let dialler = try RelayTest.dialler {
            $0.proxies = try ProxySettings(environment: ["HTTP_PROXY": "http://user:SECRET@127.0.0.1:\(proxy.port)"])
        }
        let relay = try RelayTest.relay(server) { ($0.hostName, $0.derpPort) = ("relay.example", 0) }
        try await RelayTest.echo(dialler, relay)
        _ = try await dialler.latency(relay, on: RelayTest.loop, within: .seconds(30))
        #expect(proxy.requests.map(\.uri) == ["relay.example:80", "relay.example:80"])
        #expect(proxy.requests.allSatisfy { $0.headers["Proxy-Authorization"] == ["Basic dXNlcjpTRUNSRVQ="] })
        #expect(server.requests.allSatisfy { $0.headers["Host"] == ["relay.example"] })
        #expect(server.requests.allSatisfy { !$0.headers.contains(name: "Proxy-Authorization") })
    }

    @Test func aProxyThatRefusesIsNamed() async throws {
        let proxy = try await StandIn { $1.send("HTTP/1.1 403 Forbidden\r\n\r\n") }
        let dialler = try RelayTest.dialler {
            $0.proxies = try ProxySettings(environment: ["HTTP_PROXY": "http://user:SECRET@127.0.0.1:\(proxy.port)"])
        }
        let relay = try RelayTest.relay(proxy) { $0.hostName = "relay.example" }
        let error = try await RelayTest.error(dialler, relay)
        #expect(!error.refusesUpgrade, "CONNECT was refused, not the upgrade")
        #expect(error.description.contains("the proxy http://127.0.0.1:\(proxy.port)"), "\(error)")
        #expect(error.description.contains("403"))
    }

    // MARK: Latency

    @Test func latencyIsTheTimeOfTheRequestAlone() async throws {
        let certificates = try Certificates.shared.get()
        let (letIn, asked, answered) = (Instant(), Instant(), Instant())
        let server = try await StandIn(
            tls: certificates.server("DNS:localhost"),
            onConnect: { connection in
                // TLS waits until the server reads.
                try? connection.channel.syncOptions?.setOption(.autoRead, value: false)
                connection.channel.eventLoop.scheduleTask(in: .milliseconds(100)) {
                    letIn.now()
                    try? connection.channel.syncOptions?.setOption(.autoRead, value: true)
                }
                return false
            }
        ) { _, connection in
            asked.now()
            connection.channel.eventLoop.scheduleTask(in: .milliseconds(20)) {
                answered.now()
                connection.answer(200)
            }
        }
        let dialler = try RelayTest.dialler { $0.caFile = certificates.ca }
        let relay = try RelayTest.relay(server) { ($0.hostName, $0.forceHTTP) = ("localhost", false) }
        let latency = try await dialler.latency(relay, on: RelayTest.loop, within: .seconds(60))
        let end = ContinuousClock.now
        #expect(latency >= answered.value - asked.value)
        #expect(latency <= end - letIn.value)
    }

    private final class Instant: Sendable {
        private let time = Mutex(ContinuousClock.now)
        var value: ContinuousClock.Instant { time.withLock { $0 } }
        func now() { time.withLock { $0 = .now } }
    }

    @Test func latencyEndsWithTheHeadOf2xx() async throws {
        for status in [200, 204, 299] {
            let ends = Ends()
            let server = try await StandIn(onConnect: ends.add) { _, connection in
                // A body without an end.
                connection.send("HTTP/1.1 \(status) X\r\nContent-Length: 100000000\r\n\r\nx")
            }
            let relay = try RelayTest.relay(server)
            #expect(try await RelayTest.dialler().latency(relay, on: RelayTest.loop, within: .seconds(60)) > .zero)
            try await ends.closed()
            #expect(server.requests.first?.method == "GET" && server.requests.first?.uri == "/derp/latency-check")
        }
        for (status, text) in [(199, "answered"), (301, "301"), (404, "404"), (500, "500"), (101, "101")] {
            let ends = Ends()
            let server = try await StandIn(onConnect: ends.add) { _, connection in
                connection.send("HTTP/1.1 \(status) X\r\nContent-Length: 0\r\n\r\n")
                if status == 199 { connection.close() }
            }
            let error = try await RelayTest.latencyError(RelayTest.dialler(), RelayTest.relay(server))
            #expect(error.description.contains(text) && !error.refusesUpgrade, "\(error)")
            try await ends.closed()
        }
    }
}
