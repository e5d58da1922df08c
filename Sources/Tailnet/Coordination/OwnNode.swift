import AgentProto
import FoundationEssentials
import IPAddresses
import Sodium
import SwiftProtobuf

/// What we announce of ourselves.
struct OwnNode: Hashable, Sendable {
    var addresses: TailnetAddresses
    var key: PublicKey
    var disco: PublicKey
    /// The region of our home relay; 0 as long as there is none, and then nothing is announced.
    var home = 0
    /// Seconds to each region, as `REGION-v4` names it.
    var latencies: [String: Double] = [:]
    /// Regions that we reach by WebSocket only, with the reason.
    var forcedWebSocket: [Int: String] = [:]
    var endpoints: [Endpoint] = []

    /// Whether it differs in more than latencies.
    func isUrgent(after other: OwnNode) -> Bool {
        var same = self
        same.latencies = other.latencies
        return same != other
    }

    func message(asOf: Google_Protobuf_Timestamp) -> Coder_Tailnet_V2_Node {
        let prefixes = addresses.all.map { "\($0)/128" }
        var node = Coder_Tailnet_V2_Node()
        node.id = addresses.nodeID
        node.asOf = asOf
        node.key = Data(TailnetPeer.nodeKeyBytes(key))
        node.disco = TailnetPeer.discoKeyText(disco)
        node.preferredDerp = Int32(clamping: home)
        node.derpLatency = latencies
        node.derpForcedWebsocket = Dictionary(
            forcedWebSocket.map { (Int32(clamping: $0.key), $0.value) }, uniquingKeysWith: { first, _ in first })
        node.addresses = prefixes
        node.allowedIps = prefixes
        node.endpoints = endpoints.map { "\($0)" }
        return node
    }
}
