import AgentProto
import AgentTestSupport
import Foundation
import Testing

@testable import Tailnet

/// Who becomes a peer, and for how long.
@Suite struct CoordinatorPeerTests {
    @Test func readinessWaitsForTheRelay() throws {
        var (coordinator, _) = try CoordinatorWorld.make()
        coordinator.opened(now: .zero)
        coordinator.setRelays(home: 1, latencies: [:], forcedWebSocket: [:], now: .zero)
        _ = CoordinatorWorld.actions(&coordinator)
        coordinator.receive(CoordinatorWorld.update(1), now: .zero)
        coordinator.receive(CoordinatorWorld.update(2), now: .zero)
        #expect(CoordinatorWorld.actions(&coordinator).compactMap { CoordinatorWorld.readyIDs($0) }.isEmpty)
        coordinator.setRelayUp(true)
        #expect(
            CoordinatorWorld.actions(&coordinator).compactMap { CoordinatorWorld.readyIDs($0) } == [
                [CoordinatorWorld.id(1), CoordinatorWorld.id(2)]
            ])
        // The same again is answered again, and changes nothing.
        coordinator.receive(CoordinatorWorld.update(1), now: .zero)
        let again = CoordinatorWorld.actions(&coordinator)
        #expect(again.count == 1 && CoordinatorWorld.readyIDs(again.first) == [CoordinatorWorld.id(1)])
        coordinator.setRelayUp(false)
        coordinator.receive(CoordinatorWorld.update(3), now: .zero)
        coordinator.closed(now: .zero)
        coordinator.setRelayUp(true)
        #expect(CoordinatorWorld.actions(&coordinator).compactMap { CoordinatorWorld.readyIDs($0) }.isEmpty)
    }

    @Test func changesOfAPeer() throws {
        var coordinator = try CoordinatorWorld.ready()
        coordinator.receive(CoordinatorWorld.update(1), now: .zero)
        guard case .add(let first)? = coordinator.nextAction() else {
            Issue.record("no peer")
            return
        }
        #expect(first.endpoints.map { "\($0)" } == ["192.0.2.1:1", "[2001:db8::1]:2"])
        _ = CoordinatorWorld.actions(&coordinator)
        coordinator.receive(CoordinatorWorld.update(1) { $0.preferredDerp = 5 }, now: .zero)
        var changed = first
        changed.home = 5
        #expect(CoordinatorWorld.actions(&coordinator).first == .change(changed))
        // Another key: the old session is dropped first.
        coordinator.receive(CoordinatorWorld.update(1, key: 9), now: .zero)
        let actions = CoordinatorWorld.actions(&coordinator)
        guard actions.count == 3, case .remove(changed) = actions[0], case .add(let second) = actions[1] else {
            Issue.record("\(actions)")
            return
        }
        #expect(second.key.bytes == [UInt8](repeating: 9, count: 32) && coordinator.peerCount == 1)
        coordinator.receive(CoordinatorWorld.update(1, kind: .disconnected), now: .zero)
        #expect(CoordinatorWorld.actions(&coordinator) == [.remove(second)] && coordinator.peerCount == 0)
        // Unknown, and what is for clients.
        coordinator.receive(CoordinatorWorld.update(1, kind: .disconnected), now: .zero)
        coordinator.receive(CoordinatorWorld.update(1, kind: .lost), now: .zero)
        coordinator.receive(CoordinatorWorld.update(1, kind: .readyForHandshake), now: .zero)
        #expect(CoordinatorWorld.actions(&coordinator).isEmpty && coordinator.nextDeadline == nil)
    }

    @Test func aLostPeerIsKeptForAWhile() throws {
        var coordinator = try CoordinatorWorld.ready()
        coordinator.receive(CoordinatorWorld.update(1), now: .zero)
        coordinator.receive(CoordinatorWorld.update(2), now: .zero)
        _ = CoordinatorWorld.actions(&coordinator)
        coordinator.receive(CoordinatorWorld.update(1, kind: .lost), now: .seconds(100))
        #expect(coordinator.nextDeadline == .seconds(1_000))
        coordinator.advance(now: .seconds(1_000)) { _ in .seconds(400) }
        #expect(CoordinatorWorld.actions(&coordinator).isEmpty && coordinator.nextDeadline == .seconds(1_300))
        coordinator.advance(now: .seconds(1_299)) { _ in .seconds(400) }
        #expect(coordinator.peerCount == 2)
        coordinator.advance(now: .seconds(1_300)) { _ in .seconds(400) }
        #expect(CoordinatorWorld.actions(&coordinator).count == 1 && coordinator.peerCount == 1)
        // The end of the stream is the same for all; a new update ends it.
        coordinator.closed(now: .seconds(2_000))
        #expect(coordinator.nextDeadline == .seconds(2_900))
        coordinator.opened(now: .seconds(2_001))
        coordinator.receive(CoordinatorWorld.update(2), now: .seconds(2_002))
        coordinator.advance(now: .seconds(5_000)) { _ in nil }
        #expect(coordinator.peerCount == 1)
    }

    private static let wrong: [(text: String, change: @Sendable (inout Coder_Tailnet_V2_Node) -> Void)] = [
        ("its key is not \"np\" and 32 bytes", { $0.key = Data("np".utf8) }),
        ("its key is not \"np\" and 32 bytes", { $0.key = Data(repeating: 1, count: 34) }),
        ("its key is not \"np\" and 32 bytes", { $0.key = Data("np".utf8) + Data(count: 32) }),
        ("its disco key is not \"discokey:\" and 64 hexadecimal digits", { $0.disco = "discokey:12" }),
        (
            "its disco key is not \"discokey:\" and 64 hexadecimal digits",
            { $0.disco = "discokey:" + String(repeating: "g", count: 64) }
        ),
        ("its home relay is 0", { $0.preferredDerp = 0 }),
        ("its home relay is -3", { $0.preferredDerp = -3 }),
        ("\"fd7a:115c:a1e0::/48\" is not a single address of the tailnet", { $0.allowedIps = ["fd7a:115c:a1e0::/48"] }),
        (
            "\"fd7a:115c:a1e1::1/128\" is not a single address of the tailnet",
            { $0.allowedIps = ["fd7a:115c:a1e1::1/128"] }
        ),
        ("\"fd7a:115c:a1e0::1\" is not a single address of the tailnet", { $0.allowedIps = ["fd7a:115c:a1e0::1"] }),
        ("\"10.0.0.1/32\" is not a single address of the tailnet", { $0.allowedIps = ["10.0.0.1/32"] }),
        (
            "it claims our address fd60:627a:a42b:4111:8111:1111:1111:1111/128",
            { $0.allowedIps = ["fd60:627a:a42b:4111:8111:1111:1111:1111/128"] }
        ),
        ("it has 9 addresses, over 8", { node in node.allowedIps = (0..<9).map { "fd7a:115c:a1e0::f\($0)/128" } }),
    ]

    @Test(arguments: wrong.indices) func whatIsWrongIsRefusedAndToldOnce(number: Int) throws {
        let (text, change) = Self.wrong[number]
        var coordinator = try CoordinatorWorld.ready()
        for _ in 0..<2 { coordinator.receive(CoordinatorWorld.update(1, change: change), now: .zero) }
        #expect(
            CoordinatorWorld.actions(&coordinator) == [
                .log("the peer 01010101-0101-0101-0101-010101010101 is refused: \(text)", isWarning: true)
            ])
        #expect(coordinator.peerCount == 0 && coordinator.counters.refusedPeers == 2)
        // One that is right afterwards is taken.
        coordinator.receive(
            CoordinatorWorld.update(1) { $0.allowedIps = (1...8).map { "fd7a:115c:a1e0::e\($0)/128" } }, now: .zero)
        #expect(coordinator.peerCount == 1)
    }

    @Test func anAddressIsTheFirstOnes() throws {
        var coordinator = try CoordinatorWorld.ready()
        coordinator.receive(CoordinatorWorld.update(1), now: .zero)
        coordinator.receive(CoordinatorWorld.update(2, address: "fd7a:115c:a1e0::1/128"), now: .zero)
        #expect(coordinator.peerCount == 1 && coordinator.counters.refusedAddresses == 1)
        coordinator.receive(
            CoordinatorWorld.update(2) { $0.allowedIps = ["fd7a:115c:a1e0::1/128", "fd7a:115c:a1e0::2/128"] },
            now: .zero)
        #expect(
            coordinator.allPeers.first { $0.id == CoordinatorWorld.id(2) }?.addresses.map { "\($0)" } == [
                "fd7a:115c:a1e0::2"
            ])
        // Also a key, while it comes without an address of its peer.
        coordinator.receive(CoordinatorWorld.update(3, key: 1), now: .zero)
        #expect(coordinator.peerCount == 2 && coordinator.counters.refusedPeers == 2)
        // It is free again once the first has gone.
        coordinator.receive(CoordinatorWorld.update(1, kind: .disconnected), now: .zero)
        coordinator.receive(CoordinatorWorld.update(4, address: "fd7a:115c:a1e0::1/128"), now: .zero)
        #expect(coordinator.peerCount == 2)
    }

    private static let first = "fd7a:115c:a1e0::1/128"

    /// A workspace proxy: a new id at each connection to the control plane, the same key and address.
    @Test func theSamePeerUnderANewIDGoesOn() throws {
        for isLost in [true, false] {
            var coordinator = try CoordinatorWorld.ready()
            coordinator.receive(CoordinatorWorld.update(1), now: .zero)
            if isLost { coordinator.receive(CoordinatorWorld.update(1, kind: .lost), now: .seconds(1)) }
            _ = CoordinatorWorld.actions(&coordinator)
            coordinator.receive(CoordinatorWorld.update(2, key: 1, address: Self.first), now: .seconds(2))
            let actions = CoordinatorWorld.actions(&coordinator)
            guard actions.count == 2, case .change(let peer) = actions[0] else {
                Issue.record("\(actions)")
                return
            }
            #expect(peer.id == CoordinatorWorld.id(2) && peer.key.bytes.first == 1, "its session and connections stay")
            #expect(CoordinatorWorld.readyIDs(actions[1]) == [CoordinatorWorld.id(2)])
            // What is said of the old id changes nothing.
            coordinator.receive(CoordinatorWorld.update(1, kind: .disconnected), now: .seconds(3))
            coordinator.receive(CoordinatorWorld.update(1, kind: .lost), now: .seconds(3))
            #expect(CoordinatorWorld.actions(&coordinator).isEmpty && coordinator.nextDeadline == nil)
            // Later updates are heard.
            coordinator.receive(
                CoordinatorWorld.update(2, key: 1, address: Self.first) { $0.preferredDerp = 7 }, now: .seconds(4))
            guard case .change(let later)? = CoordinatorWorld.actions(&coordinator).first else {
                Issue.record("no change")
                return
            }
            #expect(later.home == 7 && coordinator.peerCount == 1 && coordinator.counters.refusedPeers == 0)
        }
    }

    @Test func theAddressOfALostPeerIsFree() throws {
        var coordinator = try CoordinatorWorld.ready()
        coordinator.receive(CoordinatorWorld.update(1), now: .zero)
        _ = CoordinatorWorld.actions(&coordinator)
        coordinator.receive(CoordinatorWorld.update(2, address: Self.first), now: .zero)
        #expect(coordinator.counters.refusedPeers == 1, "a live peer keeps it")
        _ = CoordinatorWorld.actions(&coordinator)
        coordinator.receive(CoordinatorWorld.update(1, kind: .lost), now: .seconds(1))
        coordinator.receive(CoordinatorWorld.update(2, address: Self.first), now: .seconds(2))
        let actions = CoordinatorWorld.actions(&coordinator)
        guard actions.count == 3, case .remove(let old) = actions[0], case .add(let new) = actions[1] else {
            Issue.record("\(actions)")
            return
        }
        #expect(old.id == CoordinatorWorld.id(1) && new.id == CoordinatorWorld.id(2) && new.addresses == old.addresses)
        #expect(coordinator.peerCount == 1 && coordinator.nextDeadline == nil)
        coordinator.receive(CoordinatorWorld.update(1, kind: .disconnected), now: .seconds(3))
        #expect(CoordinatorWorld.actions(&coordinator).isEmpty && coordinator.peerCount == 1)
    }

    @Test func aLostPeersKeyComesWithAnotherAddress() throws {
        var coordinator = try CoordinatorWorld.ready()
        coordinator.receive(CoordinatorWorld.update(1), now: .zero)
        coordinator.closed(now: .seconds(1))
        coordinator.opened(now: .seconds(2))
        _ = CoordinatorWorld.actions(&coordinator)
        coordinator.receive(CoordinatorWorld.update(2, key: 1), now: .seconds(3))
        guard case .change(let peer)? = CoordinatorWorld.actions(&coordinator).first else {
            Issue.record("no change")
            return
        }
        #expect(peer.addresses.map { "\($0)" } == ["fd7a:115c:a1e0::2"] && coordinator.peerCount == 1)
        // The first address is free.
        coordinator.receive(CoordinatorWorld.update(3, address: Self.first), now: .seconds(4))
        #expect(coordinator.peerCount == 2)
    }

    /// Whatever comes in whatever order: no two peers share a key or an address, and each address has its holder.
    @Test func keysAndAddressesStayDistinct() throws {
        var random = SeededGenerator("keysAndAddressesStayDistinct")
        for _ in 0..<200 {
            var coordinator = try CoordinatorWorld.ready()
            var driver: [[UInt8]: TailnetPeer] = [:]
            for second in 0..<60 {
                let (id, key, address) = (
                    UInt8.random(in: 1...4, using: &random), UInt8.random(in: 1...4, using: &random),
                    UInt8.random(in: 1...4, using: &random)
                )
                let kinds: [Coder_Tailnet_V2_CoordinateResponse.PeerUpdate.Kind] = [
                    .node, .node, .node, .lost, .disconnected,
                ]
                let update = CoordinatorWorld.update(
                    id, kind: kinds.randomElement(using: &random) ?? .node, key: key,
                    address: "fd7a:115c:a1e0::\(address)/128")
                coordinator.receive(update, now: .seconds(second))
                for action in CoordinatorWorld.actions(&coordinator) {
                    switch action {
                    case .add(let peer):
                        #expect(driver.updateValue(peer, forKey: peer.key.bytes) == nil, "seed \(random.seed)")
                    case .change(let peer):
                        #expect(driver.updateValue(peer, forKey: peer.key.bytes) != nil, "seed \(random.seed)")
                    case .remove(let peer):
                        #expect(driver.removeValue(forKey: peer.key.bytes) != nil, "seed \(random.seed)")
                    case .send, .log: break
                    }
                    let addresses = driver.values.flatMap(\.addresses)
                    #expect(Set(addresses).count == addresses.count, "seed \(random.seed)")
                }
                #expect(Set(driver.values) == Set(coordinator.allPeers), "seed \(random.seed)")
            }
        }
    }

    @Test func peersAreBounded() throws {
        var coordinator = try CoordinatorWorld.ready()
        for number in 0..<Coordinator.mostPeers + 1 {
            var response = CoordinatorWorld.update(1)
            let id = Data([UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: 0, count: 14))
            response.peerUpdates[0].id = id
            response.peerUpdates[0].node.key = Data("np".utf8) + id + Data(repeating: 1, count: 16)
            response.peerUpdates[0].node.allowedIps = ["fd7a:115c:a1e0::\(String(number + 1, radix: 16))/128"]
            coordinator.receive(response, now: .zero)
        }
        #expect(coordinator.peerCount == Coordinator.mostPeers && coordinator.counters.refusedPeers == 1)
    }

    @Test func anotherAgentIDEndsWhoClaimsIt() throws {
        var coordinator = try CoordinatorWorld.ready()
        coordinator.receive(CoordinatorWorld.update(1), now: .zero)
        _ = CoordinatorWorld.actions(&coordinator)
        let id = [UInt8](repeating: 0, count: 15) + [1]
        coordinator.setAddresses(try #require(TailnetAddresses(agentID: id)), now: .zero)
        let actions = CoordinatorWorld.actions(&coordinator)
        #expect(actions.count == 2 && coordinator.peerCount == 0)
        guard case .remove? = actions.first, case .send(let request)? = actions.last else {
            Issue.record("\(actions)")
            return
        }
        #expect(request.updateSelf.node.addresses == ["fd7a:115c:a1e0::1/128", "fd60:627a:a42b::1/128"])
    }
}
