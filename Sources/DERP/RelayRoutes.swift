import Sodium

/// Which relay to use for a peer (docs/contracts/derp.md#choice-of-a-relay). What it remembers is where each peer was
/// last heard, which a relay can lie about: nothing but the path of sealed packets depends on it.
package struct RelayRoutes: Sendable {
    package enum Decision: Hashable, Sendable {
        case send(Int)
        /// Dial this region's relay; the packet waits in its queue.
        case dial(Int)
        /// There is no relay for the peer.
        case none
    }

    private var heard: [PublicKey: (region: Int, at: Duration)] = [:]
    /// Routes forgotten for ``DERPLimits/routes``.
    package private(set) var evicted: UInt64 = 0

    package init() {}

    package var count: Int { heard.count }

    /// A packet of a known peer came by this relay.
    package mutating func heard(_ peer: PublicKey, from region: Int, now: Duration) {
        if heard.count >= DERPLimits.routes, heard[peer] == nil,
            let oldest = heard.min(by: { $0.value.at < $1.value.at })
        {
            heard[oldest.key] = nil
            evicted &+= 1
        }
        heard[peer] = (region, now)
    }

    /// The relay said that the peer is gone.
    package mutating func gone(_ peer: PublicKey, from region: Int) {
        if heard[peer]?.region == region { heard[peer] = nil }
    }

    /// The peer was removed.
    package mutating func forget(_ peer: PublicKey) { heard[peer] = nil }

    /// The connection to the region has ended, or the region has gone.
    package mutating func closed(_ region: Int) { heard = heard.filter { $0.value.region != region } }

    /// - Parameter preferred: the peer's home; 0 when it isn't known.
    package func route(_ peer: PublicKey, preferred: Int, links: RelayLinks) -> Decision {
        if links.isOpen(preferred) { return .send(preferred) }
        if let last = heard[peer]?.region, links.isOpen(last) { return .send(last) }
        return preferred > 0 ? .dial(preferred) : .none
    }
}
