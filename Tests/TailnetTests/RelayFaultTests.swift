import AgentTestSupport
import DERP
import Foundation
import IPAddresses
import NIOCore
import Testing

@testable import Tailnet

/// Relays that break, lie, stall, lose, reorder and repeat.
@Suite(.timeLimit(.minutes(5))) struct RelayFaultTests {
    @Test func aRestartInMidTransferBreaksNothing() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            let bytes = randomBytes(8 << 20)
            let answer = try await world.exchange(echo.port, bytes, after: 1 << 20) { try await world.relay.restart() }
            #expect(answer == bytes)
        }
    }

    @Test(arguments: [0, 10, 50]) func lossReorderingAndRepetition(lostOfThousand: Int) async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            world.relay.faulty = .init(lost: lostOfThousand, repeats: true, reorders: true)
            // What is held back at the end of a flight waits for a probe: most of the time is spent on that.
            let bytes = randomBytes(256 << 10)
            #expect(try await world.exchange(echo.port, bytes) == bytes)
            let drops = try await world.report().drops
            #expect(drops.contains { $0.key.hasPrefix("wireguard:") }, "repeated packets are dropped: \(drops)")
        }
    }

    @Test func aRelayThatIsDownIsNamedAndTriedAgain() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            world.relay.faulty.isDown = true
            try await world.relay.restart()
            try await eventually("a problem that names the relay") {
                let report = try await world.report()
                return report.problem?.contains("is down") == true && report.relays.first?.is_connected == false
            }
            #expect(world.agent.summary.isHomeUp == false)
            world.relay.faulty.isDown = false
            try await world.ready()
            #expect(try await world.exchange(echo.port, [5]) == [5])
        }
    }

    @Test func aRefusedUpgradeMakesItWebSocketForGood() async throws {
        try await NodeWorld.run { world in
            try await world.ready()
            world.relay.faulty.refusesUpgrade = true
            try await world.relay.restart()
            try await eventually("WebSocket is told") {
                world.requests.withLock { requests in
                    requests.last { $0.hasUpdateSelf }?.updateSelf.node.derpForcedWebsocket[1]?
                        .contains("answered Upgrade: DERP with 426") == true
                }
            }
            try await world.ready()
            #expect(world.relay.dialled.last == true)
        }
    }

    @Test func framesThatAreWrongEndOnlyTheConnection() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            let before = world.relay.dialled.count
            // Unknown and short ones are skipped.
            try await world.relay.inject([0x7f, 0, 0, 0, 2, 1, 2] + [0x05, 0, 0, 0, 3, 1, 2, 3] + [0x06, 0, 0, 0, 0])
            #expect(try await world.exchange(echo.port, [1]) == [1])
            #expect(world.relay.dialled.count == before)
            // A packet of a stranger, and one that is nothing.
            let stranger = [UInt8](repeating: 0xee, count: 32)
            try await world.relay.inject([0x05, 0, 0, 0, 36] + stranger + [1, 2, 3, 4])
            try await world.relay.inject([0x05, 0, 0, 0, 36] + world.client.key.bytes + [1, 2, 3, 4])
            try await eventually("they are counted") {
                let drops = try await world.report().drops
                return drops["path: unknown peer at a relay"] == 1
                    && drops["path: neither WireGuard nor disco nor STUN"] == 1
            }
            // Over 1 MiB.
            try await world.relay.inject([0x05, 0, 0x10, 0, 1])
            try await eventually("dialled anew") { world.relay.dialled.count == before + 2 }
            try await world.ready()
            #expect(try await world.exchange(echo.port, [2]) == [2])
        }
    }

    @Test func aRelayThatReadsNothingCostsABoundedQueue() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            #expect(try await world.exchange(echo.port, [1]) == [1])
            world.relay.faulty.stalls = true
            // Until it is beyond what the sockets and the channel take.
            try await eventually("a full queue") {
                try await world.agent.onLoop { node in
                    for _ in 0..<1_000 {
                        node.relays.send(
                            ByteBuffer(repeating: 7, count: 1_200), to: world.client.key, preferred: 1)
                    }
                    node.relays.flush()
                }
                let report = try await world.report()
                return report.relays.first?.queued_packets == DERPLimits.queuedPackets
                    && report.drops["relay: the queue is full"] ?? 0 > 5_000
            }
            try await world.relay.resume()
            try await eventually("it empties") { try await world.report().relays.first?.queued_packets == 0 }
            #expect(try await world.exchange(echo.port, [2]) == [2])
        }
    }

    @Test func homeIsTheNearestRelayOfAnotherMap() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await NodeWorld.run { world in
            try await world.ready()
            let near = try await TestRelay(on: world.group.next())
            world.relay.faulty.latencies = [world.relay.port: .milliseconds(80)]
            let bytes = randomBytes(8 << 20)
            let answer = try await world.exchange(echo.port, bytes, after: 1 << 20) {
                // The same relay in a region that was not measured yet.
                try await world.setMap(NodeWorld.map([3: world.relay.url, 2: near.url]))
                try await eventually("the nearer one is home") {
                    let report = try await world.report()
                    return report.home_region == 2 && report.problem == nil
                }
            }
            #expect(answer == bytes)
            let node = world.requests.withLock { $0.last { $0.hasUpdateSelf }?.updateSelf.node }
            #expect(node?.preferredDerp == 2)
            #expect(node?.derpLatency["3-v4"] == 0.08 && node?.derpLatency["2-v4"] == 0.001)
            await near.close()
        }
    }
}
