import AgentProto
import AgentTestSupport
import Foundation
import Sodium
import SwiftProtobuf
import Testing

@testable import Tailnet

/// What the tests of the coordinator share.
enum CoordinatorWorld {
    static let agent = "11111111-1111-4111-8111-111111111111"
    static let stamp = Google_Protobuf_Timestamp(seconds: 1_700_000_000, nanos: 123_456_000)

    /// With the keys of the vectors.
    static func make() throws -> (Coordinator, PublicKey) {
        let nodeBytes = bytes(fromHex: "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254") ?? []
        let node = try #require(PublicKey(nodeBytes))
        let key = try #require(TailnetPeer.discoKey(discoText))
        let addresses = try #require(TailnetAddresses(agentID: try TailnetAddressesTests.id(agent)))
        return (Coordinator(addresses: addresses, key: node, disco: key) { stamp }, node)
    }

    static let discoText = "discokey:79a631eede1bf9c98f12032cdeadd0e7a079398fc786b88cc846ec89af85a51a"

    static func actions(_ coordinator: inout Coordinator) -> [Coordinator.Action] {
        var actions: [Coordinator.Action] = []
        while let action = coordinator.nextAction() { actions.append(action) }
        return actions
    }

    /// A peer's update.
    static func update(
        _ number: UInt8, kind: Coder_Tailnet_V2_CoordinateResponse.PeerUpdate.Kind = .node, key: UInt8? = nil,
        address: String? = nil, change: (inout Coder_Tailnet_V2_Node) -> Void = { _ in }
    ) -> Coder_Tailnet_V2_CoordinateResponse {
        var update = Coder_Tailnet_V2_CoordinateResponse.PeerUpdate()
        update.id = Data(repeating: number, count: 16)
        update.kind = kind
        if kind == .node {
            update.node.key = Data("np".utf8) + Data(repeating: key ?? number, count: 32)
            update.node.disco = "discokey:" + String(repeating: "0\(number % 10)", count: 32)
            update.node.preferredDerp = 1
            update.node.allowedIps = [address ?? "fd7a:115c:a1e0::\(number)/128"]
            update.node.endpoints = ["192.0.2.1:1", "[2001:db8::1]:2", "nonsense"]
            change(&update.node)
        }
        var response = Coder_Tailnet_V2_CoordinateResponse()
        response.peerUpdates = [update]
        return response
    }

    /// Open, announced, and with a relay.
    static func ready() throws -> Coordinator {
        var (coordinator, _) = try make()
        coordinator.opened(now: .zero)
        coordinator.setRelays(home: 1, latencies: [:], forcedWebSocket: [:], now: .zero)
        coordinator.setRelayUp(true)
        _ = actions(&coordinator)
        return coordinator
    }

    static func id(_ number: UInt8) -> TailnetPeer.ID { .init(repeating: number, count: 16) }

    static func readyIDs(_ action: Coordinator.Action?) -> [TailnetPeer.ID]? {
        guard case .send(let request)? = action, !request.readyForHandshake.isEmpty else { return nil }
        return request.readyForHandshake.map { Array($0.id) }
    }
}
