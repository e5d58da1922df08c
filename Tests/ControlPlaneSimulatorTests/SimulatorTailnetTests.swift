import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import DERP
import Disco
import Foundation
import IPAddresses
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import ControlPlaneSimulator

/// Keeps the datagrams that came.
private final class Datagrams: ChannelInboundHandler, Sendable {
    typealias InboundIn = AddressedEnvelope<ByteBuffer>
    let all = Mutex<[[UInt8]]>([])

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = Array(unwrapInboundIn(data).data.readableBytesView)
        all.withLock { $0.append(bytes) }
    }
}

@Suite("Simulator: tailnet")
struct SimulatorTailnetTests {
    @Test("the STUN server answers requests of ours, and nothing else")
    func stun() async throws {
        let server = try await startSimulator { $0.stunPort = 0 }
        let address = try #require(server.stunAddress)
        let got = Datagrams()
        let socket = try await DatagramBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(got) }
            }.bind(host: "127.0.0.1", port: 0).get()
        let file = #filePath.split(separator: "/").dropLast(2).joined(separator: "/")
        let vector = try VectorFile.read("tailnet_stun.json", tests: "/\(file)/DiscoTests/Tests.swift")
        let request = try #require(bytes(fromHex: vector["request"]))
        for packet in [[1, 2, 3], [], Array(request.dropLast()), [UInt8](repeating: 1, count: 4_000), request] {
            try await socket.writeAndFlush(AddressedEnvelope(remoteAddress: address, data: ByteBuffer(bytes: packet)))
        }
        try await eventually("the answer") { got.all.withLock { !$0.isEmpty } }
        let answers = got.all.withLock { $0 }
        #expect(answers.count == 1)
        let (tx, seen) = try STUN.readResponse(answers[0])
        #expect(tx.bytes == Array(request[8..<20]))
        #expect(seen.description == "127.0.0.1:\(socket.localAddress?.port ?? 0)")
        try await socket.close()
        await server.stop()
    }

    @Test("a STUN port that is taken is named, and nothing stays open")
    func takenPort() async throws {
        let first = try await startSimulator { $0.stunPort = 0 }
        let port = try #require(first.stunAddress?.port)
        do {
            _ = try await startSimulator { $0.stunPort = port }
            Issue.record("no error")
        } catch {
            #expect("\(error)" == "cannot listen on UDP 127.0.0.1:\(port): Address already in use")
        }
        await first.stop()
        #expect(first.stunAddress == nil)
    }

    @Test("the map has the server's own relay where it listens, or what is configured")
    func map() async throws {
        let server = try await startSimulator { $0.stunPort = 0 }
        let region = try #require(server.derpMap.regions[999])
        #expect(server.derpMap.regions.count == 1 && region.embeddedRelay && region.regionCode == "coder")
        #expect(region.regionName == "Coder Embedded Relay" && region.nodes.count == 1)
        let node = try #require(region.nodes.first)
        #expect(node.name == "999b" && node.hostName == "127.0.0.1" && node.forceHTTP)
        #expect(Int(node.derpPort) == server.address?.port && Int(node.stunPort) == server.stunAddress?.port)
        #expect(server.service.manifest.derpMap == server.derpMap)
        var other = Coder_Tailnet_V2_DERPMap()
        other.regions = [7: .with { $0.regionID = 7 }]
        server.service.reconfigure { [other] in $0.derpMap = other }
        #expect(server.derpMap == other && server.service.manifest.derpMap == other)
        server.service.reconfigure { $0.derpMap = nil }
        #expect(server.derpMap.regions.keys.sorted() == [999])
        server.service.reconfigure { [other] in $0.manifest.message.derpMap = other }
        #expect(server.derpMap == other)
        await server.stop()

        let directory = try TemporaryDirectory()
        let unix = try await startSimulator { $0.address = .unix(path: "\(directory.path)/s") }
        let local = try #require(unix.derpMap.regions[999]?.nodes.first)
        #expect(local.hostName == "localhost" && local.derpPort == 0 && local.stunPort == -1)
        await unix.stop()
    }

    @Test("a padded manifest keeps its relays")
    func padding() throws {
        var manifest = Coder_Agent_V2_Manifest()
        manifest.derpMap.regions = [7: .with { $0.regionID = 7 }]
        let padded = AgentService.pad(manifest, to: 10_000)
        #expect(try (padded.serializedBytes() as [UInt8]).count == 10_000)
        #expect(padded.derpMap.regions == manifest.derpMap.regions)
    }

    @Test("an agent's connection has the tailnet's rpcs, another role's not", arguments: ["agent", ""])
    func rpcs(_ role: String) async throws {
        let server = try await startSimulator()
        let client = try await ByteClient.connect(server.address)
        try await client.write(
            "GET /api/v2/workspaceagents/me/rpc?version=2.9&role=\(role) HTTP/1.1\r\nHost: x\r\n"
                + "Coder-Session-Token: token\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: VEOc9MRXppfmfaJY477HIg==\r\n\r\n")
        try await eventually("the 101") { client.head.hasPrefix("HTTP/1.1 101 ") }
        let events = try #require(VectorFile.read("tailnet_streams.json")["stream_derp_maps"] as? [[String: Any]])
        let call = try #require(bytes(fromHex: events[0]["hex"]))
        // Data with SYN on stream 1.
        try await client.write(maskedFrame([0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, UInt8(call.count)] + call))
        if role == "agent" {
            try await server.recorder.wait("the call") { $0.count(TailnetAPI.streamDERPMaps) == 1 }
            try await eventually("the map") {
                String(decoding: binaryPayloads(client.afterHead), as: UTF8.self).contains("Coder Embedded Relay")
            }
        } else {
            try await eventually("the error") {
                String(decoding: binaryPayloads(client.afterHead), as: UTF8.self).contains("unknown rpc")
            }
        }
        await client.close()
        await server.stop()
    }
}
