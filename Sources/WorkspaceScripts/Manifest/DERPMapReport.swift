import AgentProto

/// The relays in Tailscale's JSON of a DERP map: what is empty is left out.
struct DERPMapReport: Encodable, Sendable {
    struct Home: Encodable {
        var RegionScore: [String: Double]
    }

    struct Region: Encodable {
        var EmbeddedRelay: Bool
        var RegionID: Int64
        var RegionCode: String
        var RegionName: String
        var Avoid: Bool?
        var Nodes: [Node]
    }

    struct Node: Encodable {
        var Name: String
        var RegionID: Int64
        var HostName: String
        var CertName: String?
        var IPv4: String?
        var IPv6: String?
        var STUNPort: Int32?
        var STUNOnly: Bool?
        var DERPPort: Int32?
        var InsecureForTests: Bool?
        var ForceHTTP: Bool?
        var STUNTestIP: String?
        var CanPort80: Bool?
    }

    var HomeParams: Home?
    var Regions: [String: Region]

    init(_ map: Coder_Tailnet_V2_DERPMap) {
        // JSON has neither infinity nor NaN, which would cost the whole answer.
        let scores = map.homeParams.regionScore.filter { $0.value.isFinite }
        if !scores.isEmpty {
            HomeParams = .init(RegionScore: Dictionary(uniqueKeysWithValues: scores.map { ("\($0.key)", $0.value) }))
        }
        Regions = Dictionary(uniqueKeysWithValues: map.regions.map { ("\($0.key)", Region($0.value)) })
    }
}

extension DERPMapReport.Region {
    init(_ region: Coder_Tailnet_V2_DERPMap.Region) {
        EmbeddedRelay = region.embeddedRelay
        RegionID = region.regionID
        RegionCode = region.regionCode
        RegionName = region.regionName
        Avoid = region.avoid ? true : nil
        Nodes = region.nodes.map(DERPMapReport.Node.init)
    }
}

extension DERPMapReport.Node {
    init(_ node: Coder_Tailnet_V2_DERPMap.Region.Node) {
        func text(_ value: String) -> String? { value.isEmpty ? nil : value }
        func number(_ value: Int32) -> Int32? { value == 0 ? nil : value }
        func flag(_ value: Bool) -> Bool? { value ? true : nil }
        Name = node.name
        RegionID = node.regionID
        HostName = node.hostName
        CertName = text(node.certName)
        IPv4 = text(node.ipv4)
        IPv6 = text(node.ipv6)
        STUNPort = number(node.stunPort)
        STUNOnly = flag(node.stunOnly)
        DERPPort = number(node.derpPort)
        InsecureForTests = flag(node.insecureForTests)
        ForceHTTP = flag(node.forceHTTP)
        STUNTestIP = text(node.stunTestIp)
        CanPort80 = flag(node.canPort80)
    }
}
