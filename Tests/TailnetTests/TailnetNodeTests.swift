import AgentProto
import AgentTestSupport
import DERP
import Foundation
import IPAddresses
import NIOCore
import NIOPosix
import NetStack
import Testing

@testable import Tailnet

/// A node with a relay, a control plane and another node.
@Suite(.timeLimit(.minutes(5))) struct TailnetNodeTests {
    @Test func aClientReachesTheAgentByRelay() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            let bytes = randomBytes(4 << 20)
            #expect(try await world.exchange(echo.port, bytes) == bytes)
            let peer = try #require(try await world.report().peers.first)
            #expect(peer.path == .relay && peer.session == "usable" && peer.candidates.isEmpty)
            #expect(peer.id == "22222222-2222-2222-2222-222222222222")
            #expect(peer.addresses == world.clientAddresses.all.map { "\($0)" })
            #expect(peer.received_bytes > 4 << 20)
        }
    }

    @Test func theAgentSaysThatItIsReadyOnlyOnItsRelay() async throws {
        try await NodeWorld.run { world in
            try await world.ready()
            try await eventually("ready for handshake") {
                world.requests.withLock { $0.contains { !$0.readyForHandshake.isEmpty } }
            }
            let requests = world.requests.withLock { $0 }
            let first = try #require(requests.first)
            #expect(first.updateSelf.node.preferredDerp == 1)
            #expect(first.updateSelf.node.addresses == world.agentAddresses.all.map { "\($0)/128" })
            #expect(requests.last?.readyForHandshake.map { Array($0.id) } == [NodeWorld.clientID])
        }
    }

    @Test func theHTTPPortAndRefusedOnes() async throws {
        let own = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run(ownPorts: [UInt16(own.port)]) { world in
            try await world.ready()
            for port in [1, 2, 22, own.port] {
                await #expect(throws: ConnectionFailure.refused) { _ = try await world.connect(port) }
            }
            try await world.connect(4).executeThenClose { _, _ in
                try await eventually("a connection to the API") { world.http.withLock { $0.count } == 1 }
            }
            #expect(world.http.withLock { $0.first?.address } == world.clientAddresses.client)
        }
    }

    // MARK: Direct paths

    @Test func aDirectPathIsFoundAndLostInMidTransfer() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run(isDirect: true) { world in
            try await world.ready()
            let bytes = randomBytes(24 << 20)
            let answer = try await world.exchange(echo.port, bytes, after: 2 << 20) {
                try await world.peer("a direct path") { $0.path == .direct }
                // The client's sockets are gone from now on.
                try await world.client.onLoop { $0.update { $0.isDirectEnabled = false } }
            }
            #expect(answer == bytes)
            try await world.peer("by relay again") { $0.path != .direct }
            let answer2 = try await world.exchange(echo.port, Array("by relay".utf8))
            #expect(answer2 == Array("by relay".utf8))
            // And found again.
            try await world.client.onLoop { $0.update { $0.isDirectEnabled = true } }
            try await eventually("a direct path again") {
                _ = try await world.exchange(echo.port, [1])
                return try await world.client.onLoop { $0.report() }.peers.first?.path == .direct
            }
        }
    }

    @Test func pingsTellTheWay() async throws {
        try await NodeWorld.run(isDirect: true) { world in
            try await world.ready()
            let client = world.client.key
            let byRelay = try await world.agent.loop.flatSubmit { world.agent.ping(client) }.get()
            #expect(byRelay.latency != nil && byRelay.endpoint == nil)
            let echo = try LoopbackServer(LoopbackServer.echo)
            _ = try await world.exchange(echo.port, [1, 2, 3])
            try await world.peer("a direct path") { $0.path == .direct }
            let direct = try await world.agent.loop.flatSubmit { world.agent.ping(client) }.get()
            #expect(direct.latency != nil && direct.endpoint?.address == IPAddress(v4: 0x7f00_0001))
        }
    }

    /// `--tailnet-listen-port`: for those who open one port in a firewall. Where another program has it, any port is better
    /// than no direct path.
    @Test(arguments: [true, false]) func directPathsUseThePortThatWasAskedFor(isFree: Bool) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let other = try await UDPSockets.open(port: 0, forbidsFragments: false, on: group.next())
        let port = other.port
        if isFree { try await group.next().submit { other.close() }.get() }
        try await NodeWorld.run(isDirect: true, port: port) { world in
            try await world.ready()
            try await eventually("sockets") { try await world.report().direct.port != nil }
            #expect(try await (world.report().direct.port == port) == isFree)
            let echo = try LoopbackServer(LoopbackServer.echo)
            _ = try await world.exchange(echo.port, [1, 2, 3])
            try await world.peer("a direct path") { $0.path == .direct }
        }
        if !isFree { try await group.next().submit { other.close() }.get() }
        try await group.shutdownGracefully()
    }

    @Test func forbiddenDirectPathsAreNotAnnounced() async throws {
        try await NodeWorld.run { world in
            try await world.ready()
            let nodes = world.requests.withLock { $0.filter(\.hasUpdateSelf).map(\.updateSelf.node) }
            #expect(nodes.allSatisfy { $0.endpoints.isEmpty })
            #expect(try await world.report().direct.port == nil)
        }
    }

    // MARK: The control plane

    @Test func aControlPlaneThatIsAwayBreaksNothing() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            let bytes = randomBytes(8 << 20)
            let answer = try await world.exchange(echo.port, bytes, after: 1 << 20) {
                for node in [world.agent, world.client] { try await node.onLoop { $0.streamClosed() } }
            }
            #expect(answer == bytes)
            #expect(try await world.report().coordination.is_open == false)
            try await world.openStreams()
            try await world.ready()
            #expect(try await world.exchange(echo.port, [1, 2]) == [1, 2])
        }
    }

    @Test func aPeerThatDisconnectsLosesItsConnections() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            try await world.connect(echo.port).executeThenClose { _, outbound in
                try await outbound.write(ByteBuffer(bytes: [1]))
                try await world.peer("one connection") { $0.connections == 1 }
                try await world.tellAgent(.disconnected)
                let report = try await world.report()
                #expect(report.peers.isEmpty && report.connections == 0)
            }
        }
    }

    @Test func aWrongPeerIsRefusedAndTheOthersStay() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            var update = CoordinatorWorld.update(9, address: "\(world.agentAddresses.client)/128")
            try await world.agent.onLoop { [update] in $0.streamReceived(update) }
            update = CoordinatorWorld.update(8, address: "\(world.clientAddresses.client)/128")
            try await world.agent.onLoop { [update] in $0.streamReceived(update) }
            let report = try await world.report()
            #expect(report.peers.count == 1)
            #expect(report.drops["coordination: peers that were refused"] == 2)
            #expect(try await world.exchange(echo.port, [7]) == [7])
        }
    }

    @Test func anotherAgentIDChangesTheAddresses() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            let other = try #require(TailnetAddresses(agentID: [UInt8](repeating: 0x33, count: 16)))
            let (old, key) = (world.requests.withLock { $0.count }, world.agent.key)
            try await world.connect(echo.port).executeThenClose { inbound, outbound in
                try await outbound.write(ByteBuffer(bytes: [1]))
                try await world.agent.onLoop { $0.update { $0.addresses = other } }
                await #expect(throws: (any Error).self) { for try await _ in inbound { continue } }
            }
            #expect(try await world.report().addresses == other.all.map { "\($0)" })
            #expect(world.agent.key == key)
            let told = world.requests.withLock { $0.dropFirst(old).first }
            #expect(told?.updateSelf.node.addresses == other.all.map { "\($0)/128" })
        }
    }
}
