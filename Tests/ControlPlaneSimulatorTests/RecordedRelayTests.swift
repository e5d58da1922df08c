import AgentTestSupport
import Foundation
import Sodium
import Testing

@testable import ControlPlaneSimulator

/// The recorded client's bytes against the simulator's relay (tailnet_derp_http.json).
@Suite("Simulator: recorded relay")
struct RecordedRelayTests {
    private func vector(_ name: String) throws -> [String: Any] {
        let tests = #filePath.split(separator: "/").dropLast(2).joined(separator: "/")
        return try VectorFile.read(name, tests: "/\(tests)/DERPTests/Tests.swift")
    }

    /// Without the date, and what ends the connection behind a refusal.
    private func head(_ text: String) -> Set<String> {
        Set(text.components(separatedBy: "\r\n").map { $0.lowercased() })
            .filter { !$0.hasPrefix("date:") && $0 != "connection: close" }
    }

    @Test("upgrade, WebSocket, and a refused upgrade", arguments: 0..<3)
    func exchange(_ index: Int) async throws {
        let keys = try vector("tailnet_derp.json")
        let relayKey = try PrivateKey(#require(bytes(fromHex: keys["server_private"])))
        let clientKey = try PrivateKey(#require(bytes(fromHex: keys["a_private"])))
        let exchanges = try #require(vector("tailnet_derp_http.json")["exchanges"] as? [[String: Any]])
        let exchange = exchanges[index]
        let server = try await startSimulator { $0.relay.key = relayKey }
        if exchange["mode"] as? String == "refused upgrade, then websocket" { server.relay.refuseUpgrades(.init()) }

        var clients: [Int: ByteClient] = [:]
        var expected: [Int: [UInt8]] = [:]
        for event in try #require(exchange["events"] as? [[String: Any]]) {
            let number = try #require(event["connection"] as? Int)
            if clients[number] == nil { clients[number] = try await .connect(server.address) }
            let client = try #require(clients[number])
            let http = event["http"] as? String
            let frames = try #require(bytes(fromHex: event["hex"] ?? event["hex_after_head"]))
            if event["from"] as? String == "client" {
                try await client.write(Array((http ?? "").utf8) + frames)
            } else {
                if let http {
                    try await eventually("the head") { !client.head.isEmpty }
                    #expect(head(client.head) == head(http))
                }
                expected[number, default: []] += frames
                let wanted = expected[number]?.count ?? 0
                try await eventually("\(wanted) bytes") { client.afterHead.count >= wanted }
            }
        }
        for (number, client) in clients {
            let (got, wanted) = (client.afterHead, expected[number] ?? [])
            #expect(got.count == wanted.count)
            // The box in the server info has a nonce of its own.
            guard let start = wanted.indices.first(where: { wanted[$0...].starts(with: [3, 0, 0, 0, 0x35]) }) else {
                #expect(got == wanted)
                continue
            }
            let info = start + 5..<start + 5 + 0x35
            #expect(got[..<info.lowerBound] == wanted[..<info.lowerBound])
            #expect(got[info.upperBound...] == wanted[info.upperBound...])
            let box = try #require(Box(clientKey, relayKey.publicKey))
            let json = box.open(Array(got[info].dropFirst(24)), nonce: Array(got[info].prefix(24)))
            #expect(json.map { String(decoding: $0, as: UTF8.self) } == #"{"version":2}"#)
        }
        if exchange["mode"] as? String == "upgrade" {
            // Its greeting said that this relay is its home.
            #expect(server.relay.isHome(of: clientKey.publicKey))
        }
        await server.stop()
    }
}
