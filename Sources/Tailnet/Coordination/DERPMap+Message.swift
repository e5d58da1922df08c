import AgentProto
import DERP

extension DERPMap {
    /// The map as the control plane sends it. Regions without a number above 0 are left out.
    package init(_ message: Coder_Tailnet_V2_DERPMap) {
        let regions = message.regions.values.compactMap { region -> Region? in
            guard let id = Int(exactly: region.regionID), id > 0, id <= Int32.max else { return nil }
            var result = Region(id: id)
            result.embeddedRelay = region.embeddedRelay
            result.code = region.regionCode
            result.name = region.regionName
            result.avoid = region.avoid
            result.nodes = region.nodes.map { Node($0) }
            return result
        }
        let scores = message.homeParams.regionScore.map { (Int(truncatingIfNeeded: $0.key), $0.value) }
        self.init(regions: regions, regionScore: Dictionary(scores, uniquingKeysWith: { first, _ in first }))
    }
}

extension DERPMap.Node {
    fileprivate init(_ message: Coder_Tailnet_V2_DERPMap.Region.Node) {
        self.init()
        name = message.name
        regionID = Int(truncatingIfNeeded: message.regionID)
        hostName = message.hostName
        certName = message.certName
        ipv4 = message.ipv4
        ipv6 = message.ipv6
        stunPort = Int(message.stunPort)
        stunOnly = message.stunOnly
        derpPort = Int(message.derpPort)
        insecureForTests = message.insecureForTests
        forceHTTP = message.forceHTTP
        stunTestIP = message.stunTestIp
        canPort80 = message.canPort80
    }
}
