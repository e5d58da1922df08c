import IPAddresses

/// The addresses of an agent on the tailnet (docs/contracts/tailnet.md#addresses): its id with the first six bytes
/// replaced.
package struct TailnetAddresses: Hashable, Sendable {
    /// What clients dial.
    package static let clientNetwork = IPPrefix(IPAddress(high: 0xfd7a_115c_a1e0_0000, low: 0), bits: 48)
    /// What Coder Connect dials.
    package static let connectNetwork = IPPrefix(IPAddress(high: 0xfd60_627a_a42b_0000, low: 0), bits: 48)

    package let client: IPAddress
    package let connect: IPAddress
    /// The last eight bytes of the id as a signed number, without its sign.
    package let nodeID: Int64

    package var all: [IPAddress] { [client, connect] }

    /// nil unless the id has 16 bytes.
    package init?(agentID: some Collection<UInt8>) {
        guard agentID.count == 16, let id = IPAddress(agentID) else { return nil }
        let rest = id.high & 0xffff
        client = IPAddress(high: 0xfd7a_115c_a1e0_0000 | rest, low: id.low)
        connect = IPAddress(high: 0xfd60_627a_a42b_0000 | rest, low: id.low)
        // The least number has no counterpart.
        nodeID = Int64(truncatingIfNeeded: Int64(bitPattern: id.low).magnitude)
    }

    /// Whether an address may be a client's.
    package static func isOfTailnet(_ address: IPAddress) -> Bool {
        (clientNetwork?.contains(address) ?? false) || (connectNetwork?.contains(address) ?? false)
    }
}
