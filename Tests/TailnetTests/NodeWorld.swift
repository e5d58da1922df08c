import AgentCore
import AgentProto
import AgentTestSupport
import DERP
import Foundation
import IPAddresses
import Logging
import NIOCore
import NIOPosix
import NetStack
import Synchronization

@testable import Tailnet

/// Two nodes of ours, a relay and a control plane that tells each of the other: an agent that serves, and a client.
final class NodeWorld: Sendable {
    static let agentID = [UInt8](repeating: 0x11, count: 16)
    static let clientID = [UInt8](repeating: 0x22, count: 16)

    let group = MultiThreadedEventLoopGroup(numberOfThreads: 3)
    let relay: TestRelay
    let agent: TailnetNode
    let client: TailnetNode
    let agentAddresses: TailnetAddresses
    let clientAddresses: TailnetAddresses
    /// Connections to the HTTP port, with their peer.
    let http = Mutex<[Endpoint]>([])
    /// What the agent sent to the control plane.
    let requests = Mutex<[Coder_Tailnet_V2_CoordinateRequest]>([])

    private init(isDirect: Bool, port: UInt16, ownPorts: Set<UInt16>, limits: NetStackLimits) async throws {
        let loops = Array(group.makeIterator())
        let relay = try await TestRelay(on: loops[2])
        self.relay = relay
        guard let agentAddresses = TailnetAddresses(agentID: Self.agentID),
            let clientAddresses = TailnetAddresses(agentID: Self.clientID)
        else { throw DeadlineExceeded(what: "addresses") }
        (self.agentAddresses, self.clientAddresses) = (agentAddresses, clientAddresses)
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let machine = Machine(interfaces: { [IPAddress(v4: 0x7f00_0001)] }, resolve: { _, _ in throw ChannelError.eof })
        func node(_ addresses: TailnetAddresses, _ port: UInt16, _ loop: any EventLoop) throws -> TailnetNode {
            var configuration = TailnetNode.Configuration(addresses: addresses, controlPlane: nil)
            configuration.isDirectEnabled = isDirect
            configuration.port = port
            configuration.limits = limits
            return try TailnetNode(configuration, transport: relay, machine: machine, on: loop, logger: logger)
        }
        (agent, client) = (try node(agentAddresses, port, loops[0]), try node(clientAddresses, 0, loops[1]))
        let services = TunnelPorts.Configuration(
            services: [
                TunnelPorts.speedTest: { channel, _ in try SpeedTest.serve(channel) },
                TunnelPorts.http: { [weak self] _, peer in self?.http.withLock { $0.append(peer) } },
            ], isOwnPort: { ownPorts.contains($0) })
        try await agent.onLoop { $0.start(services) }
        try await client.onLoop { $0.start(.init(services: [:])) }
        try await setMap(map)
        try await openStreams()
    }

    static func run(
        isDirect: Bool = false, port: UInt16 = 0, ownPorts: Set<UInt16> = [], limits: NetStackLimits = .init(),
        _ body: (NodeWorld) async throws -> Void
    ) async throws {
        let world = try await NodeWorld(isDirect: isDirect, port: port, ownPorts: ownPorts, limits: limits)
        do {
            try await body(world)
            await world.end()
        } catch {
            await world.end()
            throw error
        }
    }

    private func end() async {
        for node in [client, agent] { try? await node.onLoop { $0.close() } }
        await relay.close()
        try? await group.shutdownGracefully()
    }

    // MARK: The control plane

    /// One region, with the relay.
    var map: DERPMap { Self.map([1: relay.url]) }

    static func map(_ relays: [Int: String]) -> DERPMap {
        DERPMap(
            regions: relays.map { id, url in
                var node = DERPMap.Node()
                let address = ControlPlaneAddress(url)
                (node.name, node.regionID, node.hostName) = ("\(id)a", id, address?.host ?? "")
                (node.derpPort, node.forceHTTP, node.stunPort) = (address?.port ?? 0, true, -1)
                var region = DERPMap.Region(id: id)
                (region.code, region.name, region.nodes) = ("test", "Test", [node])
                return region
            })
    }

    func setMap(_ map: DERPMap) async throws {
        for node in [agent, client] { try await node.onLoop { $0.update({ _ in }, map: map) } }
    }

    /// Each node hears what the other says of itself.
    func openStreams() async throws {
        let (agent, client) = (agent, client)
        try await agent.onLoop { node in
            node.streamOpened { request in
                self.requests.withLock { $0.append(request) }
                Self.pass(request, from: Self.agentID, to: client)
            }
        }
        try await client.onLoop { $0.streamOpened { Self.pass($0, from: Self.clientID, to: agent) } }
    }

    private static func pass(
        _ request: Coder_Tailnet_V2_CoordinateRequest, from id: [UInt8], to node: TailnetNode
    ) {
        guard request.hasUpdateSelf else { return }
        let response = update(id, .node, request.updateSelf.node)
        node.loop.execute { node.streamReceived(response) }
    }

    static func update(
        _ id: [UInt8], _ kind: Coder_Tailnet_V2_CoordinateResponse.PeerUpdate.Kind,
        _ node: Coder_Tailnet_V2_Node? = nil
    ) -> Coder_Tailnet_V2_CoordinateResponse {
        var update = Coder_Tailnet_V2_CoordinateResponse.PeerUpdate()
        update.id = Data(id)
        update.kind = kind
        if let node { update.node = node }
        var response = Coder_Tailnet_V2_CoordinateResponse()
        response.peerUpdates = [update]
        return response
    }

    /// The agent hears this of the client.
    func tellAgent(
        _ kind: Coder_Tailnet_V2_CoordinateResponse.PeerUpdate.Kind, _ node: Coder_Tailnet_V2_Node? = nil
    ) async throws { try await agent.onLoop { $0.streamReceived(Self.update(Self.clientID, kind, node)) } }

    // MARK: What is seen

    func report() async throws -> TailnetReport { try await agent.onLoop { $0.report() } }

    /// Returns once what the agent reports of the client is so.
    func peer(_ what: String, _ condition: @escaping (TailnetReport.Peer) -> Bool) async throws {
        try await eventually(what) { try await report().peers.first.map(condition) ?? false }
    }

    /// Returns once both nodes know each other and reach their relay.
    func ready() async throws {
        for node in [agent, client] {
            try await eventually("a peer and a relay") {
                let report = try await node.onLoop { $0.report() }
                return report.peers.count == 1 && report.problem == nil && report.home_region > 0
            }
        }
    }

    // MARK: Connections

    /// A connection from the client to a port of the agent.
    func connect(_ port: Int) async throws -> NIOAsyncChannel<ByteBuffer, ByteBuffer> {
        let (client, address) = (client, agentAddresses.client)
        return try await client.loop.flatSubmit {
            let wrapped = client.loop.makePromise(of: NIOAsyncChannel<ByteBuffer, ByteBuffer>.self)
            client.tunnel.connect(to: Endpoint(address, UInt16(port))) { channel in
                wrapped.succeed(
                    try NIOAsyncChannel(
                        wrappingChannelSynchronously: channel, configuration: .init(isOutboundHalfClosureEnabled: true))
                )
            }.whenFailure { wrapped.fail($0) }
            return wrapped.futureResult
        }.get()
    }

    /// Writes everything, ends, and reads to the end.
    /// - Parameter during: runs when so many bytes have come back.
    func exchange(
        _ port: Int, _ bytes: [UInt8], after count: Int = .max, during: @escaping @Sendable () async throws -> Void = {}
    ) async throws -> [UInt8] {
        try await connect(port).executeThenClose { inbound, outbound in
            async let sent: Void = {
                for start in stride(from: 0, to: bytes.count, by: 100_000) {
                    try await outbound.write(ByteBuffer(bytes: bytes[start..<min(start + 100_000, bytes.count)]))
                }
                outbound.finish()
            }()
            var result: [UInt8] = []
            var isPast = false
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
