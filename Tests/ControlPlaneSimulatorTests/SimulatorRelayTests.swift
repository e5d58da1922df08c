import AgentCore
import AgentTestSupport
import DERP
import Foundation
import NIOCore
import Sodium
import Testing

@testable import ControlPlaneSimulator

private func frame(_ frame: DERPFrame) -> [UInt8] {
    var out = ByteBuffer()
    frame.write(into: &out)
    return Array(out.readableBytesView)
}

@Suite("Simulator: relay")
struct SimulatorRelayTests {
    private func answer(_ server: SimulatorServer, _ request: String) async throws -> ByteClient {
        let client = try await ByteClient.connect(server.address)
        try await client.write(request)
        try await eventually("an answer to \(request)") { !client.head.isEmpty }
        return client
    }

    @Test("packets find their way between sockets and WebSockets, on different loops")
    func packets() async throws {
        let server = try await startSimulator()
        let plain = try await RelayClient.connect(server)
        let web = try await RelayClient.connect(server, isWebSocket: true, home: false)
        try await plain.greet()
        try await web.greet()
        #expect(server.relay.connections == 2 && server.relay.webSockets == 1)
        #expect(server.relay.isConnected(plain.key) && server.relay.isConnected(web.key))
        try await plain.send(Array("hello".utf8), to: web.key)
        try await web.expect(.packet(from: plain.key, ByteBuffer(string: "hello")))
        let large = [UInt8](repeating: 7, count: 30_000)
        try await web.send(large, to: plain.key)
        try await plain.expect(.packet(from: web.key, ByteBuffer(bytes: large)))
        #expect(server.relay.isHome(of: plain.key) && !server.relay.isHome(of: web.key))
        await web.bytes.close()
        try await plain.expect(.peerGone(web.key, .disconnected))
        server.relay.tellHealth("poorly")
        try await plain.expect(.health("poorly"))
        await server.stop()
        #expect(server.relay.connections == 0)
    }

    @Test("many clients on all loops lose nothing")
    func manyClients() async throws {
        let server = try await startSimulator()
        var clients: [RelayClient] = []
        for number in 0..<8 { clients.append(try await .connect(server, isWebSocket: number % 2 == 1)) }
        for client in clients { try await client.greet() }
        await withThrowingTaskGroup(of: Void.self) { group in
            for (index, client) in clients.enumerated() {
                let next = clients[(index + 1) % clients.count]
                group.addTask {
                    for number in 0..<100 { try await client.send([UInt8(number)], to: next.key) }
                }
            }
        }
        for (index, client) in clients.enumerated() {
            let sender = clients[(index + clients.count - 1) % clients.count].key
            var got: [DERPConnection.Event] = []
            try await eventually("all of them") {
                try await client.step()
                got += client.takeEvents().filter { if case .packet = $0 { true } else { false } }
                return got.count >= 100
            }
            #expect(got == (0..<100).map { .packet(from: sender, ByteBuffer(bytes: [UInt8($0)])) })
        }
        await server.stop()
    }

    @Test("a restart cuts every connection, and the key stays")
    func restart() async throws {
        let server = try await startSimulator()
        let key = try #require(server.relay.publicKey)
        let first = try await RelayClient.connect(server)
        let web = try await RelayClient.connect(server, isWebSocket: true)
        try await first.greet()
        try await web.greet()
        server.relay.restart(announcing: (5, 6))
        try await first.expect(.restarting(reconnectIn: .milliseconds(5), tryFor: .milliseconds(6)))
        try await eventually("the ends") { first.bytes.hasEnded && web.bytes.hasEnded }
        #expect(server.relay.connections == 0 && !server.relay.isConnected(first.key))
        let second = try await RelayClient.connect(server)
        try await second.expect(.greeted(server: key))
        try await second.greet()
        server.relay.restart()
        try await eventually("the end") { second.bytes.hasEnded }
        await server.stop()
    }

    @Test("a refused upgrade, and WebSocket all the same")
    func refusal() async throws {
        let server = try await startSimulator()
        server.relay.refuseUpgrades(.init(status: 403, body: "no\n"))
        let refused = try await answer(server, RelayClient.upgrade)
        try await eventually("the end") { refused.hasEnded }
        #expect(refused.head.hasPrefix("HTTP/1.1 403 ") && refused.afterHead == Array("no\n".utf8))
        try await RelayClient.connect(server, isWebSocket: true).greet()
        server.relay.refuseUpgrades(nil)
        try await RelayClient.connect(server).greet()
        await server.stop()
    }

    @Test("latency checks, and requests that are none for the relay")
    func requests() async throws {
        let server = try await startSimulator()
        let check = try await answer(server, "GET /derp/latency-check HTTP/1.1\r\nHost: x\r\n\r\n")
        #expect(check.head.hasPrefix("HTTP/1.1 200 "))
        // The connection goes on.
        try await check.write("GET /derp HTTP/1.1\r\nHost: x\r\n\r\n")
        try await eventually("the second answer") { check.text.contains("HTTP/1.1 426 ") }
        for (request, status) in [
            ("POST /derp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
            ("POST /derp/latency-check HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
            ("GET /derp HTTP/1.1\r\nHost: x\r\nUpgrade: DERP\r\n\r\n", 426),
            ("GET /derp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 426),
            ("GET /derp/other HTTP/1.1\r\nHost: x\r\n\r\n", 404),
            (RelayClient.webSocket.replacingOccurrences(of: "Protocol: derp", with: "Protocol: chat"), 400),
            (RelayClient.webSocket.replacingOccurrences(of: "Version: 13", with: "Version: 12"), 400),
        ] {
            #expect(try await answer(server, request).head.hasPrefix("HTTP/1.1 \(status) "), "\(request)")
        }
        #expect(server.relay.connections == 0)
        await server.stop()
    }

    @Test(
        "what is no DERP, a box of another key and a frame over 1 MiB end their connection alone",
        arguments: [false, true])
    func badInput(_ isWebSocket: Bool) async throws {
        let server = try await startSimulator()
        let bystander = try await RelayClient.connect(server)
        try await bystander.greet()
        let key = try PrivateKey([UInt8](repeating: 9, count: 32)).publicKey
        let box = DERPFrame.clientInfo(
            key, nonce: [UInt8](repeating: 0, count: 24), box: [UInt8](repeating: 0, count: 40))
        for bad in [Array("GARBAGE, not DERP".utf8), frame(box), frame(.keepAlive), [0x02, 0, 0x10, 0, 1]] {
            let client = try await RelayClient.connect(server, isWebSocket: isWebSocket)
            try await client.bytes.write(isWebSocket ? maskedFrame(bad) : bad)
            try await eventually("it is gone") { server.relay.connections == 1 }
            if !isWebSocket { try await eventually("the end of \(bad)") { client.bytes.hasEnded } }
            await client.bytes.close()
        }
        // The same from one that has greeted.
        let greeted = try await RelayClient.connect(server)
        try await greeted.greet()
        try await greeted.bytes.write([0x04, 0, 0x10, 0, 1])
        try await eventually("the end") { greeted.bytes.hasEnded }
        // Bytes cut anywhere, and unknown frames, harm nobody.
        let slow = try await RelayClient.connect(server)
        try await slow.greet()
        for byte in [0x77, 0, 0, 0, 2, 1, 2] + frame(.send(to: bystander.key, ByteBuffer(string: "late"))) {
            try await slow.bytes.write([byte])
        }
        try await bystander.expect(.packet(from: slow.key, ByteBuffer(string: "late")))
        await server.stop()
    }

    @Test("a client that does not read loses the oldest packets, then its connection")
    func slowReader() async throws {
        let clock = ManualClock()
        let server = try await startSimulator(clock: AgentClock(clock))
        let reader = try await ByteClient.connect(server.address, reads: false)
        var random = SystemRandomNumberGenerator()
        let key = try PrivateKey(random: &random)
        let relayKey = try #require(server.relay.publicKey)
        let nonce = [UInt8](repeating: 1, count: 24)
        let box = try #require(Box(key, relayKey)?.seal(Array(#"{"version":2}"#.utf8), nonce: nonce))
        try await reader.write(RelayClient.upgrade)
        try await reader.write(frame(.clientInfo(key.publicKey, nonce: nonce, box: box)))
        try await eventually("its greeting") { server.relay.isConnected(key.publicKey) }
        let sender = try await RelayClient.connect(server)
        try await sender.greet()
        let packet = frame(.send(to: key.publicKey, ByteBuffer(repeating: 1, count: 60_000)))
        var sent = 0
        while server.relay.counters?.droppedQueueFull == 0, sent < 2_000 {
            try await sender.bytes.write(packet)
            sent += 1
        }
        #expect(server.relay.counters?.droppedQueueFull ?? 0 > 0)
        try await eventually("the cut") {
            clock.advance(by: .milliseconds(500))
            return server.relay.droppedSlow == 1 && server.relay.connections == 1
        }
        try await sender.expect(.peerGone(key.publicKey, .disconnected))
        await server.stop()
    }

    @Test("keep-alives come at their time, and a stalled relay says nothing")
    func times() async throws {
        let clock = ManualClock()
        let server = try await startSimulator(clock: AgentClock(clock))
        let client = try await RelayClient.connect(server)
        try await client.greet()
        // The relay's timer is a task of its own with this clock.
        try await eventually("a keep-alive") {
            clock.advance(by: .seconds(10))
            return client.bytes.bytes.suffix(5) == [6, 0, 0, 0, 0]
        }
        server.relay.stall(true)
        let other = try await RelayClient.connect(server)
        try await eventually("it is taken") { server.relay.connections == 2 }
        try await client.send([1], to: other.key)
        #expect(other.bytes.afterHead.isEmpty)
        server.relay.stall(false)
        try await other.greet()
        await server.stop()
    }
}
