import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import Foundation
import Glibc
import IPAddresses
import NIOCore
import NIOPosix
import Tailnet
import Testing

@testable import ControlPlaneSimulator
@testable import WorkspaceAgent

/// The built daemon as a node of the tailnet: coordination, the relay and STUN of the simulator, and a client.
@Suite("Tailnet", .blocking, .timeLimit(.minutes(10))) struct TailnetLinkTests {
    private struct World {
        let link: LinkWorld
        let daemon: DaemonProcess
        let client: DevClient

        func end(status: Int32 = 0) async throws {
            await client.close()
            #expect(try await daemon.stop() == status)
            await link.stop()
        }

        var report: TailnetReport {
            get throws {
                let body = try daemon.connect().request("GET", "/api/v0/tailnet").body
                return try JSONDecoder().decode(TailnetReport.self, from: Data(body))
            }
        }

        func command(_ arguments: String...) throws -> CommandResult {
            try CommandResult.of([DaemonProcess.binary, "tailnet"] + arguments + ["--http-socket", daemon.socket])
        }

        /// A connection to a port of the agent that sends and gives back what comes.
        func exchange(
            _ port: Int, _ bytes: [UInt8], after count: Int = .max,
            during: @escaping @Sendable () async throws -> Void = {}
        ) async throws -> [UInt8] {
            let node = client.node
            let address = try #require(
                TailnetAddresses(agentID: link.server.service.manifest.agentID)?.client)
            let channel = try await node.loop.flatSubmit {
                let wrapped = node.loop.makePromise(of: NIOAsyncChannel<ByteBuffer, ByteBuffer>.self)
                node.tunnel.connect(to: Endpoint(address, UInt16(port))) { channel in
                    wrapped.succeed(
                        try NIOAsyncChannel(
                            wrappingChannelSynchronously: channel,
                            configuration: .init(isOutboundHalfClosureEnabled: true)))
                }.whenFailure { wrapped.fail($0) }
                return wrapped.futureResult
            }.get()
            return try await channel.executeThenClose { inbound, outbound in
                async let sent: Void = {
                    for start in stride(from: 0, to: bytes.count, by: 100_000) {
                        try await outbound.write(ByteBuffer(bytes: bytes[start..<min(start + 100_000, bytes.count)]))
                    }
                    outbound.finish()
                }()
                var (result, isPast): ([UInt8], Bool) = ([], false)
                for try await data in inbound {
                    result += data.readableBytesView
                    guard !isPast, result.count >= count else { continue }
                    isPast = true
                    try await during()
                }
                try await sent
                return result
            }
        }
    }

    private func world(
        stun: Bool = true, tcp: Bool = false, arguments: [String] = [],
        manifest: (inout Coder_Agent_V2_Manifest) -> Void = { _ in }
    ) async throws -> World {
        let link = try await LinkWorld(
            server: { if stun { $0.stunPort = 0 } }, manifest: { message, _ in manifest(&message) })
        let daemon = try link.daemon(arguments: arguments, tcp: tcp)
        let pool = BlockingPool("test-client", threads: 1)
        let client = try #require(
            try DevClient(
                link.server, tokenFile: link.tokenFile, loop: MultiThreadedEventLoopGroup.singleton.next(), pool: pool))
        try await client.join()
        return World(link: link, daemon: daemon, client: client)
    }

    private let bytes = (0..<(4 << 20)).map { UInt8(truncatingIfNeeded: $0 &* 2_654_435_761 >> 13) }

    @Test func aClientReachesTheAPIAndAPort() async throws {
        let world = try await world()
        #expect(try await world.client.get("/healthz").status == 200)
        let echo = try EchoServer()
        #expect(try await world.exchange(echo.port, bytes) == bytes)
        // The daemon's own ports stay closed, and so do those of SSH.
        await #expect(throws: (any Error).self) { _ = try await world.exchange(22, [1]) }
        try await world.client.waitFor("a direct path") { $0.isDirect }
        #expect(try await world.client.get("/healthz").path == "direct")
        try await eventually("the agent takes it, too") { try world.report.peers.first?.path == .direct }
        let report = try world.report
        #expect(report.problem == nil && report.home_region == 999 && report.coordination.is_open)
        #expect(report.direct.endpoints.count > 0)

        let status = try world.command("status")
        #expect(status.code == 0 && status.output.contains("home, connected") && status.output.contains("(direct)"))
        let ping = try world.command("ping", report.peers[0].id, "--count", "2")
        #expect(ping.code == 0 && ping.output.contains("directly via "))
        let unknown = try world.command("ping", "nobody")
        #expect(unknown.code == 1 && unknown.errors.contains("No peer is \"nobody\""))

        let netcheck = try world.daemon.connect().request("GET", "/api/v0/netcheck").json
        let info = try #require(netcheck["net_info"] as? [String: Any])
        #expect(info["PreferredDERP"] as? Int == 999 && info["WorkingUDP"] as? Bool == true && info["UPnP"] is NSNull)
        let page = try world.daemon.connect().request("GET", "/debug/magicsock").text
        #expect(page.contains("region 999") && page.contains("home") && page.contains(report.peers[0].id))
        try await world.end()
    }

    @Test func thePageShowsPeersAndPaths() async throws {
        let world = try await world(tcp: true)
        #expect(try await world.client.get("/healthz").status == 200)
        try await world.client.waitFor("a direct path") { $0.isDirect }
        let (daemon, peer) = (world.daemon, try #require(try world.report.peers.first))
        try await blocking {
            let visit = try PageVisit(daemon)
            try visit.show("tailnet")
            try visit.wait(for: "Reachable", in: "#tailnet-node")
            try visit.wait(for: "home, connected", in: "#tailnet-relays")
            try visit.wait(for: "UDP port", in: "#tailnet-direct")
            try visit.wait(for: peer.addresses[0], in: "#tailnet-peers")
            try visit.wait(for: "direct: ", in: "#tailnet-peers")
            try visit.press("Ping")
            try visit.wait(for: " ms, ", in: "#tailnet-peers")
            try visit.expectQuiet()
        }
        try await world.end()
    }

    @Test func nothingBreaksAConnection() async throws {
        let world = try await world()
        let echo = try EchoServer()
        let link = world.link
        #expect(try await world.exchange(echo.port, bytes, after: 1 << 20) { link.server.cut() } == bytes)
        #expect(try await world.exchange(echo.port, bytes, after: 1 << 20) { link.server.relay.restart() } == bytes)
        try await eventually("coordination is open again") { try world.report.coordination.is_open }
        #expect(try world.report.peers.count == 1)
        try await world.end()
    }

    @Test func theEndIsSaidToClients() async throws {
        let world = try await world()
        #expect(try await world.client.get("/healthz").status == 200)
        let client = world.client
        #expect(try await world.daemon.stop() == 0)
        // Not merely lost, which would keep it for minutes.
        try await eventually("the client has no peer") { try await client.node.onLoop { $0.report() }.peers.isEmpty }
        await client.close()
        await world.link.stop()
    }

    @Test func whatTheManifestForbids() async throws {
        let world = try await world { manifest in
            manifest.disableDirectConnections = true
            manifest.derpForceWebsockets = true
        }
        #expect(try await world.client.get("/healthz").status == 200)
        let report = try world.report
        #expect(report.direct.is_enabled == false && report.direct.port == nil && report.direct.endpoints.isEmpty)
        #expect(report.peers.first?.path == .relay)
        // The client's is an upgrade.
        #expect(world.link.server.relay.webSockets == 1 && world.link.server.relay.connections == 2)
        try await world.end()
    }

    @Test func anotherAgentWithTheSameTokenIsNamed() async throws {
        let world = try await world()
        let id = [UInt8](world.link.server.service.manifest.agentID)
        let other = world.link.server.coordination.attach(id, isAgent: true) { _ in
        } end: {
        }
        // The daemon takes its place again by and by, and then the other one is overwritten.
        try await world.link.recorder.wait("it connects anew") { $0.opened >= 2 }
        other.lost()
        try await eventually("coordination is open again") { try world.report.coordination.is_open }
        try await world.end()
    }

    @Test func useIsReported() async throws {
        let world = try await world()
        #expect(try await world.client.get("/healthz").status == 200)
        try await world.link.recorder.wait("flows and bytes") { recording in
            recording.requests(AgentAPI.updateStats).contains {
                ($0.stats.connectionsByProto["TCP"] ?? 0) > 0 && $0.stats.rxBytes > 0 && $0.stats.txPackets > 0
                    && $0.stats.connectionCount == $0.stats.connectionsByProto.values.reduce(0, +)
            }
        }
        try await world.link.recorder.wait("a latency") { recording in
            recording.requests(AgentAPI.updateStats).contains { $0.stats.connectionMedianLatencyMs > 0 }
        }
        let metrics = try world.daemon.connect().request("GET", "/debug/prometheus").text
        #expect(metrics.contains("agent_tailnet_relay_connected 1"))
        #expect(metrics.contains("coderd_agentstats_currently_reachable_peers{connection_type=\"p2p\"}"))
        try await world.end()
    }

    @Test func withoutIt() async throws {
        let link = try await LinkWorld(manifest: { _, _ in })
        let daemon = try link.daemon(arguments: ["--tailnet", "off"])
        try await link.reported(.ready)
        let answer = try daemon.connect().request("GET", "/api/v0/tailnet")
        #expect(answer.status == 503 && answer.json["detail"] as? String == "It was started with --tailnet off.")
        let status = try CommandResult.of([
            DaemonProcess.binary, "tailnet", "status", "--http-socket", daemon.socket,
        ])
        #expect(status.code == 1 && status.errors.contains("--tailnet off"))
        #expect(link.recorder.count(TailnetAPI.coordinate) == 0)
        #expect(try await daemon.stop() == 0)
        await link.stop()
    }

    @Test func doctorSaysWhatIsWrong() async throws {
        let world = try await world()
        func check() throws -> (String, String) {
            let result = try CommandResult.of([
                DaemonProcess.binary, "doctor", "--output", "json", "--agent-url", world.link.url,
                "--agent-token-file", world.link.tokenFile, "--http-socket", world.daemon.socket,
            ])
            let json = try JSONSerialization.jsonObject(with: Data(result.output.utf8)) as? [String: Any]
            let checks = json?["checks"] as? [[String: Any]] ?? []
            let tailnet = checks.first { $0["name"] as? String == "tailnet" }
            return (tailnet?["status"] as? String ?? "", tailnet?["detail"] as? String ?? "")
        }
        let good = try check()
        #expect(good.0 == "ok" && good.1.contains("relay 999 is connected, 1 peers"), "\(good)")
        world.link.server.relay.stall(true)
        world.link.server.relay.restart()
        try await eventually("an error that names the relay") {
            let bad = try check()
            return bad.0 == "error" && bad.1.contains("the relay of region 999 is not connected")
        }
        let health = try world.daemon.connect().request("GET", "/healthz").text
        #expect(health.contains("tailnet: the relay of region 999 is not connected"))
        try await world.end()
    }
}

/// A TCP echo at loopback.
private final class EchoServer: Sendable {
    private let channel: any Channel
    let port: Int

    init() throws {
        channel = try ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Echo()) }
            }.bind(host: "127.0.0.1", port: 0).wait()
        port = channel.localAddress?.port ?? 0
    }

    deinit { channel.close(promise: nil) }

    private final class Echo: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            context.writeAndFlush(data, promise: nil)
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case .inputClosed? = event as? ChannelEvent {
                let channel = context.channel
                context.writeAndFlush(wrapOutboundOut(ByteBuffer())).whenComplete { _ in
                    channel.close(mode: .output, promise: nil)
                }
            }
        }
    }
}
