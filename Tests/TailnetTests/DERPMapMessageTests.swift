import AgentProto
import AgentTestSupport
import DERP
import Foundation
import Testing

@testable import Tailnet

@Suite struct DERPMapMessageTests {
    @Test func everyFieldArrives() throws {
        let json = """
            {"homeParams": {"regionScore": {"999": 0.5, "4": -1}}, "regions": {
              "999": {"regionId": "999", "embeddedRelay": true, "regionCode": "coder", "regionName": "Embedded",
                "avoid": true, "nodes": [{"name": "999b", "regionId": "999", "hostName": "host", "certName": "cert",
                "ipv4": "1.2.3.4", "ipv6": "::1", "stunPort": -1, "derpPort": 8080, "insecureForTests": true,
                "forceHttp": true, "stunTestIp": "5.6.7.8", "canPort80": true}]},
              "1": {"regionId": "1", "nodes": [{"name": "1a", "hostName": "stun", "stunOnly": true}]},
              "0": {"regionId": "0"}, "2": {"regionId": "-2"}}}
            """
        let map = DERPMap(try Coder_Tailnet_V2_DERPMap(jsonString: json))
        var node = DERPMap.Node()
        (node.name, node.regionID, node.hostName, node.certName) = ("999b", 999, "host", "cert")
        (node.ipv4, node.ipv6, node.stunPort, node.derpPort) = ("1.2.3.4", "::1", -1, 8_080)
        (node.insecureForTests, node.forceHTTP, node.stunTestIP, node.canPort80) = (true, true, "5.6.7.8", true)
        var region = DERPMap.Region(id: 999)
        (region.embeddedRelay, region.code, region.name, region.avoid) = (true, "coder", "Embedded", true)
        region.nodes = [node]
        #expect(map.regions[999] == region)
        #expect(map.regions[1]?.nodes.map(\.stunOnly) == [true])
        #expect(map.regions.keys.sorted() == [1, 999])
        #expect(map.regionScore == [999: 0.5])
    }
}
