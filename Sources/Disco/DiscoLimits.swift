/// Every bound and time of the search for direct paths, and what happens at each (docs/contracts/disco.md).
package enum DiscoLimits {
    /// Peers. A further one is refused.
    package static let peers = 1_024
    /// Candidates of a peer. At it the source of a ping isn't added, and one gives way to what the peer announces.
    package static let candidates = 100
    /// Our own endpoints that are announced; the last are left out.
    package static let endpoints = 100
    /// Pings of a peer without a pong. At it no further one is sent.
    package static let outstandingPings = 512
    /// STUN servers that are asked; the last are left out.
    package static let stunServers = 64
    /// Longer packets are no disco: a call-me-maybe with more than 200 endpoints.
    package static let packetBytes = 4_096

    /// A pong later than that doesn't count.
    package static let pong: Duration = .seconds(5)
    /// A candidate is pinged again so long after its last ping.
    package static let pingAgain: Duration = .seconds(5)
    /// How long the best path is trusted after a pong.
    package static let trust: Duration = .milliseconds(6_500)
    /// Between two pings of the best path while data flows.
    package static let heartbeat: Duration = .seconds(3)
    /// A peer is active so long after its last data.
    package static let activity: Duration = .seconds(45)
    /// The source of a peer's ping is a candidate so long.
    package static let pingSource: Duration = .seconds(45)
    /// The best path is given up so long after its last pong.
    package static let giveUp: Duration = .seconds(45)
    /// Between two searches for a path better than the best.
    package static let upgrade: Duration = .seconds(60)
    /// A path of that latency or less is good enough.
    package static let goodEnough: Duration = .milliseconds(5)
    /// Between two call-me-maybes of a peer that are acted on; those between are dropped.
    package static let callMeMaybe: Duration = .seconds(1)

    /// An endpoint lives so long after the STUN answer that gave it.
    package static let stunLife: Duration = .seconds(310)
    /// Between two rounds of requests while a peer is active: a random time of these.
    package static let stunEvery: ClosedRange<Double> = 20...26
    /// A call-me-maybe needs a round that is no older.
    package static let stunFresh: Duration = .seconds(27)
    /// After the first request of a round: when those without an answer are sent again.
    package static let stunRetries: [Duration] = [.seconds(1), .seconds(3)]
    /// A call-me-maybe waits for the answers of a new round at most so long.
    package static let stunWait: Duration = .seconds(1)
    /// An answer later than that doesn't count.
    package static let stunAnswer: Duration = .seconds(6)
}

/// Why a packet was dropped.
package enum DiscoDrop: Error, Hashable, Sendable, CustomStringConvertible {
    case notDisco, unknownKey, wrongPeer, notAuthentic, short, unknownType(UInt8), directDisabled, unexpectedPong
    case callMeMaybeOverUDP, callMeMaybeTooSoon, tooManyCandidates, tooManyPings

    package var description: String {
        switch self {
        case .notDisco: "not a disco packet"
        case .unknownKey: "the disco key is of no peer"
        case .wrongPeer: "the disco key is another peer's"
        case .notAuthentic: "the box does not open"
        case .short: "short message"
        case .unknownType(let type): "unknown message type 0x\(type < 16 ? "0" : "")\(String(type, radix: 16))"
        case .directDisabled: "direct connections are disabled"
        case .unexpectedPong: "a pong to no ping, or too late"
        case .callMeMaybeOverUDP: "a call-me-maybe that did not come by a relay"
        case .callMeMaybeTooSoon: "a call-me-maybe less than \(DiscoLimits.callMeMaybe) after the last"
        case .tooManyCandidates: "the peer has \(DiscoLimits.candidates) candidates already"
        case .tooManyPings: "the peer has \(DiscoLimits.outstandingPings) unanswered pings"
        }
    }
}
