import IPAddresses

/// Our own endpoints, which are announced to peers: what STUN servers saw, then interface addresses with the port of our
/// socket (docs/contracts/disco.md#endpoints, docs/contracts/disco.md#stun).
package struct EndpointManager: Sendable {
    package struct Request: Hashable, Sendable {
        package var server: Endpoint
        package var packet: [UInt8]
    }

    private struct Asked {
        var server: Endpoint
        var attempts = 1
    }

    private var servers: [Endpoint] = []
    private var interfaces: [IPAddress] = []
    private var ports: (v4: UInt16?, v6: UInt16?) = (nil, nil)
    /// In the order in which they were first seen, with when they were last.
    private var mapped: [(endpoint: Endpoint, seen: Duration)] = []
    /// What each server saw last.
    package private(set) var seenBy: [Endpoint: Endpoint] = [:]
    private var outstanding: [TransactionID: Asked] = [:]
    private var roundStart: Duration?
    private var nextRound: Duration?
    /// The next round begins whether a peer is active or not.
    private var isAtOnce = false
    private var announced: [Endpoint] = []
    private var requests: [Request] = []
    /// Answers that matched no request, or could not be read.
    package private(set) var droppedAnswers: UInt64 = 0

    package init() {}

    // MARK: Given by the driver

    /// The addresses of the map's STUN servers. Asks them at once when they are others than before.
    package mutating func setServers(_ servers: [Endpoint], now: Duration) {
        var unique: [Endpoint] = []
        for server in servers where !unique.contains(server) && unique.count < DiscoLimits.stunServers {
            unique.append(server)
        }
        guard unique != self.servers else { return }
        self.servers = unique
        let known = Set(unique)
        seenBy = seenBy.filter { known.contains($0.key) }
        outstanding = outstanding.filter { known.contains($0.value.server) }
        nextRound = unique.isEmpty ? nil : now
        isAtOnce = !unique.isEmpty
    }

    /// The addresses of our interfaces, and the ports of our sockets of both families; nil for one that isn't open.
    package mutating func setLocal(_ interfaces: [IPAddress], v4: UInt16?, v6: UInt16?) {
        self.interfaces = interfaces
        ports = (v4, v6)
    }

    // MARK: Asking

    /// Requests to send now.
    package mutating func takeRequests() -> [Request] {
        defer { requests = [] }
        return requests
    }

    /// Whether a new round began because the last one is too old for a call-me-maybe.
    mutating func refresh(now: Duration, random: inout some RandomNumberGenerator) -> Bool {
        guard !servers.isEmpty else { return false }
        if let roundStart, now - roundStart <= DiscoLimits.stunFresh { return isWaiting(now: now) }
        startRound(now: now, random: &random)
        return true
    }

    /// Whether answers of the round may still come soon.
    func isWaiting(now: Duration) -> Bool {
        guard let roundStart, !outstanding.isEmpty else { return false }
        return now - roundStart < DiscoLimits.stunWait
    }

    /// When ``isWaiting(now:)`` ends without an answer.
    var waitsUntil: Duration? { roundStart.map { $0 + DiscoLimits.stunWait } }

    private mutating func startRound(now: Duration, random: inout some RandomNumberGenerator) {
        roundStart = now
        nextRound = nil
        isAtOnce = false
        outstanding = [:]
        for server in servers {
            let tx = TransactionID(random: &random)
            outstanding[tx] = Asked(server: server)
            requests.append(Request(server: server, packet: STUN.makeRequest(tx)))
        }
    }

    /// Takes an answer. False when it was none of ours.
    mutating func receive(_ packet: [UInt8], now: Duration) -> Bool {
        guard let (tx, endpoint) = try? STUN.readResponse(packet), let asked = outstanding.removeValue(forKey: tx)
        else {
            droppedAnswers &+= 1
            return false
        }
        guard isUsable(endpoint) else {
            droppedAnswers &+= 1
            return true
        }
        seenBy[asked.server] = endpoint
        if let index = mapped.firstIndex(where: { $0.endpoint == endpoint }) {
            mapped[index].seen = now
        } else {
            mapped.append((endpoint, now))
            if mapped.count > DiscoLimits.endpoints { mapped.removeFirst() }
        }
        return true
    }

    // MARK: Time

    package var nextDeadline: Duration? {
        var times = [nextRound, mapped.map(\.seen).min().map { $0 + DiscoLimits.stunLife }]
        if let roundStart, let attempts = outstanding.values.map(\.attempts).min() {
            let retries = DiscoLimits.stunRetries
            times.append(roundStart + (attempts <= retries.count ? retries[attempts - 1] : DiscoLimits.stunAnswer))
        }
        return times.compactMap { $0 }.min()
    }

    /// - Parameter isActive: whether a peer was active in the last 45 s.
    mutating func advance(now: Duration, isActive: Bool, random: inout some RandomNumberGenerator) {
        mapped.removeAll { $0.seen + DiscoLimits.stunLife <= now }
        if let roundStart {
            for (tx, asked) in outstanding {
                if roundStart + DiscoLimits.stunAnswer <= now {
                    outstanding[tx] = nil
                } else if asked.attempts <= DiscoLimits.stunRetries.count,
                    roundStart + DiscoLimits.stunRetries[asked.attempts - 1] <= now
                {
                    outstanding[tx]?.attempts += 1
                    requests.append(Request(server: asked.server, packet: STUN.makeRequest(tx)))
                }
            }
        }
        if !isActive, !isAtOnce { nextRound = nil }
        if isActive { planRound(&random) }
        if let nextRound, nextRound <= now { startRound(now: now, random: &random) }
        if isActive { planRound(&random) }
    }

    private mutating func planRound(_ random: inout some RandomNumberGenerator) {
        guard nextRound == nil, !servers.isEmpty, let roundStart else { return }
        nextRound = roundStart + .seconds(Double.random(in: DiscoLimits.stunEvery, using: &random))
    }

    // MARK: Endpoints

    /// What servers saw, the oldest first.
    package var mappedEndpoints: [Endpoint] { mapped.map(\.endpoint) }
    /// Whether servers of a family are asked.
    package func hasServers(isV4: Bool) -> Bool { servers.contains { ($0.address.v4 != nil) == isV4 } }

    /// What is announced.
    package var endpoints: [Endpoint] {
        let local = interfaces.compactMap { address in
            (address.v4 == nil ? ports.v6 : ports.v4).map { Endpoint(address, $0) }
        }
        var result: [Endpoint] = []
        var seen: Set<Endpoint> = []
        for endpoint in mapped.map(\.endpoint) + local
        where isUsable(endpoint) && !endpoint.address.isLoopback && seen.insert(endpoint).inserted {
            result.append(endpoint)
        }
        if result.isEmpty {
            result = (mapped.map(\.endpoint) + local).filter { $0.address.isLoopback && isUsable($0) }
        }
        return Array(result.prefix(DiscoLimits.endpoints))
    }

    /// The endpoints, when they are others than at the last call.
    package mutating func takeChange() -> [Endpoint]? {
        let now = endpoints
        guard Set(now) != Set(announced) else { return nil }
        announced = now
        return now
    }

    /// Nothing is announced any more.
    mutating func withdraw() { announced = [] }

    /// Whether servers of IPv4 saw us at different endpoints; nil when fewer than two answered.
    package var mappingVaries: Bool? {
        let seen = seenBy.values.filter { $0.address.v4 != nil }
        return seen.count < 2 ? nil : Set(seen).count > 1
    }
}

/// Whether an endpoint may be pinged or announced: of no tailnet, not link-local, nothing that is no single host.
func isUsable(_ endpoint: Endpoint) -> Bool {
    let address = endpoint.address
    return endpoint.port != 0 && !address.isUnspecified && !address.isMulticast && !address.isLinkLocal
        && !tailnets.contains { $0.contains(address) } && address.v4 != UInt32.max
}

/// The two /48 of nodes: a path inside a tunnel would lead into itself.
private let tailnets = [0xfd7a_115c_a1e0_0000, 0xfd60_627a_a42b_0000].compactMap { (high: UInt64) in
    IPPrefix(IPAddress(high: high, low: 0), bits: 48)
}
