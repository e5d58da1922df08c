import AgentTestSupport
import Foundation
import IPAddresses
import Testing

@testable import DERP

@Suite struct MapTests {
    private let vectors: [String: Any]

    init() throws { vectors = try VectorFile.read("tailnet_derpmap.json") }

    private func node(_ json: [String: Any]) -> DERPMap.Node {
        var node = DERPMap.Node()
        node.name = json["Name"] as? String ?? ""
        node.regionID = json["RegionID"] as? Int ?? 0
        node.hostName = json["HostName"] as? String ?? ""
        node.certName = json["CertName"] as? String ?? ""
        node.ipv4 = json["IPv4"] as? String ?? ""
        node.ipv6 = json["IPv6"] as? String ?? ""
        node.stunPort = json["STUNPort"] as? Int ?? 0
        node.stunOnly = json["STUNOnly"] as? Bool ?? false
        node.derpPort = json["DERPPort"] as? Int ?? 0
        node.forceHTTP = json["ForceHTTP"] as? Bool ?? false
        node.stunTestIP = json["STUNTestIP"] as? String ?? ""
        node.canPort80 = json["CanPort80"] as? Bool ?? false
        return node
    }

    private func map() throws -> DERPMap {
        let json = try #require(vectors["map"] as? [String: Any])
        let regions = try #require(json["Regions"] as? [String: [String: Any]])
        return DERPMap(
            regions: try regions.values.map { json in
                var region = DERPMap.Region(id: try #require(json["RegionID"] as? Int))
                region.embeddedRelay = json["EmbeddedRelay"] as? Bool ?? false
                region.code = json["RegionCode"] as? String ?? ""
                region.name = json["RegionName"] as? String ?? ""
                region.avoid = json["Avoid"] as? Bool ?? false
                region.nodes = (json["Nodes"] as? [[String: Any]] ?? []).map(node)
                return region
            })
    }

    @Test func everyRewrite() throws {
        let cases = try #require(vectors["rewrite"] as? [[String: Any]])
        #expect(cases.count == 4)
        let map = try map()
        for vector in cases {
            let url = try #require(vector["agent_url"] as? String)
            let address = try #require(ControlPlaneAddress(url))
            let new = map.rewritingEmbeddedRelays(to: address)
            let node = try #require(new.regions[999]?.nodes.first)
            #expect(node.hostName == vector["host_name"] as? String && node.derpPort == vector["derp_port"] as? Int)
            #expect(node.forceHTTP == vector["force_http"] as? Bool && node.stunPort == -1 && node.name == "999b")
            #expect(new.regions.filter { $0.key != 999 } == map.regions.filter { $0.key != 999 })
        }
        // A STUN server beside an embedded relay stays where it is.
        var region = try #require(map.regions[1000])
        region.embeddedRelay = true
        let mixed = DERPMap(regions: [region])
        let address = try #require(ControlPlaneAddress("http://x"))
        #expect(mixed.rewritingEmbeddedRelays(to: address) == mixed)
    }

    @Test func everyRelayURL() throws {
        let cases = try #require(vectors["relay_urls"] as? [[String: Any]])
        #expect(cases.count == 6)
        for vector in cases {
            let json = try #require(vector["node"] as? [String: Any])
            let relay = try #require(node(json).relay)
            #expect(relay.description == vector["url"] as? String && relay.serverName == json["HostName"] as? String)
        }
        let sydney = try #require(map().regions[10013]?.relay)
        #expect(sydney.description == "http://192.0.2.44:8443/derp" && sydney.port == 8443)
        #expect(sydney.serverName == "proxy.example.net" && sydney.certificateName == "cert.example.net")
        let loopback = try #require(ControlPlaneAddress("http://[::1]:7080/x"))
        #expect(
            try map().rewritingEmbeddedRelays(to: loopback).regions[999]?.relay?.description == "http://[::1]:7080/derp"
        )
        #expect(try map().regions[1000]?.relay == nil)
    }

    @Test func nodesThatCannotBeDialled() {
        var good = DERPMap.Node()
        good.hostName = "h"
        #expect(good.relay?.port == 443)
        for change: (inout DERPMap.Node) -> Void in [
            { $0.hostName = "" }, { $0.hostName = "a b" }, { $0.hostName = "a\r\nX: y" }, { $0.hostName = "a/b" },
            { $0.hostName = "a@b" }, { $0.hostName = "a:b" }, { $0.ipv4 = "1.2.3.4\n" }, { $0.derpPort = -1 },
            { $0.derpPort = 65_536 }, { $0.stunOnly = true }, { $0.hostName = String(repeating: "a", count: 256) },
        ] {
            var node = good
            change(&node)
            #expect(node.relay == nil, "\(node)")
        }
    }

    @Test func familiesOfANode() {
        func hosts(_ ipv4: String, _ ipv6: String, name: String = "relay.example") -> [String]? {
            var node = DERPMap.Node()
            (node.hostName, node.ipv4, node.ipv6) = (name, ipv4, ipv6)
            return node.relay.map { [$0.host] + $0.alternatives }
        }
        #expect(hosts("", "") == ["relay.example"])
        #expect(hosts("192.0.2.1", "") == ["192.0.2.1", "relay.example"])
        #expect(hosts("", "2001:db8::1") == ["2001:db8::1", "relay.example"])
        #expect(hosts("192.0.2.1", "2001:db8::1") == ["192.0.2.1", "2001:db8::1", "relay.example"])
        #expect(hosts("none", "2001:db8::1") == ["2001:db8::1", "relay.example"])
        #expect(hosts("192.0.2.1", "none", name: "") == ["192.0.2.1"])
        #expect(hosts("none", "none") == ["relay.example"])
        #expect(hosts("none", "none", name: "") == nil)
        #expect(hosts("none", "::1", name: "::1") == ["::1"])
        #expect(hosts("x", "") == nil && hosts("", "x") == nil)
        var node = DERPMap.Node()
        (node.hostName, node.ipv4, node.ipv6, node.derpPort) = ("relay.example", "none", "2001:db8::1", 8443)
        #expect(
            node.relay?.description == "https://[2001:db8::1]:8443/derp" && node.relay?.serverName == "relay.example")
    }

    @Test func controlPlaneURLs() {
        for bad in [
            "", "dev.example.org", "ftp://x", "http:x", "http://", "http://x:99999", "http://x:0", "http://[::1",
            "http://[::1]x", "http://a b", "http://x:1x", "http://[x]", "http://x:-1", "https://::1",
        ] {
            #expect(ControlPlaneAddress(bad) == nil, "\(bad)")
        }
        #expect(ControlPlaneAddress("HTTPS://u:p@x?q")?.host == "x")
        #expect(ControlPlaneAddress("https://[fd00::1]")?.port == 443)
    }

    @Test func stunServers() throws {
        let servers = try map().stunServers
        #expect(servers.map(\.regionID) == [1000, 10013] && servers.map(\.port) == [19302, 3478])
        #expect(servers[0].hostName == "stun.l.google.com" && servers[0].addresses == [])
        #expect(servers[1].addresses.map(\.description) == ["192.0.2.44", "2001:db8::44"])
        var region = DERPMap.Region(id: 1)
        for port in [0, 1, 65_535, 65_536, -2] {
            var node = DERPMap.Node()
            (node.hostName, node.stunPort) = ("h", port)
            region.nodes.append(node)
        }
        #expect(DERPMap(regions: [region]).stunServers.map(\.port) == [3478, 1, 65_535])
    }

    @Test func regionsAndNodesUpToTheLimit() {
        for count in [DERPLimits.regions - 1, DERPLimits.regions, DERPLimits.regions + 1] {
            let map = DERPMap(regions: (0..<count).reversed().map { DERPMap.Region(id: $0) })
            #expect(map.regions.count == min(count, DERPLimits.regions) && map.regions[0] != nil)
            #expect(map.leftOut == max(0, count - DERPLimits.regions))
        }
        for count in [DERPLimits.nodesPerRegion, DERPLimits.nodesPerRegion + 1] {
            var region = DERPMap.Region(id: 1)
            region.nodes = .init(repeating: .init(), count: count)
            let map = DERPMap(regions: [region], regionScore: [1: 2, 2: 3])
            #expect(map.regions[1]?.nodes.count == 16 && map.leftOut == count - 16 && map.regionScore == [1: 2])
        }
        #expect(DERPMap(regions: [.init(id: 1)], regionScore: [1: -1]).regionScore == [:])
        #expect(DERPMap(regions: [.init(id: 1)], regionScore: [1: .infinity]).regionScore == [:])
    }
}
