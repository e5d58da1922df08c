import DequeModule
import IPAddresses
import Sodium

/// Finds and keeps direct paths to peers (docs/contracts/disco.md). Peers are named by their node key.
///
/// The driver hands in what came, asks ``route(_:now:)`` for each packet that it sends, takes ``nextAction()`` until it is
/// nil after each call, and calls ``advance(now:)`` at ``nextDeadline``. Times are since any fixed point.
package struct DiscoNode: Sendable {
    /// The path by which a packet came.
    package enum Source: Hashable, Sendable {
        case udp(Endpoint)
        /// By the relay of this region, which says that the peer sent it.
        case relay(region: Int, peer: PublicKey)
    }

    package enum Action: Hashable, Sendable {
        case sendUDP([UInt8], to: Endpoint)
        /// - region: the relay to use; nil for the one that packets for this peer take.
        case sendRelay([UInt8], to: PublicKey, region: Int?)
        /// Announce these endpoints of ours.
        case endpointsChanged([Endpoint])
        /// The best path to a peer is another one, or gone.
        case pathChanged(PublicKey, Endpoint?)
        /// The answer to ``ping(_:now:)``: nil when there was none. `via` is nil for the relay.
        case pinged(UInt64, latency: Duration?, via: Endpoint?)
    }

    /// How a packet is sent to a peer.
    package enum Route: Hashable, Sendable {
        case udp(Endpoint)
        case relay
        /// By both: the direct path has not proven itself lately.
        case both(Endpoint)
        /// The peer is unknown.
        case none
    }

    package struct Counters: Hashable, Sendable {
        package var drops: [DiscoDrop: UInt64] = [:]
        package var sentPings: UInt64 = 0
        package var answeredPings: UInt64 = 0
        package var receivedPongs: UInt64 = 0
        package var sentCallMeMaybes: UInt64 = 0
        package var takenCallMeMaybes: UInt64 = 0
        /// Peers that were refused: too many, or a disco key that another one has or that is of low order.
        package var refusedPeers: UInt64 = 0
    }

    let key: PrivateKey
    let nodeKey: PublicKey
    var random: any RandomNumberGenerator & Sendable
    var peers: [PublicKey: PeerPaths] = [:]
    /// The peer of each disco key.
    var owners: [PublicKey: PublicKey] = [:]
    /// The peer of each UDP address that disco bound to one.
    var bound: [Endpoint: PublicKey] = [:]
    var manager = EndpointManager()
    /// Peers that get a call-me-maybe once STUN servers have answered.
    var toCall: [PublicKey] = []
    var actions: Deque<Action> = []
    var requests: UInt64 = 0
    /// Nothing is due before; nil for never.
    var earliest: Duration?
    package private(set) var isDirectEnabled: Bool
    package internal(set) var counters = Counters()

    /// - Parameters:
    ///   - key: our disco key.
    ///   - nodeKey: our WireGuard public key, which our pings name.
    package init(
        key: PrivateKey, nodeKey: PublicKey, isDirectEnabled: Bool = true,
        random: any RandomNumberGenerator & Sendable
    ) {
        self.key = key
        self.nodeKey = nodeKey
        self.isDirectEnabled = isDirectEnabled
        self.random = random
    }

    /// The next action; to be performed before the next call.
    package mutating func nextAction() -> Action? { actions.popFirst() }

    // MARK: Peers

    /// A peer came, or its data changed. A new disco key forgets all paths.
    /// - Returns: false when the peer is refused; it has no paths then, and what was known of it stays.
    package mutating func update(_ peer: PublicKey, disco: PublicKey, endpoints: [Endpoint], now: Duration) -> Bool {
        if peers[peer]?.discoKey != disco {
            guard owners[disco] == nil, peers[peer] != nil || peers.count < DiscoLimits.peers, disco != key.publicKey,
                let box = Box(key, disco)
            else {
                counters.refusedPeers &+= 1
                return false
            }
            remove(peer)
            owners[disco] = peer
            peers[peer] = PeerPaths(discoKey: disco, box: box)
        }
        guard isDirectEnabled else { return true }
        let gone = peers[peer]?.replace(endpoints, \.isAnnounced, now: now) ?? []
        unbind(gone, peer)
        return true
    }

    package mutating func remove(_ peer: PublicKey) {
        guard var paths = peers.removeValue(forKey: peer) else { return }
        owners[paths.discoKey] = nil
        toCall.removeAll { $0 == peer }
        forgetPaths(peer, &paths)
    }

    package var peerCount: Int { peers.count }

    /// Addresses that are bound to a peer.
    package var boundCount: Int { bound.count }

    private mutating func forgetPaths(_ peer: PublicKey, _ paths: inout PeerPaths) {
        unbind(paths.candidates.map(\.endpoint), peer)
        for ping in paths.pings.values { fail(ping) }
        if paths.best != nil { actions.append(.pathChanged(peer, nil)) }
        (paths.candidates, paths.pings, paths.best) = ([], [:], nil)
    }

    mutating func unbind(_ endpoints: [Endpoint], _ peer: PublicKey) {
        for endpoint in endpoints where bound[endpoint] == peer { bound[endpoint] = nil }
    }

    mutating func fail(_ ping: SentPing) {
        if let request = ping.request { actions.append(.pinged(request, latency: nil, via: ping.to)) }
    }

    /// Turns direct paths on or off. Off: no endpoints of ours, no disco by UDP, no call-me-maybe. The endpoints that peers
    /// announced meanwhile come with their next ``update(_:disco:endpoints:now:)``.
    package mutating func setDirect(_ isEnabled: Bool, now: Duration) {
        guard isEnabled != isDirectEnabled else { return }
        isDirectEnabled = isEnabled
        schedule(now)
        guard !isEnabled else { return announceChange() }
        toCall = []
        for peer in Array(peers.keys) {
            guard var paths = peers[peer] else { continue }
            forgetPaths(peer, &paths)
            peers[peer] = paths
        }
        bound = [:]
        manager.withdraw()
        actions.append(.endpointsChanged([]))
    }

    // MARK: Sending

    /// How to send a packet of WireGuard to the peer now. Looks for a direct path where there is none to trust.
    package mutating func route(_ peer: PublicKey, now: Duration) -> Route {
        guard let index = peers.index(forKey: peer) else { return .none }
        markActive(index, now: now)
        guard isDirectEnabled else { return .relay }
        if peers.values[index].isTrusted(now: now), let best = peers.values[index].best {
            searchForBetter(peer, index, now: now)
            return .udp(best.endpoint)
        }
        if peers.values[index].searchFrom <= now { search(peer, index, now: now) }
        return peers.values[index].best.map { .both($0.endpoint) } ?? .relay
    }

    /// Authentic data of the peer came by any path.
    package mutating func received(from peer: PublicKey, now: Duration) {
        if let index = peers.index(forKey: peer) { markActive(index, now: now) }
    }

    private mutating func markActive(_ index: Dictionary<PublicKey, PeerPaths>.Index, now: Duration) {
        let wasActive = peers.values[index].isActive(now: now)
        peers.values[index].lastData = now
        // STUN and the heartbeat begin again.
        if !wasActive { schedule(now) }
    }

    /// The peer to which disco bound this address: WireGuard by UDP is taken from no other.
    package func peer(at endpoint: Endpoint) -> PublicKey? { bound[endpoint] }

    /// Whether a packet sent now would go by UDP alone.
    package func isDirect(_ peer: PublicKey, now: Duration) -> Bool { peers[peer]?.isTrusted(now: now) ?? false }

    package func isActive(_ peer: PublicKey, now: Duration) -> Bool { peers[peer]?.isActive(now: now) ?? false }

    /// Measures the latency by the path that packets take now: ``Action/pinged(_:latency:via:)`` comes within 5 s.
    /// - Returns: nil when the peer is unknown, or has too many unanswered pings.
    package mutating func ping(_ peer: PublicKey, now: Duration) -> UInt64? {
        guard let index = peers.index(forKey: peer) else { return nil }
        requests &+= 1
        let isTrusted = peers.values[index].isTrusted(now: now)
        let to = isTrusted ? peers.values[index].best?.endpoint : nil
        return sendPing(peer, index, to: to, request: requests, now: now) ? requests : nil
    }

    /// Pings an address, or by relay.
    mutating func sendPing(
        _ peer: PublicKey, _ index: Dictionary<PublicKey, PeerPaths>.Index, to: Endpoint?, request: UInt64? = nil,
        now: Duration
    ) -> Bool {
        guard peers.values[index].pings.count < DiscoLimits.outstandingPings else {
            drop(.tooManyPings)
            return false
        }
        let tx = TransactionID(random: &random)
        let box = peers.values[index].box
        guard
            let packet = DiscoPacket.seal(
                .ping(tx, nodeKey: nodeKey), from: key.publicKey, box: box, random: &random)
        else { return false }
        peers.values[index].pings[tx] = SentPing(to: to, at: now, request: request)
        if let to, to == peers.values[index].best?.endpoint { peers.values[index].bestPinged = now }
        counters.sentPings &+= 1
        actions.append(to.map { .sendUDP(packet, to: $0) } ?? .sendRelay(packet, to: peer, region: nil))
        schedule(now + DiscoLimits.pong)
        return true
    }

    mutating func drop(_ reason: DiscoDrop) {
        // Types are those of an authentic peer; they share one count, so that it can't make many.
        if case .unknownType = reason {
            counters.drops[.unknownType(0), default: 0] &+= 1
        } else {
            counters.drops[reason, default: 0] &+= 1
        }
    }

    mutating func schedule(_ time: Duration) { earliest = min(earliest ?? time, time) }
}
