import IPAddresses
import Sodium

extension DiscoNode {
    // MARK: Looking for paths

    /// Pings candidates, and has the peer ping us when there was one.
    mutating func search(_ peer: PublicKey, _ index: Dictionary<PublicKey, PeerPaths>.Index, now: Duration) {
        guard pingCandidates(peer, index, all: false, now: now) else { return }
        peers.values[index].lastSearch = now
        if manager.refresh(now: now, random: &random) {
            // Old endpoints would be of no help to the peer: servers are asked first.
            if !toCall.contains(peer) { toCall.append(peer) }
            takeRequests()
            if let until = manager.waitsUntil { schedule(until) }
        } else {
            call(peer)
        }
    }

    /// A path that is trusted and not very fast: once a minute the others have their chance.
    mutating func searchForBetter(
        _ peer: PublicKey, _ index: Dictionary<PublicKey, PeerPaths>.Index, now: Duration
    ) {
        guard let best = peers.values[index].best, best.latency > DiscoLimits.goodEnough,
            let last = peers.values[index].lastSearch, now - last >= DiscoLimits.upgrade
        else {
            // A path that the peer found first: the minute begins now.
            if peers.values[index].lastSearch == nil { peers.values[index].lastSearch = now }
            return
        }
        peers.values[index].lastSearch = now
        search(peer, index, now: now)
    }

    /// - Parameter all: also those that were pinged in the last 5 s.
    /// - Returns: whether one was pinged.
    @discardableResult
    mutating func pingCandidates(
        _ peer: PublicKey, _ index: Dictionary<PublicKey, PeerPaths>.Index, all: Bool, now: Duration
    ) -> Bool {
        var isPinged = false
        var next = now + DiscoLimits.pingAgain
        for number in peers.values[index].candidates.indices {
            let candidate = peers.values[index].candidates[number]
            guard candidate.isWanted(now: now) || candidate.endpoint == peers.values[index].best?.endpoint else {
                continue
            }
            if !all, let last = candidate.lastPing, now - last < DiscoLimits.pingAgain {
                next = min(next, last + DiscoLimits.pingAgain)
                continue
            }
            guard sendPing(peer, index, to: candidate.endpoint, now: now) else { break }
            peers.values[index].candidates[number].lastPing = now
            isPinged = true
        }
        peers.values[index].searchFrom = next
        return isPinged
    }

    /// Tells the peer our endpoints, by relay.
    private mutating func call(_ peer: PublicKey) {
        let endpoints = manager.endpoints
        guard isDirectEnabled, !endpoints.isEmpty, let box = peers[peer]?.box,
            let packet = DiscoPacket.seal(.callMeMaybe(endpoints), from: key.publicKey, box: box, random: &random)
        else { return }
        counters.sentCallMeMaybes &+= 1
        actions.append(.sendRelay(packet, to: peer, region: nil))
    }

    mutating func callAll(now: Duration) {
        let waiting = toCall
        toCall = []
        // One that has a direct path meanwhile needs no call.
        for peer in waiting where !isDirect(peer, now: now) { call(peer) }
    }

    // MARK: Our endpoints

    /// See ``EndpointManager/setServers(_:now:)``.
    package mutating func setSTUNServers(_ servers: [Endpoint], now: Duration) {
        manager.setServers(servers, now: now)
        schedule(now)
    }

    /// See ``EndpointManager/setLocal(_:v4:v6:)``.
    package mutating func setLocal(_ interfaces: [IPAddress], v4: UInt16?, v6: UInt16?) {
        manager.setLocal(interfaces, v4: v4, v6: v6)
        announceChange()
    }

    /// Our endpoints as they are announced.
    package var endpoints: [Endpoint] { isDirectEnabled ? manager.endpoints : [] }

    /// Where STUN servers saw us.
    package var mappedEndpoints: [Endpoint] { manager.mappedEndpoints }
    package func hasSTUNServers(isV4: Bool) -> Bool { manager.hasServers(isV4: isV4) }

    /// Whether IPv4 servers saw us at different endpoints (a symmetric NAT); nil when that isn't known.
    package var mappingVaries: Bool? { manager.mappingVaries }

    mutating func announceChange() {
        guard isDirectEnabled, let change = manager.takeChange() else { return }
        actions.append(.endpointsChanged(change))
    }

    private mutating func takeRequests() {
        for request in manager.takeRequests() { actions.append(.sendUDP(request.packet, to: request.server)) }
    }

    // MARK: Time

    /// When to call ``advance(now:)``; nothing may be due then yet.
    package var nextDeadline: Duration? { earliest }

    package mutating func advance(now: Duration) {
        guard let due = earliest, due <= now else { return }
        earliest = nil
        var isAnyActive = false
        // Not by `indices`, which would hold the dictionary and so have it copied.
        var index = peers.startIndex
        while index < peers.endIndex {
            let peer = peers.keys[index]
            isAnyActive = isAnyActive || peers.values[index].isActive(now: now)
            if let deadline = peers.values[index].deadline, deadline <= now { advance(peer, index, now: now) }
            if let next = peers.values[index].deadline { schedule(next) }
            peers.formIndex(after: &index)
        }
        guard isDirectEnabled else { return }
        manager.advance(now: now, isActive: isAnyActive, random: &random)
        takeRequests()
        announceChange()
        if !toCall.isEmpty {
            if manager.isWaiting(now: now) {
                if let until = manager.waitsUntil { schedule(until) }
            } else {
                callAll(now: now)
            }
        }
        if let next = manager.nextDeadline { schedule(next) }
    }

    private mutating func advance(
        _ peer: PublicKey, _ index: Dictionary<PublicKey, PeerPaths>.Index, now: Duration
    ) {
        for (tx, ping) in peers.values[index].pings where ping.at + DiscoLimits.pong <= now {
            peers.values[index].pings[tx] = nil
            fail(ping)
        }
        if let best = peers.values[index].best, best.pongAt + DiscoLimits.giveUp <= now {
            peers.values[index].best = nil
            actions.append(.pathChanged(peer, nil))
        }
        if let beat = peers.values[index].beat, beat <= now, let best = peers.values[index].best {
            // Also where no more ping may be sent, so that it isn't due at once again.
            peers.values[index].bestPinged = now
            if sendPing(peer, index, to: best.endpoint, now: now),
                let number = peers.values[index].candidates.firstIndex(where: { $0.endpoint == best.endpoint })
            {
                peers.values[index].candidates[number].lastPing = now
            }
            if peers.values[index].isTrusted(now: now) { searchForBetter(peer, index, now: now) }
        }
        unbind(peers.values[index].prune(now: now), peer)
    }

    // MARK: What is seen

    /// What is known of a peer's paths, for the debug page.
    package struct PeerReport: Sendable {
        package struct Candidate: Sendable {
            package var endpoint: Endpoint
            package var lastPing: Duration?
            package var lastPong: Duration?
            package var latency: Duration?
        }

        package var best: Endpoint?
        package var isTrusted: Bool
        package var latency: Duration?
        package var lastData: Duration?
        package var candidates: [Candidate]
    }

    package func report(_ peer: PublicKey, now: Duration) -> PeerReport? {
        guard let paths = peers[peer] else { return nil }
        return PeerReport(
            best: paths.best?.endpoint, isTrusted: paths.isTrusted(now: now), latency: paths.best?.latency,
            lastData: paths.lastData,
            candidates: paths.candidates.map {
                PeerReport.Candidate(
                    endpoint: $0.endpoint, lastPing: $0.lastPing, lastPong: $0.lastPong?.at,
                    latency: $0.lastPong?.latency)
            })
    }
}
