import IPAddresses

/// The relays and STUN servers that the control plane announces (docs/contracts/derp.md#map).
package struct DERPMap: Hashable, Sendable {
    package struct Node: Hashable, Sendable {
        package var name = ""
        package var regionID = 0
        package var hostName = ""
        /// The name that the certificate must have instead of the host's; empty for none.
        package var certName = ""
        /// To dial instead of looking ``hostName`` up; empty for none, ``noFamily`` where the relay has no IPv4.
        package var ipv4 = ""
        /// The same of IPv6.
        package var ipv6 = ""
        /// 0 means 3478, -1 that there is no STUN server.
        package var stunPort = 0
        package var stunOnly = false
        /// 0 means the scheme's.
        package var derpPort = 0
        /// Kept for the map's text; verification is never turned off.
        package var insecureForTests = false
        package var forceHTTP = false
        /// Kept for the map's text.
        package var stunTestIP = ""
        package var canPort80 = false

        package init() {}

        /// What stands for an address of a family that the node does not have.
        package static let noFamily = "none"

        /// The addresses to dial, IPv4 first; nil when one of them is not an address.
        var addresses: [IPAddress]? {
            let texts = [ipv4, ipv6].filter { !$0.isEmpty && $0 != Self.noFamily }
            let addresses = texts.compactMap { IPAddress($0) }
            return addresses.count == texts.count ? addresses : nil
        }
    }

    package struct Region: Hashable, Sendable {
        package var id: Int
        package var embeddedRelay = false
        package var code = ""
        package var name = ""
        package var avoid = false
        package var nodes: [Node] = []

        package init(id: Int) { self.id = id }

        /// The first node that is a relay with a usable address.
        package var relay: RelayURL? { nodes.lazy.compactMap(\.relay).first }
    }

    /// What a region's latency is multiplied by when home is chosen; only above 0.
    package private(set) var regionScore: [Int: Double]
    package private(set) var regions: [Int: Region]
    /// Regions and nodes beyond ``DERPLimits/regions`` and ``DERPLimits/nodesPerRegion``.
    package private(set) var leftOut = 0

    package init(regions: [Region] = [], regionScore: [Int: Double] = [:]) {
        self.regions = [:]
        for var region in regions.sorted(by: { $0.id < $1.id }) {
            guard self.regions.count < DERPLimits.regions else {
                leftOut += 1
                continue
            }
            leftOut += max(0, region.nodes.count - DERPLimits.nodesPerRegion)
            region.nodes = Array(region.nodes.prefix(DERPLimits.nodesPerRegion))
            self.regions[region.id] = region
        }
        let known = self.regions
        self.regionScore = regionScore.filter { known[$0.key] != nil && $0.value > 0 && $0.value.isFinite }
    }

    /// The map whose embedded relays are at our own control plane.
    package func rewritingEmbeddedRelays(to controlPlane: ControlPlaneAddress) -> DERPMap {
        var map = self
        for (id, region) in regions where region.embeddedRelay {
            var region = region
            for index in region.nodes.indices where !region.nodes[index].stunOnly {
                region.nodes[index].hostName = controlPlane.host
                region.nodes[index].derpPort = controlPlane.port
                region.nodes[index].forceHTTP = controlPlane.isPlain
            }
            map.regions[id] = region
        }
        return map
    }

    /// Where to send STUN requests, in order of regions.
    package var stunServers: [STUNServer] {
        regions.values.sorted { $0.id < $1.id }.flatMap { region in
            region.nodes.compactMap { node in
                guard (0...65_535).contains(node.stunPort) else { return nil }
                let port = node.stunPort == 0 ? STUNServer.defaultPort : UInt16(clamping: node.stunPort)
                let addresses = [IPAddress(node.ipv4), IPAddress(node.ipv6)].compactMap { $0 }
                guard isHost(node.hostName) || !addresses.isEmpty else { return nil }
                return STUNServer(
                    regionID: region.id, node: node.name, hostName: node.hostName, addresses: addresses, port: port)
            }
        }
    }
}

/// A STUN server of the map.
package struct STUNServer: Hashable, Sendable {
    static let defaultPort: UInt16 = 3478
    package var regionID: Int
    package var node: String
    /// To be looked up where ``addresses`` is empty.
    package var hostName: String
    package var addresses: [IPAddress]
    package var port: UInt16
}

/// The scheme, host and port of the control plane's URL.
package struct ControlPlaneAddress: Hashable, Sendable {
    package var isPlain: Bool
    /// Without the brackets of an IPv6 address.
    package var host: String
    package var port: Int

    /// nil unless it is an http or https URL; its path is ignored, for the relay is always at `/derp`.
    package init?(_ url: String) {
        let parts = url.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, parts[1].hasPrefix("//") else { return nil }
        switch parts[0].lowercased() {
        case "http": isPlain = true
        case "https": isPlain = false
        default: return nil
        }
        var authority = parts[1].dropFirst(2).prefix { !"/?#".contains($0) }
        if let at = authority.lastIndex(of: "@") { authority = authority[authority.index(after: at)...] }
        var portText: Substring = ""
        if authority.hasPrefix("[") {
            guard let end = authority.firstIndex(of: "]") else { return nil }
            host = String(authority[authority.index(after: authority.startIndex)..<end])
            let rest = authority[authority.index(after: end)...]
            guard host.contains(":"), rest.isEmpty || rest.hasPrefix(":") else { return nil }
            portText = rest.dropFirst()
        } else {
            let pieces = authority.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            host = String(pieces.first ?? "")
            if pieces.count == 2 { portText = pieces[1] }
        }
        guard isHost(host) else { return nil }
        port = isPlain ? 80 : 443
        if !portText.isEmpty {
            guard portText.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = UInt16(portText), number > 0
            else { return nil }
            port = Int(number)
        }
    }
}

/// Where and how a relay is dialled.
package struct RelayURL: Hashable, Sendable, CustomStringConvertible {
    package var isPlain: Bool
    /// To connect to, and the host in the request; without the brackets of an IPv6 address.
    package var host: String
    /// To connect to, one after the other, where ``host`` cannot be reached: of the other family, then the name.
    package var alternatives: [String] = []
    /// As the URL shows it; nil for the scheme's.
    package var shownPort: UInt16?
    /// The name in the TLS handshake.
    package var serverName: String
    /// The name that the certificate must have.
    package var certificateName: String

    package var port: UInt16 { shownPort ?? (isPlain ? 80 : 443) }
    /// The value of the Host header.
    package var authority: String {
        let host = host.contains(":") ? "[\(host)]" : host
        return shownPort.map { "\(host):\($0)" } ?? host
    }
    package var description: String { "\(isPlain ? "http" : "https")://\(authority)\(Self.path)" }

    package static let path = "/derp"
    /// Asked for with GET to measure a region's latency; any 2xx is an answer.
    package static let latencyPath = "/derp/latency-check"
}

extension DERPMap.Node {
    /// nil for a node that is no relay, or whose address cannot be used.
    package var relay: RelayURL? {
        guard !stunOnly, let addresses, (0...65_535).contains(derpPort) else { return nil }
        var hosts = addresses.map(\.description)
        if isHost(hostName), !hosts.contains(hostName) { hosts.append(hostName) }
        guard let host = hosts.first else { return nil }
        let usual = forceHTTP ? 80 : 443
        return RelayURL(
            isPlain: forceHTTP, host: host, alternatives: Array(hosts.dropFirst()),
            shownPort: derpPort == 0 || derpPort == usual ? nil : UInt16(clamping: derpPort),
            serverName: hostName, certificateName: certName.isEmpty ? hostName : certName)
    }
}

/// Whether a name can be put into a URL and a header: no white space, no control characters, nothing that ends a host.
private func isHost(_ name: String) -> Bool {
    !name.isEmpty && name.utf8.count <= 255
        && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"/?#@[]\\\"".utf8.contains($0) }
        && (!name.contains(":") || IPAddress(name) != nil)
}
