/// When to dial which relay, and how (docs/contracts/derp.md#choice-of-a-relay, docs/contracts/derp.md#dialling). There
/// is at most one connection to a region: the next is dialled only once the driver said that the last is closed.
package struct RelayLinks: Sendable {
    package enum Action: Hashable, Sendable {
        /// Dial the first usable node, by WebSocket at once or with `Upgrade: DERP` first. Answer with
        /// ``opened(_:now:)`` once the relay is connected, or ``closed(_:now:)``.
        case dial(Int, RelayURL, webSocket: Bool)
        /// Close the connection or give the dial up, then ``closed(_:now:)``.
        case close(Int)
        /// Tell the relay whether it is home.
        case notePreferred(Int, Bool)
    }

    private enum State: Hashable {
        case idle, open
        case dialling(until: Duration)
        case closing(hasFailed: Bool)
        case waiting(until: Duration)
    }

    private struct Link {
        var region: DERPMap.Region
        var state = State.idle
        /// Dials that failed in a row.
        var failures = 0
        var isWanted = false
        /// The map has it no longer.
        var isGone = false
        var lastWrite: Duration = .zero
        var restart: (reconnectIn: Duration, toleratedUntil: Duration)?
    }

    /// Dial by WebSocket at once, with no try of `Upgrade: DERP`.
    package var alwaysWebSocket: Bool
    private var random: any RandomNumberGenerator & Sendable
    private var links: [Int: Link] = [:]
    private var actions: [Action] = []
    package private(set) var home: Int?
    /// Regions that are dialled by WebSocket, with the reason, as `derp_forced_websocket` tells them.
    package private(set) var forcedWebSocket: [Int: String] = [:]

    package init(alwaysWebSocket: Bool, random: any RandomNumberGenerator & Sendable) {
        self.alwaysWebSocket = alwaysWebSocket
        self.random = random
    }

    package func isOpen(_ region: Int) -> Bool { links[region]?.state == .open }
    package var openRegions: [Int] { links.filter { $0.value.state == .open }.keys.sorted() }
    /// When this relay was last written to, for a connection that is open.
    package func lastWrite(_ region: Int) -> Duration? { isOpen(region) ? links[region]?.lastWrite : nil }

    /// What the driver is to do, in order.
    package mutating func takeActions() -> [Action] {
        defer { actions = [] }
        return actions
    }

    // MARK: Events

    /// Another map came, with embedded relays rewritten. A relay with another definition is closed and dialled again.
    package mutating func update(_ map: DERPMap, now: Duration) {
        for (id, link) in links.sorted(by: { $0.key < $1.key }) {
            links[id]?.isGone = map.regions[id] == nil
            guard map.regions[id] != link.region else { continue }
            forcedWebSocket[id] = nil
            links[id]?.failures = 0
            links[id]?.restart = nil
            if let region = map.regions[id] { links[id]?.region = region }
            if map.regions[id] == nil, home == id { home = nil }
            drop(id)
            forgetIfGone(id)
            dialIfWanted(id, now: now)
        }
        for (id, region) in map.regions where links[id] == nil { links[id] = Link(region: region) }
    }

    package mutating func setHome(_ region: Int?, now: Duration) {
        guard region != home else { return }
        if let home, isOpen(home) {
            actions.append(.notePreferred(home, false))
            // From now on it is like any other: it closes once it is idle.
            links[home]?.lastWrite = now
            links[home]?.isWanted = false
        }
        home = region
        guard let region, links[region] != nil else { return }
        if isOpen(region) { actions.append(.notePreferred(region, true)) }
        dialIfWanted(region, now: now)
    }

    /// A packet is to be sent by this relay, which is dialled unless it is open.
    package mutating func wanted(_ region: Int, now: Duration) {
        guard links[region] != nil else { return }
        links[region]?.isWanted = true
        links[region]?.lastWrite = now
        dialIfWanted(region, now: now)
    }

    /// The relay is connected: it routes packets to us.
    package mutating func opened(_ region: Int, now: Duration) {
        guard let link = links[region], case .dialling = link.state else { return }
        links[region]?.state = .open
        links[region]?.failures = 0
        links[region]?.restart = nil
        links[region]?.lastWrite = now
    }

    /// The connection is over, and its channel not closed yet: nothing goes by it any more. Then ``closed(_:now:)``.
    package mutating func failing(_ region: Int) {
        switch links[region]?.state {
        case .open, .dialling: links[region]?.state = .closing(hasFailed: true)
        default: break
        }
    }

    /// Whether a connection is being closed; the next is dialled only then.
    package func isClosing(_ region: Int) -> Bool {
        if case .closing? = links[region]?.state { true } else { false }
    }

    /// A packet was written to the relay.
    package mutating func wrote(_ region: Int, now: Duration) { links[region]?.lastWrite = now }

    /// The relay refused `Upgrade: DERP` with a 4xx, or chose h2: from now on it is dialled by WebSocket.
    package mutating func refusedUpgrade(_ region: Int, reason: String) {
        guard links[region] != nil, forcedWebSocket[region] == nil else { return }
        forcedWebSocket[region] = reason
    }

    /// The relay said that it goes away soon.
    package mutating func restarting(_ region: Int, reconnectIn: Duration, tryFor: Duration, now: Duration) {
        let wait = min(max(.zero, reconnectIn), DERPLimits.longestReconnectIn)
        let tolerated = min(max(.zero, tryFor), DERPLimits.longestTryFor)
        links[region]?.restart = (wait, now + wait + tolerated)
    }

    /// The connection, or the dial, has ended.
    /// - Returns: whether home is to be measured again for it: not where we closed it, nor while a relay restarts.
    @discardableResult
    package mutating func closed(_ region: Int, now: Duration) -> Bool {
        guard let link = links[region] else { return false }
        var delay = redialDelay(link.failures)
        switch link.state {
        case .idle, .waiting: return false
        case .closing(hasFailed: false):
            links[region]?.state = .idle
            forgetIfGone(region)
            dialIfWanted(region, now: now)
            return false
        case .open: if let restart = link.restart { delay = max(delay, restart.reconnectIn) }
        case .dialling, .closing: break
        }
        links[region]?.failures = min(link.failures + 1, 32)
        links[region]?.isWanted = link.isWanted && now - link.lastWrite < DERPLimits.idle
        links[region]?.state = .waiting(until: now + delay)
        forgetIfGone(region)
        return now >= (link.restart?.toleratedUntil ?? .zero)
    }

    private mutating func forgetIfGone(_ region: Int) {
        guard let link = links[region], link.isGone else { return }
        switch link.state {
        case .idle, .waiting: links[region] = nil
        case .open, .dialling, .closing: break
        }
    }

    /// Exponential, to 5 s, with jitter: between a half and the whole of it.
    private mutating func redialDelay(_ failures: Int) -> Duration {
        let most = min(DERPLimits.longestRedial, DERPLimits.firstRedial * (1 << min(failures, 16)))
        return most * Double.random(in: 0.5...1, using: &random)
    }

    // MARK: Time

    package var nextDeadline: Duration? {
        links.compactMap { id, link in
            switch link.state {
            case .waiting(let until): wants(id, link) ? until : nil
            case .open: id == home ? nil : link.lastWrite + DERPLimits.idle
            case .dialling(let until): until
            case .idle, .closing: nil
            }
        }.min()
    }

    package mutating func advance(now: Duration) {
        for (id, link) in links.sorted(by: { $0.key < $1.key }) {
            switch link.state {
            case .waiting(let until) where until <= now:
                links[id]?.state = .idle
                dialIfWanted(id, now: now)
            case .dialling(let until) where until <= now:
                links[id]?.state = .closing(hasFailed: true)
                actions.append(.close(id))
            case .open where id != home && link.lastWrite + DERPLimits.idle <= now:
                links[id]?.isWanted = false
                drop(id)
            default: break
            }
        }
    }

    private func wants(_ id: Int, _ link: Link) -> Bool { id == home || link.isWanted }

    private mutating func dialIfWanted(_ id: Int, now: Duration) {
        guard let link = links[id], wants(id, link), !link.isGone, link.state == .idle, let relay = link.region.relay
        else { return }
        links[id]?.state = .dialling(until: now + DERPLimits.greeting)
        actions.append(.dial(id, relay, webSocket: alwaysWebSocket || forcedWebSocket[id] != nil))
    }

    private mutating func drop(_ id: Int) {
        switch links[id]?.state {
        case .open, .dialling:
            links[id]?.state = .closing(hasFailed: false)
            actions.append(.close(id))
        case .waiting: links[id]?.state = .idle
        default: break
        }
    }
}
