import AgentProto
import IPAddresses

/// What the control plane lets an agent say (docs/contracts/tailnet.md#coordination): its addresses come from its id,
/// and it opens no tunnel.
enum NodeAuthorization {
    /// An address that was every agent's once.
    private static let legacy = IPAddress("fd7a:115c:a1e0:49d6:b259:b7ac:b1b2:48f4")

    /// Why an agent's request is refused; nil when it isn't.
    static func problem(_ request: Coder_Tailnet_V2_CoordinateRequest, agent: [UInt8]) -> String? {
        if request.hasUpdateSelf {
            let node = request.updateSelf.node
            if let problem = problem(node.addresses, agent) { return "Addresses: \(problem)" }
            if let problem = problem(node.allowedIps, agent) { return "AllowedIPs: \(problem)" }
        }
        if request.hasAddTunnel || request.hasRemoveTunnel { return "agents cannot open tunnels" }
        return nil
    }

    private static func problem(_ prefixes: [String], _ agent: [UInt8]) -> String? {
        let id = IPAddress(agent)
        let own = [0xfd7a_115c_a1e0_0000, 0xfd60_627a_a42b_0000].map { (network: UInt64) in
            id.map { IPAddress(high: network | $0.high & 0xffff, low: $0.low) }
        }
        for text in prefixes {
            let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2 else { return "parse node address: netip.ParsePrefix(\"\(text)\"): no '/'" }
            guard let address = IPAddress(String(parts[0])), let bits = UInt8(parts[1]) else {
                return "parse node address: netip.ParsePrefix(\"\(text)\")"
            }
            guard bits == 128 else { return "invalid address bits, expected 128, got \(bits)" }
            guard own.contains(address) || address == legacy else { return "invalid node address, got \(address)" }
        }
        return nil
    }
}
