import IPAddresses
import Sodium

extension DiscoNode {
    /// Takes a packet that looks like disco (``DatagramKind/disco``).
    /// - Returns: why it was dropped; nil when it was not.
    @discardableResult
    package mutating func receive(_ packet: [UInt8], from source: Source, now: Duration) -> DiscoDrop? {
        do throws(DiscoDrop) {
            try take(packet, from: source, now: now)
            return nil
        } catch {
            drop(error)
            return error
        }
    }

    private mutating func take(_ packet: [UInt8], from source: Source, now: Duration) throws(DiscoDrop) {
        guard let sender = DiscoPacket.sender(of: packet) else { throw .notDisco }
        if case .udp = source, !isDirectEnabled { throw .directDisabled }
        guard let peer = owners[sender], let index = peers.index(forKey: peer) else { throw .unknownKey }
        if case .relay(_, let said) = source, said != peer { throw .wrongPeer }
        switch try DiscoPacket.open(packet, box: peers.values[index].box) {
        case .ping(let tx, let nodeKey):
            guard nodeKey == nil || nodeKey == peer else { throw .wrongPeer }
            try answer(tx, peer, index, source, now: now)
        case .pong(let tx, _): try take(pong: tx, peer, index, source, now: now)
        case .callMeMaybe(let endpoints): try take(call: endpoints, peer, index, source, now: now)
        }
    }

    private mutating func answer(
        _ tx: TransactionID, _ peer: PublicKey, _ index: Dictionary<PublicKey, PeerPaths>.Index, _ source: Source,
        now: Duration
    ) throws(DiscoDrop) {
        var seen = Endpoint(relayAddress, 0)
        switch source {
        case .relay(let region, _): seen.port = UInt16(truncatingIfNeeded: region)
        case .udp(let endpoint): seen = endpoint
        }
        let box = peers.values[index].box
        guard
            let pong = DiscoPacket.seal(.pong(tx, source: seen), from: key.publicKey, box: box, random: &random)
        else { return }
        counters.answeredPings &+= 1
        switch source {
        case .relay(let region, _): actions.append(.sendRelay(pong, to: peer, region: region))
        case .udp(let endpoint):
            actions.append(.sendUDP(pong, to: endpoint))
            guard peers.values[index].pinged(from: endpoint, now: now) else { throw .tooManyCandidates }
            schedule(now + DiscoLimits.pingSource)
            // Anyone can repeat a ping from another address, so it takes none from a peer that answered there.
            if bound[endpoint] == nil { bound[endpoint] = peer }
        }
    }

    private mutating func take(
        pong tx: TransactionID, _ peer: PublicKey, _ index: Dictionary<PublicKey, PeerPaths>.Index, _ source: Source,
        now: Duration
    ) throws(DiscoDrop) {
        guard let ping = peers.values[index].pings[tx], now - ping.at <= DiscoLimits.pong else {
            throw .unexpectedPong
        }
        // It comes by the kind of path that the ping took.
        switch (source, ping.to) {
        case (.udp, .some), (.relay, nil): break
        default: throw .unexpectedPong
        }
        peers.values[index].pings[tx] = nil
        counters.receivedPongs &+= 1
        let latency = max(.zero, now - ping.at)
        if let request = ping.request { actions.append(.pinged(request, latency: latency, via: ping.to)) }
        // Only an address that is still a candidate can become a path.
        guard let to = ping.to, peers.values[index].candidates.contains(where: { $0.endpoint == to }) else { return }
        bound[to] = peer
        let old = peers.values[index].best?.endpoint
        guard peers.values[index].ponged(to, latency: latency, now: now) else {
            return schedule(now + DiscoLimits.heartbeat)
        }
        actions.append(.pathChanged(peer, to))
        if let old, !peers.values[index].candidates.contains(where: { $0.endpoint == old && $0.isWanted(now: now) }) {
            unbind(peers.values[index].prune(now: now), peer)
        }
        schedule(now + DiscoLimits.heartbeat)
    }

    private mutating func take(
        call endpoints: [Endpoint], _ peer: PublicKey, _ index: Dictionary<PublicKey, PeerPaths>.Index,
        _ source: Source,
        now: Duration
    ) throws(DiscoDrop) {
        guard case .relay = source else { throw .callMeMaybeOverUDP }
        guard isDirectEnabled else { throw .directDisabled }
        if let last = peers.values[index].lastCalled, now - last < DiscoLimits.callMeMaybe {
            throw .callMeMaybeTooSoon
        }
        peers.values[index].lastCalled = now
        counters.takenCallMeMaybes &+= 1
        unbind(peers.values[index].replace(endpoints, \.isCalled, now: now), peer)
        pingCandidates(peer, index, all: true, now: now)
    }

    /// Takes a UDP datagram that looks like STUN (``DatagramKind/stun``).
    package mutating func receiveSTUN(_ packet: [UInt8], now: Duration) {
        guard isDirectEnabled, manager.receive(packet, now: now) else { return }
        announceChange()
        if !manager.isWaiting(now: now) { callAll(now: now) }
        schedule(now)
    }
}

/// What a pong names as the source of a ping that came by relay; the region is the port.
private let relayAddress = IPAddress(v4: 0x7f03_0328)
