/// Why a datagram, a packet or a peer was not taken.
package enum DropReason: Int, Error, CaseIterable, Sendable, CustomStringConvertible {
    // What comes from outside.
    case malformed, unknownType, wrongMAC, unknownIndex, unknownPeer, notAuthentic, lowOrderKey, oldTime
    case initiationTooSoon, cookieDemanded, tooManyHandshakes, tooManySources, sourceTooFast, tooManyCookieReplies
    case deadSession, replayed, notIPv6, wrongLength, notForUs, wrongSource
    // What our side wants to send.
    case noSuchPeer, tooLarge, smallBuffer, stagingFull, gaveUp, peerRemoved, cryptography
    // Peers.
    case tooManyPeers, tooManyPrefixes, tooManyEvents

    package var description: String {
        switch self {
        case .malformed: "the datagram has a wrong length"
        case .unknownType: "the datagram is no WireGuard message"
        case .wrongMAC: "the handshake message is not made for our key"
        case .unknownIndex: "no session or handshake has this index"
        case .unknownPeer: "the initiation comes from a key that belongs to no peer"
        case .notAuthentic: "the seal does not open"
        case .lowOrderKey: "the key is of low order"
        case .oldTime: "the initiation is not newer than the last one"
        case .initiationTooSoon: "the peer's last initiation is less than 20 ms ago"
        case .cookieDemanded: "under load, a handshake message without a cookie was answered with one"
        case .tooManyHandshakes: "too many handshake messages at once"
        case .tooManySources: "too many sources of handshake messages under load"
        case .sourceTooFast: "a source sends too many handshake messages under load"
        case .tooManyCookieReplies: "too many cookie replies wait to be sent"
        case .deadSession: "the session is too old, or had too many messages"
        case .replayed: "the message came before, or too late to tell"
        case .notIPv6: "the packet is not IPv6"
        case .wrongLength: "the packet's length is not that of what was sent"
        case .notForUs: "the packet's destination is not ours"
        case .wrongSource: "the packet's source does not belong to the peer"
        case .noSuchPeer: "there is no such peer any more"
        case .tooLarge: "the packet is empty, or larger than the MTU"
        case .smallBuffer: "the buffer has no room for the datagram"
        case .stagingFull: "too many packets wait for a session"
        case .gaveUp: "the peer did not answer for 90 seconds"
        case .peerRemoved: "the peer was removed while packets for it waited"
        case .cryptography: "libsodium refused"
        case .tooManyPeers: "too many peers"
        case .tooManyPrefixes: "a peer has too many prefixes"
        case .tooManyEvents: "too many events wait to be read"
        }
    }
}

/// How often each reason was met.
package struct DropCounters: Sendable {
    private var counts = [UInt64](repeating: 0, count: DropReason.allCases.count)

    package subscript(_ reason: DropReason) -> UInt64 { counts[reason.rawValue] }

    mutating func note(_ reason: DropReason, times: Int = 1) { counts[reason.rawValue] &+= UInt64(max(times, 0)) }
}
