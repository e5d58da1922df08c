import Sodium

extension WireGuardNode {
    /// Wants a session with the peer, unless that is under way.
    mutating func wantHandshake(_ slot: Int, now: Duration) {
        guard peers[slot].attempt == nil else { return }
        var due = max(now, peers[slot].initiationAllowed ?? now)
        // The peer has just begun a session, and will use it as soon as it has our answer.
        if let next = peers[slot].next { due = max(due, sessions[next].madeAt + WireGuardTimes.retry) }
        peers[slot].attempt = Peer.Attempt(beganAt: now, due: due)
        deadlines.lower(slot, min(due, now + WireGuardTimes.giveUp))
        if due <= now {
            peers[slot].attempt?.isDue = true
            makeReady(slot)
        }
    }

    mutating func endAttempt(_ slot: Int) {
        if let index = peers[slot].attempt?.sent?.index { initiations[index] = nil }
        peers[slot].attempt = nil
        // It rested meanwhile.
        if let keepAlive = peers[slot].keepAlive { deadlines.lower(slot, peers[slot].lastSent + keepAlive) }
    }

    /// The initiation that is due.
    mutating func initiation(_ slot: Int, now: Duration) -> [UInt8]? {
        peers[slot].attempt?.isDue = false
        let jitter = Duration.milliseconds(Int64(random.next(upperBound: 334 as UInt64)))
        let due = now + WireGuardTimes.retry + jitter
        peers[slot].attempt?.due = due
        peers[slot].initiationAllowed = due
        deadlines.lower(slot, due)
        // The peer takes only times that rise, and our clock may have been set back.
        let time = max(wall().coarse, peers[slot].lastTimeSent?.following ?? wall().coarse)
        guard let ephemeral = try? PrivateKey(random: &random) else { return nil }
        let index = newIndex()
        let made = Noise.initiation(
            from: key.publicKey, to: peers[slot].key, statics: peers[slot].statics, ephemeral: ephemeral, index: index,
            time: time)
        guard let (message, state) = made else { return nil }
        peers[slot].lastTimeSent = time
        if let old = peers[slot].attempt?.sent?.index { initiations[old] = nil }
        initiations[index] = slot
        peers[slot].attempt?.sent = Peer.Initiation(index: index, ephemeral: ephemeral, state: state)
        return withMACs(message, slot, index: index, now: now)
    }

    private mutating func withMACs(_ message: [UInt8], _ slot: Int, index: UInt32, now: Duration) -> [UInt8] {
        if let cookie = peers[slot].cookie, now - cookie.receivedAt >= WireGuardTimes.cookieLife {
            peers[slot].cookie = nil
        }
        var message = message
        let mac = Message.appendMACs(to: &message, receiver: peers[slot].key, cookie: peers[slot].cookie?.value)
        peers[slot].lastMAC1 = (mac, index)
        return message
    }

    // MARK: What comes in

    /// Throws unless the message is worth its Diffie-Hellman operations.
    private mutating func admit(_ message: UnsafeRawBufferPointer, from source: Source, now: Duration)
        throws(DropReason)
    {
        switch gate.judge(message, from: source, now: now) {
        case .take: return
        case .drop(let reason): throw reason
        case .demandCookie:
            guard cookieReplies.count < limits.cookieReplies else { throw .tooManyCookieReplies }
            let reply = gate.reply(to: message, from: source, key: cookieKey, random: &random, now: now)
            guard let reply else { throw .cryptography }
            cookieReplies.append((source, reply))
            throw .cookieDemanded
        }
    }

    mutating func receiveInitiation(
        _ bytes: UnsafeRawBufferPointer, from source: Source, now: Duration
    ) throws(DropReason) -> Received {
        guard bytes.count == Message.initiationCount else { throw .malformed }
        guard Message.hasMAC1(bytes, key: mac1Key) else { throw .wrongMAC }
        try admit(bytes, from: source, now: now)
        let message = Array(bytes)
        var (peer, itsEphemeral, state) = try Noise.initiator(of: message, own: key)
        guard let slot = slot(of: peer) else { throw .unknownPeer }
        guard let time = state.time(of: message, statics: peers[slot].statics) else { throw .notAuthentic }
        if let last = peers[slot].lastTimeReceived, time <= last { throw .oldTime }
        if let last = peers[slot].lastInitiationReceived, now - last < WireGuardTimes.initiationInterval {
            throw .initiationTooSoon
        }
        let receiver = Message.uint32(bytes, at: 4)
        guard let ephemeral = try? PrivateKey(random: &random) else { throw .cryptography }
        let index = newIndex()
        let response = state.response(
            to: peer, itsEphemeral: itsEphemeral, preshared: peers[slot].preshared, ephemeral: ephemeral, index: index,
            receiver: receiver)
        guard let response else { throw .lowOrderKey }
        peers[slot].lastTimeReceived = time
        peers[slot].lastInitiationReceived = now
        let keys = state.transportKeys()
        endSession(peers[slot].next)
        peers[slot].next = add(
            Session(
                peer: slot, index: index, remoteIndex: receiver, sendKey: keys.responder, receiveKey: keys.initiator,
                madeAt: now, isInitiator: false))
        peers[slot].response = withMACs(response, slot, index: index, now: now)
        noteReceived(slot, count: bytes.count)
        noteSession(slot, now: now)
        makeReady(slot)
        return .authenticated(Authentic(peer: peers[slot].id))
    }

    mutating func receiveResponse(
        _ bytes: UnsafeRawBufferPointer, from source: Source, now: Duration
    ) throws(DropReason) -> Received {
        guard bytes.count == Message.responseCount else { throw .malformed }
        guard Message.hasMAC1(bytes, key: mac1Key) else { throw .wrongMAC }
        let index = Message.uint32(bytes, at: 8)
        guard let slot = initiations[index], let sent = peers[slot].attempt?.sent else { throw .unknownIndex }
        try admit(bytes, from: source, now: now)
        var state = sent.state
        try state.take(
            response: Array(bytes), own: key, ephemeral: sent.ephemeral, preshared: peers[slot].preshared)
        let keys = state.transportKeys()
        endAttempt(slot)
        endSession(peers[slot].previous)
        peers[slot].previous = peers[slot].current
        // Where the peer has begun a session at the same time, that one stays the next one: the peer may use either.
        peers[slot].current = add(
            Session(
                peer: slot, index: index, remoteIndex: Message.uint32(bytes, at: 4), sendKey: keys.initiator,
                receiveKey: keys.responder, madeAt: now, isInitiator: true))
        noteReceived(slot, count: bytes.count)
        noteSession(slot, now: now)
        peers[slot].lastHandshake = now
        // The peer may not send before it has received something.
        peers[slot].wantsKeepAlive = true
        makeReady(slot)
        return .authenticated(Authentic(peer: peers[slot].id, isNewSession: true))
    }

    mutating func receiveCookie(_ bytes: UnsafeRawBufferPointer, now: Duration) throws(DropReason) -> Received {
        guard bytes.count == Message.cookieReplyCount else { throw .malformed }
        let index = Message.uint32(bytes, at: 4)
        guard let slot = initiations[index] ?? places[index].map({ sessions[$0].peer }),
            let last = peers[slot].lastMAC1, last.index == index
        else { throw .unknownIndex }
        let cookie = HandshakeGate.open(
            reply: Array(bytes), mac1: last.mac, key: Message.cookieKey(peers[slot].key))
        guard let cookie else { throw .notAuthentic }
        peers[slot].lastMAC1 = nil
        peers[slot].cookie = (cookie, now)
        return .cookie(peers[slot].id)
    }

    private mutating func noteSession(_ slot: Int, now: Duration) {
        peers[slot].lastSession = now
        deadlines.lower(slot, now + WireGuardTimes.forget)
    }
}
