import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import DRPC
import Foundation
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import ControlPlaneSimulator

/// A dRPC connection to the tailnet's rpcs, whose bytes a test writes and reads.
private final class Link: Sendable {
    let service: AgentService
    let coordination = CoordinationService()
    let cuts = Mutex(0)
    private let server: any Channel
    private let directory: TemporaryDirectory

    init() async throws {
        directory = try TemporaryDirectory()
        let clock = AgentClock(EventLoopClock(group: MultiThreadedEventLoopGroup.singleton))
        var manifest = Coder_Agent_V2_Manifest()
        manifest.agentID = Data(makeID(0x11))
        service = AgentService(
            configuration: .init(manifest: SimulatedManifest(manifest)), recorder: Recorder(clock: clock), clock: clock)
        let made = Mutex<Link?>(nil)
        let (service, coordination) = (service, coordination)
        server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                let caller = AgentService.Caller(connection: 1, version: APIVersion(2, 9)) {
                    made.withLock { $0 }?.cuts.withLock { $0 += 1 }
                    channel.close(promise: nil)
                }
                var router = Router()
                CoordinationRPC(coordination: coordination, service: service).add(caller, to: &router)
                let rpcs = router
                return channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(RPCServerHandler(router: rpcs))
                }
            }.bind(unixDomainSocketPath: "\(directory.path)/s").get()
        made.withLock { $0 = self }
    }

    func client(reads: Bool = true) async throws -> ByteClient {
        try await ByteClient.connect(SocketAddress(unixDomainSocketPath: "\(directory.path)/s"), reads: reads)
    }

    func stop() async throws { try await server.close() }
}

/// A dRPC frame, its message decoded where it has one.
private struct Frame: Equatable {
    var header: [UInt8]
    var data: [UInt8]

    /// The whole frames of bytes.
    static func all(_ bytes: [UInt8]) -> [Frame] {
        var rest = bytes[...]
        var frames: [Frame] = []
        while let frame = next(&rest) { frames.append(frame) }
        return frames
    }

    private static func next(_ bytes: inout ArraySlice<UInt8>) -> Frame? {
        var rest = bytes
        guard let control = rest.popFirst() else { return nil }
        var header = [control]
        var length = 0
        for number in 0..<3 {
            var (shift, value) = (0, 0)
            repeat {
                guard let byte = rest.popFirst() else { return nil }
                header.append(byte)
                value |= Int(byte & 0x7f) << shift
                shift += 7
            } while header[header.count - 1] & 0x80 != 0
            if number == 2 { length = value }
        }
        guard rest.count >= length else { return nil }
        defer { bytes = rest.dropFirst(length) }
        return Frame(header: header, data: Array(rest.prefix(length)))
    }

    /// Entries of maps have any order.
    func means(_ other: Frame, isMap: Bool) -> Bool {
        guard header == other.header else { return false }
        if data == other.data { return true }
        if isMap {
            return (try? Coder_Tailnet_V2_DERPMap(serializedBytes: data)) == (try? .init(serializedBytes: other.data))
        }
        return (try? CoordinateResponse(serializedBytes: data)) == (try? .init(serializedBytes: other.data))
    }
}

@Suite("Simulator: coordination over dRPC")
struct CoordinationRPCTests {
    private func events(_ name: String) throws -> [[String: Any]] {
        try #require(VectorFile.read("tailnet_streams.json")[name] as? [[String: Any]])
    }

    private func message(_ event: [String: Any]) throws -> CoordinateResponse {
        try CoordinateResponse(jsonUTF8Data: JSONSerialization.data(withJSONObject: #require(event["message"])))
    }

    @Test("the recorded conversations", arguments: ["coordinate", "coordinate_bad_address", "coordinate_overwritten"])
    func recorded(_ name: String) async throws {
        let link = try await Link()
        let socket = try await link.client()
        let events = try events(name)
        var client: TestPeer?
        var expected: [UInt8] = []
        var sent = 0
        for (index, event) in events.enumerated() {
            if let bytes = bytes(fromHex: event["hex"]) {
                if event["from"] as? String == "agent" {
                    try await socket.write(bytes)
                    sent += 1
                    let count = sent
                    try await link.service.recorder.wait("what was sent") { $0.count(TailnetAPI.coordinate) == count }
                } else {
                    expected += bytes
                    let wanted = Frame.all(expected)
                    try await eventually("frame \(wanted.count)") { Frame.all(socket.bytes).count >= wanted.count }
                    for (got, wanted) in zip(Frame.all(socket.bytes), wanted) {
                        #expect(got.means(wanted, isMap: false))
                    }
                }
            }
            switch event["note"] as? String {
            case "a client adds a tunnel to the agent and its node arrives":
                let peer = TestPeer(link.coordination, 0x22)
                let node = try message(#require(events[index...].first { $0["message"] != nil })).peerUpdates[0].node
                peer.send { $0.updateSelf.node = node }
                peer.send { $0.addTunnel.id = Data(makeID(0x11)) }
                #expect(peer.taken().first?.peerUpdates.first?.kind == .node)
                client = peer
            case "client received": #expect(try client?.taken() == [message(event)])
            case "the client's connection to the coordinator breaks": client?.lost()
            case "another connection with the same agent id takes over":
                _ = TestPeer(link.coordination, 0x11, isAgent: true)
            default: break
            }
        }
        #expect(Frame.all(socket.bytes).count == Frame.all(expected).count)
        #expect(link.service.recorder.recording.refusals.count == (name == "coordinate_bad_address" ? 1 : 0))
        try await link.stop()
    }

    @Test("the recorded stream of relay maps")
    func recordedMaps() async throws {
        let link = try await Link()
        let socket = try await link.client()
        let events = try events("stream_derp_maps")
        let server = events.filter { $0["from"] as? String == "server" }
            .flatMap { Frame.all(bytes(fromHex: $0["hex"]) ?? []) }
        #expect(server.count == 2)
        for (index, frame) in server.enumerated() {
            let map = try Coder_Tailnet_V2_DERPMap(serializedBytes: frame.data)
            link.service.reconfigure { $0.derpMap = map }
            link.service.reconfigure { $0.derpMap = map }
            if index == 0 {
                for event in events where event["from"] as? String == "agent" {
                    try await socket.write(#require(bytes(fromHex: event["hex"])))
                }
            }
            try await eventually("map \(index)") { Frame.all(socket.bytes).count > index }
        }
        let got = Frame.all(socket.bytes)
        #expect(got.count == server.count)
        for (got, wanted) in zip(got, server) { #expect(got.means(wanted, isMap: true)) }
        await socket.close()
        try await link.stop()
    }

    @Test("a connection that breaks is LOST; one that ends its requests, too")
    func lost() async throws {
        let link = try await Link()
        let client = TestPeer(link.coordination, 0x22)
        client.send { $0.addTunnel.id = Data(makeID(0x11)) }
        let start = try #require(bytes(fromHex: events("coordinate")[1]["hex"]))
        for closeSend in [false, true] {
            let socket = try await link.client()
            try await socket.write(start)
            try await eventually("its node") { link.coordination.node(of: makeID(0x11)) != nil }
            // The client hears of it a moment after it is known.
            try await eventually("the node") { client.heard(.node) }
            if closeSend { try await socket.write([0x0d, 1, 3, 0]) } else { await socket.close() }
            try await eventually("the loss") { client.heard(.lost) }
            if closeSend { try await eventually("the close") { Frame.all(socket.bytes).last?.header.first == 0x0b } }
            await socket.close()
        }
        try await link.stop()
    }

    @Test("planned faults take the streams")
    func faults() async throws {
        let link = try await Link()
        let start = try #require(bytes(fromHex: events("coordinate")[1]["hex"]))
        link.service.faults.plan(.fail(text: "not today"), on: TailnetAPI.coordinate)
        let failed = try await link.client()
        try await failed.write(start)
        try await eventually("the error") { failed.text.contains("not today") }
        link.service.faults.plan(.drop(recorded: false), on: TailnetAPI.coordinate)
        let dropped = try await link.client()
        try await dropped.write(start)
        try await eventually("the cut") { dropped.hasEnded }
        #expect(link.coordination.peers.isEmpty)
        try await link.stop()
    }

    @Test("an agent that does not read is cut")
    func slowAgent() async throws {
        let link = try await Link()
        let socket = try await link.client(reads: false)
        try await socket.write(#require(bytes(fromHex: events("coordinate")[1]["hex"])))
        try await eventually("its node") { link.coordination.node(of: makeID(0x11)) != nil }
        let large = CoordinateResponse.with { $0.error = String(repeating: "x", count: 65_536) }
        // The socket takes some of them.
        for _ in 0..<SimulatorLimits.waitingResponses + 300 where link.cuts.withLock({ $0 }) == 0 {
            link.coordination.send(large, to: makeID(0x11))
        }
        try await eventually("the cut") { link.cuts.withLock { $0 } > 0 && link.coordination.peers.isEmpty }
        try await link.stop()
    }
}
