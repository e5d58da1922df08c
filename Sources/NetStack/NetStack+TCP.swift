import IPAddresses

extension NetStack {
    mutating func receiveTCP(_ packet: IPv6Packet, now: Microseconds) {
        var sum = Checksum(
            from: packet.source, to: packet.destination, nextHeader: packet.nextHeader, count: packet.payload.count)
        sum.add(packet.payload)
        guard sum.stored == 0 else { return context.counters.drop(.badChecksum) }
        guard let segment = TCPSegment(packet.payload) else { return context.counters.drop(.malformed) }
        let key = FlowKey(
            local: Endpoint(packet.destination, segment.destinationPort),
            remote: Endpoint(packet.source, segment.sourcePort))
        if let slot = find(key) {
            noteFlow(slot)
            let wasHandshake = connections[slot].state == .synReceived || connections[slot].state == .synSent
            connections[slot].receive(segment, now: now, context: &context)
            if wasHandshake { answerBadHandshake(slot, segment, key) }
            settle(slot, now: now)
            return
        }
        noteFlow(.tcp, key)
        if let entry = timeWaits[key], receive(segment, key, timeWait: entry, now: now) { return }
        receiveUnknown(segment, key, now: now)
    }

    /// RFC 9293, 3.10.7.3 and 3.10.7.4: a wrong acknowledgment before the connection is established is answered with
    /// RST, so that an old connection of the peer's ends.
    private mutating func answerBadHandshake(_ slot: Int, _ segment: TCPSegment, _ key: FlowKey) {
        let connection = connections[slot]
        guard connection.state == .synReceived || connection.state == .synSent, connection.ending == nil,
            segment.flags.contains(.ack), !segment.flags.contains(.rst),
            segment.acknowledgment != connection.send.initial + 1
        else { return }
        answer(.segment(key, TCPHeader(sequence: segment.acknowledgment, flags: .rst)))
    }

    /// A segment for no connection of ours.
    private mutating func receiveUnknown(_ segment: TCPSegment, _ key: FlowKey, now: Microseconds) {
        if segment.flags.contains(.rst) { return context.counters.drop(.closed) }
        guard segment.flags.intersection([.syn, .ack, .fin]) == .syn, segment.sourcePort != 0 else {
            context.counters.drop(.closed)
            return answerReset(segment, key)
        }
        if let reason = refusal(of: key.remote.address, isHalfOpen: true) { return context.counters.drop(reason) }
        let slot = begin(key, state: .requested, now: now)
        connections[slot].isPassive = true
        connections[slot].takeOptions(of: segment, now: now)
        connections[slot].houseKeepingAt = now + Microseconds(context.limits.requestTimeout)
        context.events.append(
            .connectionRequested(connections[slot].id, local: key.local, remote: key.remote))
        schedule(slot)
    }

    /// RFC 9293, 3.10.7.1.
    private mutating func answerReset(_ segment: TCPSegment, _ key: FlowKey) {
        if segment.flags.contains(.ack) {
            answer(.segment(key, TCPHeader(sequence: segment.acknowledgment, flags: .rst)))
        } else {
            answer(.segment(key, Self.refusal(after: segment.sequence + segment.length)))
        }
    }

    private static func refusal(after number: SequenceNumber) -> TCPHeader {
        TCPHeader(sequence: SequenceNumber(0), acknowledgment: number, flags: [.rst, .ack])
    }

    /// - Returns: false when the segment begins a new connection, for which the old one makes room.
    private mutating func receive(
        _ segment: TCPSegment, _ key: FlowKey, timeWait entry: TimeWaitTable.Entry, now: Microseconds
    ) -> Bool {
        // RFC 1337: RST must not end TIME_WAIT early.
        if segment.flags.contains(.rst) {
            context.counters.drop(.closed)
            return true
        }
        if segment.flags.intersection([.syn, .ack]) == .syn {
            // RFC 6191, for a peer with timestamps; else RFC 9293, 3.10.7.4.
            let isNew: Bool
            if entry.usesTimestamps, let stamp = segment.timestamps?.value {
                isNew = Int32(bitPattern: stamp &- entry.recentStamp) > 0
            } else {
                isNew = segment.sequence > entry.receiveNext
            }
            if isNew {
                timeWaits.remove(key)
                return false
            }
        }
        if segment.flags.contains(.fin) {
            timeWaits.extend(key, to: now + Microseconds(context.limits.timeWait))
        }
        if segment.length > 0 || segment.sequence != entry.receiveNext {
            answer(.segment(key, entry.header(now: now)))
        }
        return true
    }

    // MARK: Calls of the driver

    /// Takes a requested connection: the SYN is answered.
    /// - Returns: false when it's gone.
    @discardableResult
    package mutating func accept(_ id: ConnectionID, now: Duration) -> Bool {
        guard let slot = slot(id), connections[slot].state == .requested else { return false }
        connections[slot].accept()
        settle(slot, now: clock(now))
        return true
    }

    /// Answers a requested connection with RST. Nothing more is heard of the id.
    package mutating func refuse(_ id: ConnectionID) {
        guard let slot = slot(id), connections[slot].state == .requested else { return }
        answer(.segment(connections[slot].key, Self.refusal(after: connections[slot].receive.next)))
        remove(slot)
    }

    /// Opens a connection.
    /// - Parameter local: port 0, or nil, for one of our choice; nil for our first address.
    /// - Returns: nil when the limits or used ports leave no room, or the address isn't ours.
    package mutating func connect(from local: Endpoint? = nil, to remote: Endpoint, now: Duration) -> ConnectionID? {
        guard let address = local?.address ?? addresses.first, addresses.contains(address), remote.port != 0,
            !addresses.contains(remote.address), refusal(of: remote.address, isHalfOpen: false) == nil
        else { return nil }
        let now = clock(now)
        var key = FlowKey(local: Endpoint(address, local?.port ?? 0), remote: remote)
        if key.local.port == 0 {
            guard choosePort(&key) else { return nil }
        } else if lookup[key] != nil || timeWaits[key] != nil {
            return nil
        }
        let slot = begin(key, state: .synSent, now: now)
        settle(slot, now: now)
        return connections[slot].id
    }

    /// One of the dynamic ports (RFC 6335), beginning where a hash says (RFC 6056, 3.3.3).
    private mutating func choosePort(_ key: inout FlowKey) -> Bool {
        let start = UInt16(truncatingIfNeeded: context.hash(key, salt: 2))
        for _ in 0..<16_384 {
            nextPort &+= 1
            key.local.port = 49_152 | (start &+ nextPort) & 16_383
            if lookup[key] == nil, timeWaits[key] == nil { return true }
        }
        return false
    }

    /// Ends a connection with RST, or refuses it. Nothing more is heard of the id.
    package mutating func abort(_ id: ConnectionID, now: Duration) {
        guard let slot = slot(id) else { return }
        let connection = connections[slot]
        let now = clock(now)
        switch connection.state {
        case .requested: return refuse(id)
        case .free, .synSent, .detached: break
        default:
            var header = TCPHeader(sequence: connection.send.next, flags: [.rst, .ack])
            header.acknowledgment = connection.receive.next
            if connection.usesTimestamps {
                header.timestamps = .init(value: connection.stamp(now), echo: connection.recentStamp)
            }
            answer(.segment(connection.key, header))
        }
        remove(slot)
    }

    /// Ends all that a peer's address has: connections fail, and nothing is sent.
    package mutating func reset(peer: IPAddress) {
        for slot in connections.indices
        where connections[slot].state != .free && connections[slot].key.remote.address == peer {
            context.events.append(.failed(connections[slot].id, .reset))
            remove(slot)
        }
        timeWaits.removeAll { $0.remote.address == peer }
        for key in udp.removeAll(of: peer) {
            peers.add(-1, \.flows, of: peer)
            context.events.append(.flowEnded(local: key.local, remote: key.remote))
        }
    }
}
