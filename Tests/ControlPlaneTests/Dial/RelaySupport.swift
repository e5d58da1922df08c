import AgentTestSupport
import DERP
import Foundation
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import ControlPlane

/// Dials relays that are stand-ins.
enum RelayTest {
    static let loop = MultiThreadedEventLoopGroup.singleton.any()

    /// A relay of a map, at a local server.
    static func relay(_ server: StandIn, _ change: (inout DERPMap.Node) -> Void = { _ in }) throws -> RelayURL {
        var node = DERPMap.Node()
        (node.hostName, node.derpPort, node.forceHTTP) = ("127.0.0.1", server.port, true)
        change(&node)
        return try #require(node.relay)
    }

    /// That of an agent whose control plane is elsewhere.
    static func dialler(_ change: (inout LinkConfiguration) throws -> Void = { _ in }) throws -> RelayDialler {
        DialTest.link(try DialTest.configuration("http://control-plane.example", change)).relays
    }

    /// Dials, sends bytes and waits for their echo behind `expected`, in hex.
    static func echo(
        _ dialler: RelayDialler, _ relay: RelayURL, webSocket: Bool = false, expected: String = ""
    ) async throws {
        let received = Mutex("")
        let channel = try await dialler.dial(relay, webSocket: webSocket, on: loop, within: .seconds(30)) { channel in
            try channel.pipeline.syncOperations.addHandler(Reader { bytes in received.withLock { $0 += bytes } })
        }
        #expect(channel.eventLoop === loop)
        try await channel.writeAndFlush(ByteBuffer(bytes: [0, 0xff, 1]))
        try await eventually("the echo") { received.withLock { $0 } == expected + "00ff01" }
        try await channel.close()
    }

    /// The error of a dial, which must fail and whose text must name the relay and hold no secret.
    static func error(
        _ dialler: RelayDialler, _ relay: RelayURL, webSocket: Bool = false, within limit: Duration = .seconds(30)
    ) async throws -> RelayDialError {
        try await error(of: relay.description) {
            _ = try await dialler.dial(relay, webSocket: webSocket, on: loop, within: limit) { _ in }
        }
    }

    static func latencyError(
        _ dialler: RelayDialler, _ relay: RelayURL, within limit: Duration = .seconds(30)
    ) async throws -> RelayDialError {
        try await error(of: "\(relay)/latency-check") {
            _ = try await dialler.latency(relay, on: loop, within: limit)
        }
    }

    private static func error(of url: String, _ body: () async throws -> Void) async throws -> RelayDialError {
        do {
            try await body()
        } catch let error as RelayDialError {
            #expect(error.description.contains(url) && !error.description.contains("SECRET"), "\(error)")
            return error
        }
        throw DeadlineExceeded(what: "the dial failed")
    }

    private final class Reader: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        let take: @Sendable (String) -> Void
        init(_ take: @escaping @Sendable (String) -> Void) { self.take = take }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) { take(hex(unwrapInboundIn(data))) }
    }

    static func hex(_ bytes: ByteBuffer) -> String {
        bytes.readableBytesView.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}

/// The server's ends of connections, to see that they are closed.
final class Ends: Sendable {
    private let channels = Mutex<[any Channel]>([])

    /// For ``StandIn``.
    func add(_ connection: StandIn.Connection) -> Bool {
        channels.withLock { $0.append(connection.channel) }
        return false
    }

    func closed(atLeast count: Int = 1) async throws {
        try await eventually("\(count) connections, all closed") {
            channels.withLock { $0.count >= count && $0.allSatisfy { !$0.isActive } }
        }
    }
}

/// What the real client and a real relay said (vectors: `tailnet_derp_http.json`).
struct RecordedRelays: Decodable {
    struct Event: Decodable {
        var from: String
        var http: String?
        var hex_after_head: String?

        /// Name in lower case and value of each field of the head.
        var fields: [String: String] {
            var fields: [String: String] = [:]
            for line in (http ?? "").components(separatedBy: "\r\n").dropFirst() where !line.isEmpty {
                let parts = line.split(separator: ":", maxSplits: 1)
                fields[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces)
            }
            return fields
        }

        var bytesAfterHead: ByteBuffer {
            let text = Array(hex_after_head ?? "")
            return ByteBuffer(
                bytes: stride(from: 0, to: text.count, by: 2).compactMap {
                    UInt8(String(text[$0...($0 + 1)]), radix: 16)
                })
        }
    }
    struct Exchange: Decodable {
        var mode: String
        var events: [Event]
    }
    var exchanges: [Exchange]

    /// The first exchange of a mode.
    static func exchange(_ mode: String) throws -> Exchange {
        let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../DERPTests/Vectors/tailnet_derp_http.json")
        let all = try JSONDecoder().decode(RecordedRelays.self, from: Data(contentsOf: file)).exchanges
        return try #require(all.first { $0.mode == mode })
    }
}
