import IPAddresses
import Sodium

/// Who sent a datagram. A driver whose peers roam sends to where the last one came from; the tailnet's does not.
package struct Authentic: Equatable, Sendable {
    package var peer: PeerID
    /// With this datagram a session became usable: the peer has just become reachable.
    package var isNewSession = false
}

/// What a datagram was.
package enum Received: Equatable, Sendable {
    /// A packet of this peer lies there in the datagram.
    case packet(Authentic, Range<Int>)
    /// It came from this peer, and there is nothing in it for the layer above: a handshake message or a keep-alive.
    case authenticated(Authentic)
    /// A cookie for our next handshake message. It does not say where the peer is.
    case cookie(PeerID)
    /// Nothing was done with it. With a peer, it came from that peer nevertheless, and its packet was not taken.
    case dropped(DropReason, Authentic? = nil)
}

extension WireGuardNode {
    /// Takes a datagram, which is decrypted where it lies and worthless afterwards.
    package mutating func receive(
        _ datagram: UnsafeMutableRawBufferPointer, from source: Source, now: Duration
    ) -> Received {
        let now = tick(now)
        let bytes = UnsafeRawBufferPointer(datagram)
        guard bytes.count >= Message.transportOverhead else { return drop(.malformed) }
        let type = Message.uint32(bytes, at: 0)
        if type == Message.transport { return receiveTransport(datagram, now: now) }
        do throws(DropReason) {
            switch type {
            case Message.initiation: return try receiveInitiation(bytes, from: source, now: now)
            case Message.response: return try receiveResponse(bytes, from: source, now: now)
            case Message.cookieReply: return try receiveCookie(bytes, now: now)
            default: throw .unknownType
            }
        } catch {
            return drop(error)
        }
    }

    private mutating func drop(_ reason: DropReason, _ sender: Authentic? = nil) -> Received {
        drops.note(reason)
        return .dropped(reason, sender)
    }

    private mutating func receiveTransport(_ datagram: UnsafeMutableRawBufferPointer, now: Duration) -> Received {
        let bytes = UnsafeRawBufferPointer(datagram)
        guard let place = places[Message.uint32(bytes, at: 4)] else { return drop(.unknownIndex) }
        let counter = Message.uint64(bytes, at: 8)
        let age = now - sessions[place].madeAt
        guard age < WireGuardTimes.sessionLife, counter < WireGuardTimes.mostMessages else {
            return drop(.deadSession)
        }
        let sealed = UnsafeMutableRawBufferPointer(rebasing: datagram[Message.transportHeader...])
        guard
            AEAD.open(
                UnsafeRawBufferPointer(sealed), into: sealed, counter: counter, key: sessions[place].receiveKey)
        else { return drop(.notAuthentic) }
        // After the seal: otherwise anyone could use up counters.
        guard sessions[place].window.accept(counter) else { return drop(.replayed) }

        let slot = sessions[place].peer
        let sender = Authentic(peer: peers[slot].id, isNewSession: peers[slot].next == place)
        if sender.isNewSession { confirm(slot, now: now) }
        noteReceived(slot, count: bytes.count)
        if sessions[place].isInitiator, age >= WireGuardTimes.renewWhenReceiving { wantHandshake(slot, now: now) }
        let end = bytes.count - AEAD.tagCount
        guard end > Message.transportHeader else { return .authenticated(sender) }
        if peers[slot].dataReceived == nil {
            peers[slot].dataReceived = now
            deadlines.lower(slot, now + WireGuardTimes.keepAlive)
        }
        let packet = UnsafeRawBufferPointer(rebasing: bytes[Message.transportHeader..<end])
        switch check(packet, from: slot) {
        case .success(let count):
            return .packet(sender, Message.transportHeader..<Message.transportHeader + count)
        case .failure(let reason):
            return drop(reason, sender)
        }
    }

    /// The peer has sent something under the next session: it becomes the current one.
    private mutating func confirm(_ slot: Int, now: Duration) {
        endSession(peers[slot].previous)
        peers[slot].previous = peers[slot].current
        peers[slot].current = peers[slot].next
        peers[slot].next = nil
        peers[slot].lastHandshake = now
        endAttempt(slot)
        if !peers[slot].staged.isEmpty { makeReady(slot) }
    }

    /// The length of an inner packet that this peer may send us.
    private mutating func check(_ packet: UnsafeRawBufferPointer, from slot: Int) -> Result<Int, DropReason> {
        guard packet[0] >> 4 == 6 else { return .failure(.notIPv6) }
        guard packet.count >= 40 else { return .failure(.wrongLength) }
        let count = 40 + (Int(packet[4]) << 8 | Int(packet[5]))
        guard count <= packet.count else { return .failure(.wrongLength) }
        let source = Self.address(packet, at: 8)
        let destination = Self.address(packet, at: 24)
        guard addresses.contains(where: { $0.low == destination.low && $0.high == destination.high }) else {
            return .failure(.notForUs)
        }
        if let seen = peers[slot].seen, seen.low == source.low, seen.high == source.high { return .success(count) }
        guard owners.owner(of: source) == slot else { return .failure(.wrongSource) }
        peers[slot].seen = source
        return .success(count)
    }

    /// - Parameter offset: at least 16 bytes before the end.
    @inline(__always)
    private static func address(_ packet: UnsafeRawBufferPointer, at offset: Int) -> IPAddress {
        IPAddress(
            high: Message.uint64(packet, at: offset).byteSwapped,
            low: Message.uint64(packet, at: offset + 8).byteSwapped)
    }

    /// Something authentic came from the peer.
    @inline(__always)
    mutating func noteReceived(_ slot: Int, count: Int) {
        peers[slot].dataSent = nil
        peers[slot].receivedBytes &+= UInt64(count)
        peers[slot].receivedMessages &+= 1
    }
}
