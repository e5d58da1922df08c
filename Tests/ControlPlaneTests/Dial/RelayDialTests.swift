import AgentCore
import AgentTestSupport
import DERP
import NIOCore
import NIOHTTP1
import Synchronization
import Testing
import WebSockets

@testable import ControlPlane

@Suite struct RelayDialTests {
    /// Values that differ from client to client, and what only the recorded one sends.
    private static let own: Set<String> = ["host", "user-agent", "sec-websocket-key"]
    private static let others: Set<String> = ["accept-encoding"]

    private func expectRecorded(_ request: StandIn.Request, _ recorded: RecordedRelays.Event, port: Int) {
        let expected = recorded.fields.filter { !Self.others.contains($0.key) }
        #expect(recorded.http?.hasPrefix("\(request.method) \(request.uri) HTTP/1.1\r\n") == true)
        #expect(Set(request.headers.map { $0.name.lowercased() }) == Set(expected.keys))
        #expect(request.headers.count == expected.count)
        for (name, value) in expected where !Self.own.contains(name) { #expect(request.headers[name] == [value]) }
        #expect(request.headers["host"] == ["127.0.0.1:\(port)"])
        #expect(request.headers["user-agent"] == ["workspace-agent"])
    }

    @Test func theUpgradeIsTheRecordedOne() async throws {
        let recorded = try RecordedRelays.exchange("upgrade").events
        let (head, behind) = (try #require(recorded[1].http), recorded[1].bytesAfterHead)
        let server = try await StandIn { $1.upgradeToDERP(head, behind: behind) }
        let dialler = try RelayTest.dialler { $0.headers = ["X-Custom": "from --agent-header"] }
        for _ in 0..<20 {
            try await RelayTest.echo(dialler, RelayTest.relay(server), expected: RelayTest.hex(behind))
        }
        expectRecorded(try #require(server.requests.first), recorded[0], port: server.port)
    }

    @Test func theWebSocketIsTheRecordedOne() async throws {
        let recorded = try RecordedRelays.exchange("websocket").events
        // A message of the length 0x2d, and in it the greeting.
        let behind = recorded[1].bytesAfterHead
        let server = try await StandIn {
            $1.upgrade($0, behind: behind, fields: ["Sec-WebSocket-Protocol: derp"])
        }
        let dialler = try RelayTest.dialler { $0.headers = ["X-Custom": "from --agent-header"] }
        for _ in 0..<20 {
            try await RelayTest.echo(
                dialler, RelayTest.relay(server), webSocket: true, expected: String(RelayTest.hex(behind).dropFirst(4)))
        }
        expectRecorded(try #require(server.requests.first), recorded[0], port: server.port)
    }

    @Test func theRecordedRefusalAsksForAWebSocket() async throws {
        let recorded = try RecordedRelays.exchange("refused upgrade, then websocket").events
        var refusal = ByteBuffer(string: try #require(recorded[1].http))
        refusal.writeImmutableBuffer(recorded[1].bytesAfterHead)
        let (answer, ends) = (String(buffer: refusal), Ends())
        let server = try await StandIn(onConnect: ends.add) { $1.send(answer) }
        let relay = try RelayTest.relay(server)
        let error = try await RelayTest.error(RelayTest.dialler(), relay)
        #expect(
            error
                == RelayDialError(
                    "http://127.0.0.1:\(server.port)/derp answered Upgrade: DERP with 426", refusesUpgrade: true))
        try await ends.closed()
    }

    /// A network with IPv6 alone, and a map whose first address leads nowhere.
    @Test func theOtherFamilyIsDialled() async throws {
        let head = try #require(try RecordedRelays.exchange("upgrade").events[1].http)
        let server = try await StandIn(host: "::1") { request, connection in
            if request.uri == RelayURL.path { connection.upgradeToDERP(head) } else { connection.answer(200, "") }
        }
        let dialler = try RelayTest.dialler()
        for (ipv4, ipv6, name) in [
            ("none", "::1", "relay.example"), ("", "", "::1"), ("none", "none", "::1"),
            // Nothing listens there.
            ("127.0.0.1", "::1", "relay.example"), ("127.0.0.1", "none", "::1"),
        ] {
            let relay = try RelayTest.relay(server) { ($0.ipv4, $0.ipv6, $0.hostName) = (ipv4, ipv6, name) }
            try await RelayTest.echo(dialler, relay)
            _ = try await dialler.latency(relay, on: RelayTest.loop, within: .seconds(30))
        }
        // Where none can be reached, the first one's reason is given.
        await server.stop()
        let relay = try RelayTest.relay(server) { ($0.ipv4, $0.ipv6) = ("127.0.0.1", "::1") }
        #expect(try await RelayTest.error(dialler, relay).description.contains("127.0.0.1"))
    }

    @Test func onlyA4xxAsksForAWebSocket() async throws {
        for (status, refuses) in [
            (400, true), (401, true), (404, true), (499, true), (200, false), (302, false), (500, false), (503, false),
        ] {
            let server = try await StandIn { $1.answer(status, "SECRET") }
            let (dialler, relay) = (try RelayTest.dialler(), try RelayTest.relay(server))
            let error = try await RelayTest.error(dialler, relay)
            #expect(error.refusesUpgrade == refuses && error.description.hasSuffix("\(status)"), "\(error)")
            #expect(try await RelayTest.error(dialler, relay, webSocket: true).refusesUpgrade == false)
            #expect(server.requests.count == 2)
        }
    }

    @Test func whatIsNoUpgradeToDERPIsAnError() async throws {
        for (answer, text) in [
            ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "not HTTP"), ("\u{0}\u{1}\u{2}", "not HTTP"),
            ("HTTP/1.1 200 OK\r\nX: \(String(repeating: "x", count: 70_000))\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "lacks Upgrade: DERP"),
            ("HTTP/1.1 101 X\r\nUpgrade: DERPY\r\nConnection: Upgrade\r\n\r\n", "lacks Upgrade: DERP"),
            ("HTTP/1.1 101 X\r\nUpgrade: DERP\r\n\r\n", "lacks Connection: Upgrade"),
            ("HTTP/1.1 101 X\r\n\r\n", "lacks Upgrade: DERP"),
        ] {
            let ends = Ends()
            let server = try await StandIn(onConnect: ends.add) { $1.send(answer) }
            let error = try await RelayTest.error(RelayTest.dialler(), RelayTest.relay(server))
            #expect(!error.refusesUpgrade && error.description.contains(text), "\(error)")
            try await ends.closed()
        }
        // Names of protocols have no case.
        let server = try await StandIn {
            $1.upgradeToDERP("HTTP/1.1 101 X\r\nupgrade: derp\r\nconnection: keep-alive, upgrade\r\n\r\n")
        }
        try await RelayTest.echo(RelayTest.dialler(), RelayTest.relay(server))
    }

    @Test func aWebSocketMustNotSpeakAnotherSubprotocol() async throws {
        for fields in [[], ["Sec-WebSocket-Protocol: derp"]] {
            let server = try await StandIn { $1.upgrade($0, fields: fields) }
            try await RelayTest.echo(RelayTest.dialler(), RelayTest.relay(server), webSocket: true)
        }
        for fields in [
            ["Sec-WebSocket-Protocol: chat"], ["Sec-WebSocket-Protocol: derp, chat"],
            ["Sec-WebSocket-Protocol: derp", "Sec-WebSocket-Protocol: derp"],
            ["Sec-WebSocket-Extensions: permessage-deflate"],
        ] {
            let server = try await StandIn { $1.upgrade($0, fields: fields) }
            let error = try await RelayTest.error(RelayTest.dialler(), RelayTest.relay(server), webSocket: true)
            #expect(error.description.contains("which was not offered"), "\(error)")
        }
    }

    @Test func aRelayThatHangsIsGivenUpAtTheLimit() async throws {
        let tls = try Certificates.shared.get().server("DNS:localhost")
        for (isPlain, server) in [
            (true, try await StandIn { _, _ in }), (false, try await StandIn(onConnect: { _ in true }) { _, _ in }),
            (true, try await StandIn { $1.send("HTTP/1.1 101 Switching Protocols\r\nUpg") }),
            (true, try await StandIn { $1.send("HTTP/1.1 400 X\r\nContent-Length: 10\r\n\r\n{") }),
            (false, try await StandIn(tls: tls) { _, _ in }),
        ] {
            let (dialler, relay) = (try RelayTest.dialler(), try RelayTest.relay(server) { $0.forceHTTP = isPlain })
            let error = try await RelayTest.error(dialler, relay, within: .milliseconds(150))
            #expect(!error.refusesUpgrade)
        }
        let ends = Ends()
        let server = try await StandIn(onConnect: ends.add) { _, _ in }
        let (dialler, relay) = (try RelayTest.dialler(), try RelayTest.relay(server))
        try await expectSilence { try await RelayTest.error(dialler, relay, within: $0) }
        try await expectSilence { try await RelayTest.latencyError(dialler, relay, within: $0) }
        try await ends.closed(atLeast: 2)
    }

    /// On a busy machine a short limit may end before there is a connection.
    private func expectSilence(_ call: (Duration) async throws -> RelayDialError) async throws {
        for limit in [100, 1_000, 10_000] {
            let error = try await call(.milliseconds(limit))
            if error.description.contains("gave no answer within") { return }
            #expect(error.description.contains("could not be connected to in time"), "\(error)")
        }
        Issue.record("no connection in 10 s")
    }

    @Test func aRelayThatIsNotThereIsNamed() async throws {
        let server = try await StandIn { _, connection in connection.close() }
        let (dialler, relay) = (try RelayTest.dialler(), try RelayTest.relay(server))
        #expect(try await RelayTest.error(dialler, relay).description.contains("ended before it answered"))
        let nowhere = try RelayTest.relay(server) { $0.derpPort = 1 }
        #expect(try await RelayTest.error(dialler, nowhere).description.contains("cannot be connected to"))
        #expect(try await RelayTest.latencyError(dialler, nowhere).description.contains("cannot be connected to"))
    }

    @Test func aCancelledDialLeavesNoConnection() async throws {
        let ends = Ends()
        let server = try await StandIn(onConnect: ends.add) { _, _ in }
        let (dialler, relay) = (try RelayTest.dialler(), try RelayTest.relay(server))
        let calls: [Task<Void, any Error>] = [
            Task {
                _ = try await dialler.dial(relay, webSocket: false, on: RelayTest.loop, within: .seconds(60)) { _ in }
            },
            Task { _ = try await dialler.latency(relay, on: RelayTest.loop, within: .seconds(60)) },
        ]
        try await eventually("the requests") { server.requests.count == 2 }
        for call in calls {
            call.cancel()
            await #expect(throws: CancellationError.self) { try await call.value }
        }
        try await ends.closed(atLeast: 2)
    }

    @Test func anInitializerThatFailsFailsTheDial() async throws {
        struct Failure: Error {}
        let ends = Ends()
        let server = try await StandIn(onConnect: ends.add) { $1.upgradeToDERP() }
        let (dialler, relay) = (try RelayTest.dialler(), try RelayTest.relay(server))
        await #expect(throws: RelayDialError("\(relay): Failure()")) {
            try await dialler.dial(relay, webSocket: false, on: RelayTest.loop, within: .seconds(30)) { _ in
                throw Failure()
            }
        }
        try await ends.closed()
    }
}
