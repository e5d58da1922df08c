import Sodium

/// What became of a packet to be sent.
package enum Sealed: Equatable, Sendable {
    /// The buffer begins with a datagram of so many bytes: send it to the peer.
    case datagram(Int)
    /// The packet was copied: it comes out of ``WireGuardNode/nextTransmission(into:now:)`` when there is a session.
    case staged
    case dropped(DropReason)
}

/// A datagram of the node's own.
package struct Transmission: Equatable, Sendable {
    package enum Destination: Equatable, Sendable {
        case peer(PeerID)
        /// To where a handshake message came from.
        case source(Source)
    }

    package var destination: Destination
    /// Bytes at the beginning of the buffer.
    package var count: Int
}

extension WireGuardNode {
    /// Where a packet lies in the buffer for ``seal(in:packetCount:for:now:)``.
    package static var packetOffset: Int { Message.transportHeader }

    /// Bytes that a buffer for ``nextTransmission(into:now:)`` must have.
    package var transmissionCount: Int { max(limits.mtu + Message.transportOverhead, Message.initiationCount) }

    /// Whether ``nextTransmission(into:now:)`` may have something: to be looked at after each call.
    package var hasTransmissions: Bool { !ready.isEmpty || !cookieReplies.isEmpty }

    /// Seals a packet for a peer where it lies: it begins at ``packetOffset`` of the buffer, which has room for the padding to a
    /// multiple of 16 (but not past the MTU) and 16 bytes behind that.
    package mutating func seal(
        in buffer: UnsafeMutableRawBufferPointer, packetCount: Int, for id: PeerID, now: Duration
    ) -> Sealed {
        let now = tick(now)
        guard let slot = slot(of: id) else { return refuse(.noSuchPeer) }
        guard packetCount > 0, packetCount <= limits.mtu else { return refuse(.tooLarge) }
        guard buffer.count >= Message.transportHeader + packetCount else { return refuse(.smallBuffer) }
        // After those that wait already.
        guard peers[slot].staged.isEmpty, let place = usableSession(slot, now: now) else {
            let start = Message.transportHeader
            return stage(UnsafeRawBufferPointer(rebasing: buffer[start..<start + packetCount]), slot, now: now)
        }
        guard buffer.count >= padded(packetCount) + Message.transportOverhead else { return refuse(.smallBuffer) }
        guard let count = seal(in: buffer, packetCount, slot, place, now: now) else { return refuse(.cryptography) }
        return .datagram(count)
    }

    private mutating func refuse(_ reason: DropReason) -> Sealed {
        drops.note(reason)
        return .dropped(reason)
    }

    private mutating func stage(_ packet: UnsafeRawBufferPointer, _ slot: Int, now: Duration) -> Sealed {
        if usableSession(slot, now: now) == nil { wantHandshake(slot, now: now) }
        guard peers[slot].staged.count < limits.stagedPerPeer, stagedCount < limits.staged else {
            return refuse(.stagingFull)
        }
        peers[slot].staged.append(Array(packet))
        stagedCount += 1
        return .staged
    }

    /// The place of the session that may be sent under.
    @inline(__always)
    func usableSession(_ slot: Int, now: Duration) -> Int? {
        guard let place = peers[slot].current, sessions[place].isUsable(now: now) else { return nil }
        return place
    }

    @inline(__always)
    private func padded(_ count: Int) -> Int { min((count + 15) & ~15, max(limits.mtu, count)) }

    /// - Parameter buffer: with room for all of it.
    private mutating func seal(
        in buffer: UnsafeMutableRawBufferPointer, _ packetCount: Int, _ slot: Int, _ place: Int, now: Duration
    ) -> Int? {
        let start = Message.transportHeader
        let end = start + padded(packetCount)
        let counter = sessions[place].counter
        // Whatever comes of it: no counter is used twice.
        sessions[place].counter = counter &+ 1
        for index in start + packetCount..<end { buffer[index] = 0 }
        buffer.storeBytes(of: Message.transport.littleEndian, toByteOffset: 0, as: UInt32.self)
        buffer.storeBytes(of: sessions[place].remoteIndex.littleEndian, toByteOffset: 4, as: UInt32.self)
        buffer.storeBytes(of: counter.littleEndian, toByteOffset: 8, as: UInt64.self)
        let isSealed = AEAD.seal(
            UnsafeRawBufferPointer(rebasing: buffer[start..<end]),
            into: UnsafeMutableRawBufferPointer(rebasing: buffer[start..<end + AEAD.tagCount]), counter: counter,
            key: sessions[place].sendKey)
        guard isSealed else { return nil }
        noteSent(slot, count: end + AEAD.tagCount, now: now)
        peers[slot].dataReceived = nil
        peers[slot].wantsKeepAlive = false
        if packetCount > 0, peers[slot].dataSent == nil {
            peers[slot].dataSent = now
            deadlines.lower(slot, now + WireGuardTimes.noAnswer)
        }
        if counter >= WireGuardTimes.renewAfterMessages
            || sessions[place].isInitiator && now - sessions[place].madeAt >= WireGuardTimes.renewWhenSending
        {
            wantHandshake(slot, now: now)
        }
        return end + AEAD.tagCount
    }

    @inline(__always)
    private mutating func noteSent(_ slot: Int, count: Int, now: Duration) {
        peers[slot].lastSent = now
        peers[slot].sentBytes &+= UInt64(count)
        peers[slot].sentMessages &+= 1
    }

    // MARK: Transmissions of the node's own

    mutating func makeReady(_ slot: Int) {
        guard !peers[slot].isReady else { return }
        peers[slot].isReady = true
        ready.append(slot)
    }

    /// The next datagram to be sent, at the beginning of the buffer: handshake messages, packets that waited for a
    /// session, keep-alives, cookies. nil when there is none, and for a buffer below ``transmissionCount``.
    package mutating func nextTransmission(
        into buffer: UnsafeMutableRawBufferPointer, now: Duration
    ) -> Transmission? {
        let now = tick(now)
        guard buffer.count >= transmissionCount else { return nil }
        if let reply = cookieReplies.popFirst() {
            buffer.copyBytes(from: reply.bytes)
            return Transmission(destination: .source(reply.source), count: reply.bytes.count)
        }
        while let slot = ready.first {
            if let count = transmit(slot, into: buffer, now: now) {
                return Transmission(destination: .peer(peers[slot].id), count: count)
            }
            _ = ready.popFirst()
            peers[slot].isReady = false
        }
        return nil
    }

    private mutating func transmit(_ slot: Int, into buffer: UnsafeMutableRawBufferPointer, now: Duration) -> Int? {
        if let response = peers[slot].response {
            peers[slot].response = nil
            return transmit(response, slot, into: buffer, now: now)
        }
        let place = usableSession(slot, now: now)
        if place == nil, !peers[slot].staged.isEmpty { wantHandshake(slot, now: now) }
        if peers[slot].attempt?.isDue == true {
            if let message = initiation(slot, now: now) { return transmit(message, slot, into: buffer, now: now) }
            drops.note(.cryptography)
        }
        guard let place else { return nil }
        while let packet = peers[slot].staged.popFirst() {
            stagedCount -= 1
            UnsafeMutableRawBufferPointer(rebasing: buffer[Message.transportHeader...]).copyBytes(from: packet)
            if let count = seal(in: buffer, packet.count, slot, place, now: now) { return count }
            drops.note(.cryptography)
        }
        guard peers[slot].wantsKeepAlive else { return nil }
        peers[slot].wantsKeepAlive = false
        return seal(in: buffer, 0, slot, place, now: now)
    }

    private mutating func transmit(
        _ message: [UInt8], _ slot: Int, into buffer: UnsafeMutableRawBufferPointer, now: Duration
    ) -> Int {
        buffer.copyBytes(from: message)
        noteSent(slot, count: message.count, now: now)
        return message.count
    }
}
