import IPAddresses
import Sodium

/// A UDP address at which a peer may be reached.
struct Candidate: Sendable {
    let endpoint: Endpoint
    /// The peer's node announces it.
    var isAnnounced = false
    /// The last call-me-maybe named it.
    var isCalled = false
    /// The peer pinged from it; counts until then.
    var pingedUntil: Duration?
    var lastPing: Duration?
    var lastPong: (at: Duration, latency: Duration)?

    init(_ endpoint: Endpoint) { self.endpoint = endpoint }

    func isWanted(now: Duration) -> Bool { isAnnounced || isCalled || (pingedUntil.map { $0 > now } ?? false) }
}

/// A ping that waits for its pong.
struct SentPing: Sendable {
    /// nil for the relay.
    var to: Endpoint?
    var at: Duration
    /// Of ``DiscoNode/ping(_:now:)``.
    var request: UInt64?
}

/// What is known of the paths to one peer.
struct PeerPaths: Sendable {
    struct Best: Sendable, Equatable {
        var endpoint: Endpoint
        var latency: Duration
        /// When its last pong came.
        var pongAt: Duration

        /// What counts for this path apart from its latency.
        var bonus: Double {
            let address = endpoint.address
            return (address.isLoopback ? 50 : address.isPrivate ? 20 : 0) + (address.v4 == nil ? 10 : 0)
        }

        /// Whether it is better than another: more points, where each percent of lower latency is one. One point isn't
        /// enough.
        func isBetter(than other: Best) -> Bool {
            let (own, others) = (max(latency.inSeconds, 1e-9), max(other.latency.inSeconds, 1e-9))
            let gain = own < others ? (1 - own / others) * 100 : (others / own - 1) * 100
            return bonus + gain - other.bonus > 1.000_001
        }
    }

    let discoKey: PublicKey
    let box: Box
    var candidates: [Candidate] = []
    var pings: [TransactionID: SentPing] = [:]
    var best: Best?
    var bestPinged: Duration = .zero
    var lastData: Duration?
    var lastSearch: Duration?
    /// No candidate may be pinged again before.
    var searchFrom: Duration = .zero
    var lastCalled: Duration?

    init(discoKey: PublicKey, box: Box) {
        self.discoKey = discoKey
        self.box = box
    }

    func isActive(now: Duration) -> Bool { lastData.map { now - $0 < DiscoLimits.activity } ?? false }

    func isTrusted(now: Duration) -> Bool { best.map { now - $0.pongAt < DiscoLimits.trust } ?? false }

    // MARK: Candidates

    /// Replaces the node's endpoints, or those of the last call-me-maybe.
    /// - Returns: addresses that are candidates no longer.
    mutating func replace(
        _ endpoints: [Endpoint], _ flag: WritableKeyPath<Candidate, Bool>, now: Duration
    ) -> [Endpoint] {
        for index in candidates.indices { candidates[index][keyPath: flag] = false }
        var new: [Endpoint] = []
        for endpoint in endpoints.prefix(DiscoLimits.candidates) where isUsable(endpoint) {
            if let index = candidates.firstIndex(where: { $0.endpoint == endpoint }) {
                candidates[index][keyPath: flag] = true
            } else if !new.contains(endpoint) {
                new.append(endpoint)
            }
        }
        var gone = prune(now: now)
        for endpoint in new {
            if candidates.count >= DiscoLimits.candidates {
                // The peer's word counts more than where a ping came from, which a third party may have replayed.
                let least = candidates.firstIndex {
                    !$0.isAnnounced && !$0.isCalled && $0.endpoint != best?.endpoint
                }
                guard let least else { break }
                gone.append(candidates.remove(at: least).endpoint)
            }
            var candidate = Candidate(endpoint)
            candidate[keyPath: flag] = true
            candidates.append(candidate)
            searchFrom = .zero
        }
        return gone
    }

    /// The peer pinged from this address. False when there is no room for it.
    mutating func pinged(from endpoint: Endpoint, now: Duration) -> Bool {
        let until = now + DiscoLimits.pingSource
        if let index = candidates.firstIndex(where: { $0.endpoint == endpoint }) {
            candidates[index].pingedUntil = until
            return true
        }
        guard isUsable(endpoint), candidates.count < DiscoLimits.candidates else { return false }
        var candidate = Candidate(endpoint)
        candidate.pingedUntil = until
        candidates.append(candidate)
        searchFrom = .zero
        return true
    }

    /// Removes what counts no longer, save the best path.
    mutating func prune(now: Duration) -> [Endpoint] {
        var gone: [Endpoint] = []
        candidates.removeAll { candidate in
            guard !candidate.isWanted(now: now), candidate.endpoint != best?.endpoint else { return false }
            gone.append(candidate.endpoint)
            return true
        }
        return gone
    }

    // MARK: Pongs

    /// A pong came for a ping to this address. Returns whether the best path is another one now.
    mutating func ponged(_ endpoint: Endpoint, latency: Duration, now: Duration) -> Bool {
        if let index = candidates.firstIndex(where: { $0.endpoint == endpoint }) {
            candidates[index].lastPong = (now, latency)
        }
        let new = Best(endpoint: endpoint, latency: latency, pongAt: now)
        guard let old = best, old.endpoint != endpoint else {
            defer { best = new }
            return best == nil
        }
        guard !isTrusted(now: now) || new.isBetter(than: old) else { return false }
        best = new
        bestPinged = now
        return true
    }

    // MARK: Time

    /// When something is due; nil for nothing.
    var deadline: Duration? {
        var next: Duration?
        func consider(_ time: Duration) { next = min(next ?? time, time) }
        for ping in pings.values { consider(ping.at + DiscoLimits.pong) }
        for candidate in candidates where !candidate.isAnnounced && !candidate.isCalled {
            if let until = candidate.pingedUntil, candidate.endpoint != best?.endpoint { consider(until) }
        }
        if let best {
            consider(best.pongAt + DiscoLimits.giveUp)
            if let beat { consider(beat) }
        }
        return next
    }

    /// When the best path is to be pinged again; nil when no data flows.
    var beat: Duration? {
        guard best != nil, let lastData else { return nil }
        let beat = bestPinged + DiscoLimits.heartbeat
        return beat < lastData + DiscoLimits.activity ? beat : nil
    }
}

extension Duration {
    var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) * 1e-18 }
}
