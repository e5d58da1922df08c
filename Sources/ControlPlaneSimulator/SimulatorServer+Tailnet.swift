import AgentProto
import NIOCore

extension SimulatorServer {
    /// The relays that agents are told.
    package var derpMap: Coder_Tailnet_V2_DERPMap { service.derpMap }

    /// Ends the coordination streams of all agents: clients hear LOST.
    package func endCoordination() { coordination.endAgents() }

    /// The one region of this server's relay, as a control plane describes its own; nil without a relay.
    var embeddedRelay: Coder_Tailnet_V2_DERPMap? {
        guard relay.publicKey != nil else { return nil }
        let id: Int64 = 999
        var node = Coder_Tailnet_V2_DERPMap.Region.Node()
        node.name = "999b"
        node.regionID = id
        node.hostName = address?.ipAddress ?? "localhost"
        node.derpPort = Int32(clamping: address?.port ?? 0)
        node.stunPort = Int32(clamping: stunAddress?.port ?? -1)
        node.forceHTTP = isPlain
        var region = Coder_Tailnet_V2_DERPMap.Region()
        region.regionID = id
        region.embeddedRelay = true
        region.regionCode = "coder"
        region.regionName = "Coder Embedded Relay"
        region.nodes = [node]
        var map = Coder_Tailnet_V2_DERPMap()
        map.homeParams = .init()
        map.regions = [id: region]
        return map
    }
}
