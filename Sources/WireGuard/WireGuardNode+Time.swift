import Sodium

/// What there is to say of a peer.
package struct PeerStatus: Equatable, Sendable {
    package enum SessionState: Sendable {
        /// No keys, and none wanted.
        case none
        /// Initiations are sent.
        case handshaking
        /// The peer began a session and has not used it yet.
        case unconfirmed
        case usable
    }

    package var key: PublicKey
    package var session: SessionState
    /// When the last handshake was completed, on the driver's clock.
    package var lastHandshake: Duration?
    /// Bytes and messages that were authentic, with handshakes.
    package var receivedBytes: UInt64
    package var receivedMessages: UInt64
    /// Bytes and messages that were made, with handshakes.
    package var sentBytes: UInt64
    package var sentMessages: UInt64
    /// Packets that wait for a session.
    package var staged: Int
}

extension WireGuardNode {
    /// When ``advance(now:)`` is to be called at the latest; nil while no peer needs it.
    package var nextDeadline: Duration? { deadlines.first?.time }

    /// Does what is due.
    package mutating func advance(now: Duration) {
        let now = tick(now)
        while let first = deadlines.first, first.time <= now {
            runTimers(first.slot, now: now)
            // Later than now, or this would not end.
            deadlines.set(first.slot, deadline(of: first.slot).map { max($0, now + .milliseconds(1)) })
        }
    }

    private mutating func runTimers(_ slot: Int, now: Duration) {
        if let attempt = peers[slot].attempt {
            if now - attempt.beganAt >= WireGuardTimes.giveUp {
                giveUp(slot)
            } else if attempt.due <= now {
                peers[slot].attempt?.isDue = true
                makeReady(slot)
            }
        }
        if let since = peers[slot].dataSent, now - since >= WireGuardTimes.noAnswer {
            peers[slot].dataSent = nil
            wantHandshake(slot, now: now)
        }
        if let since = peers[slot].dataReceived, now - since >= WireGuardTimes.keepAlive {
            peers[slot].dataReceived = nil
            if usableSession(slot, now: now) != nil {
                peers[slot].wantsKeepAlive = true
                makeReady(slot)
            }
        }
        if let due = nextKeepAlive(peers[slot]), due <= now {
            // Not again before the same time has passed, though the driver takes nothing.
            peers[slot].lastSent = now
            if usableSession(slot, now: now) != nil {
                peers[slot].wantsKeepAlive = true
                makeReady(slot)
            } else {
                wantHandshake(slot, now: now)
            }
        }
        if let since = peers[slot].lastSession, now - since >= WireGuardTimes.forget {
            forgetSessions(slot)
            note(.forgotKeys(peers[slot].id))
        }
    }

    private mutating func giveUp(_ slot: Int) {
        endAttempt(slot)
        dropStaged(slot, .gaveUp)
        note(.gaveUp(peers[slot].id))
    }

    private func nextKeepAlive(_ peer: Peer) -> Duration? {
        guard let interval = peer.keepAlive, peer.attempt == nil else { return nil }
        return peer.lastSent + interval
    }

    /// The earliest of a peer's timers. The heap may have an earlier one: each message would move it otherwise.
    private func deadline(of slot: Int) -> Duration? {
        let peer = peers[slot]
        var times: [Duration] = []
        if let attempt = peer.attempt {
            times.append(attempt.beganAt + WireGuardTimes.giveUp)
            if !attempt.isDue { times.append(attempt.due) }
        }
        if let since = peer.dataSent { times.append(since + WireGuardTimes.noAnswer) }
        if let since = peer.dataReceived { times.append(since + WireGuardTimes.keepAlive) }
        if let due = nextKeepAlive(peer) { times.append(due) }
        if let since = peer.lastSession { times.append(since + WireGuardTimes.forget) }
        return times.min()
    }

    /// nil for a peer that was removed.
    package func status(of id: PeerID, now: Duration) -> PeerStatus? {
        guard let slot = slot(of: id) else { return nil }
        let peer = peers[slot]
        let state: PeerStatus.SessionState =
            if usableSession(slot, now: now) != nil {
                .usable
            } else if peer.attempt != nil {
                .handshaking
            } else if peer.next.map({ sessions[$0].isUsable(now: now) }) ?? false {
                .unconfirmed
            } else {
                .none
            }
        return PeerStatus(
            key: peer.key, session: state, lastHandshake: peer.lastHandshake, receivedBytes: peer.receivedBytes,
            receivedMessages: peer.receivedMessages, sentBytes: peer.sentBytes, sentMessages: peer.sentMessages,
            staged: peer.staged.count)
    }

    /// Packets that wait for a session with any peer.
    package var stagedPackets: Int { stagedCount }

    /// Sources of handshake messages that are watched under load.
    package var watchedSources: Int { gate.watchedSources }
}
