/// Why a packet, or a part of it, was dropped.
package enum DropReason: Int, Sendable, CaseIterable, CustomStringConvertible {
    case malformed, notForUs, badSource, unknownProtocol, badChecksum, unknownMessage
    case badFragment, fragmentLimit, fragmentTimeout
    case connectionLimit, peerConnectionLimit, halfOpenLimit, peerHalfOpenLimit
    case flowLimit, peerFlowLimit, answerLimit, datagramLimit, unreachableLimit
    case outsideWindow, oldTimestamp, noTimestamp, badAcknowledgment, challengeLimit
    case outOfOrderLimit, bufferLimit, closed

    package var description: String {
        switch self {
        case .malformed: "not a whole IPv6 packet, or lengths that contradict each other"
        case .notForUs: "sent to an address that isn't ours"
        case .badSource: "sent from an address that no peer can have"
        case .unknownProtocol: "a next header that isn't TCP, UDP, ICMPv6 or TSMP"
        case .badFragment: "a fragment that contradicts its packet's others, or itself"
        case .fragmentLimit: "a packet in fragments that made room for another"
        case .fragmentTimeout: "a packet whose other fragments did not come in time"
        case .badChecksum: "a wrong checksum"
        case .unknownMessage: "an ICMPv6 or TSMP message that needs no answer"
        case .connectionLimit: "a SYN beyond the limit of connections"
        case .peerConnectionLimit: "a SYN beyond a peer's limit of connections"
        case .halfOpenLimit: "a SYN beyond the limit of half-open connections"
        case .peerHalfOpenLimit: "a SYN beyond a peer's limit of half-open connections"
        case .flowLimit: "a datagram beyond the limit of UDP flows"
        case .peerFlowLimit: "a datagram beyond a peer's limit of UDP flows"
        case .answerLimit: "an answer beyond those that wait to be sent"
        case .datagramLimit: "a datagram beyond the bytes that wait"
        case .unreachableLimit: "a datagram to a closed port, beyond those that are answered in a second"
        case .outsideWindow: "a segment outside of the receive window"
        case .oldTimestamp: "a segment with a timestamp of the past (PAWS)"
        case .noTimestamp: "a segment without the timestamp that was agreed on"
        case .badAcknowledgment: "an acknowledgment of what was never sent"
        case .challengeLimit: "a segment whose challenge would be one too many"
        case .outOfOrderLimit: "data out of order beyond the limit"
        case .bufferLimit: "data that found no buffer"
        case .closed: "a segment for a connection that takes none"
        }
    }
}

/// What the stack did since it was made.
package struct NetStackCounters: Sendable, Equatable {
    private var drops = [UInt64](repeating: 0, count: DropReason.allCases.count)
    /// Connections that became established.
    package var established: UInt64 = 0
    /// Segments sent again, for whatever cause.
    package var retransmissions: UInt64 = 0
    /// Retransmission timeouts.
    package var timeouts: UInt64 = 0
    /// Entries of TIME_WAIT that made room before their time.
    package var timeWaitsCutShort: UInt64 = 0
    /// Times that a connection waited with ``NetStackLimits/segmentsInFlight``.
    package var flightLimitHits: UInt64 = 0
    /// Flows that statistics did not tell apart.
    package var uncountedFlows: UInt64 = 0

    package subscript(reason: DropReason) -> UInt64 { drops[reason.rawValue] }
    /// What was dropped, by cause.
    package var causes: [(cause: String, count: UInt64)] { DropReason.allCases.map { ("\($0)", self[$0]) } }
    package var allDrops: UInt64 { drops.reduce(0, &+) }

    mutating func drop(_ reason: DropReason) { drops[reason.rawValue] &+= 1 }
}
