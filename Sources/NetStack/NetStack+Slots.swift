import IPAddresses

/// Where connections begin and end.
extension NetStack {
    /// The place of a connection; nil when it's over.
    func slot(_ id: ConnectionID) -> Int? {
        let slot = Int(id.slot)
        guard slot < connections.count, connections[slot].id == id, connections[slot].state != .free else {
            return nil
        }
        return slot
    }

    mutating func find(_ key: FlowKey) -> Int? {
        if let lastFound, lastFound.key == key { return lastFound.slot }
        guard let slot = lookup[key].map(Int.init) else { return nil }
        lastFound = (key, slot)
        return slot
    }

    /// Why there may not be a further connection; nil when there may.
    func refusal(of peer: IPAddress, isHalfOpen: Bool) -> DropReason? {
        let (limits, counts) = (context.limits, peers[peer])
        if peers.all.connections >= limits.connections { return .connectionLimit }
        if counts.connections >= limits.connectionsPerPeer { return .peerConnectionLimit }
        guard isHalfOpen else { return nil }
        if peers.all.halfOpen >= limits.halfOpen { return .halfOpenLimit }
        return counts.halfOpen >= limits.halfOpenPerPeer ? .peerHalfOpenLimit : nil
    }

    /// Begins a connection.
    mutating func begin(_ key: FlowKey, state: Connection.State, now: Microseconds) -> Int {
        let slot: Int
        if let free = freeSlots.popLast() {
            slot = Int(free)
        } else {
            slot = connections.count
            connections.append(Connection(slot: UInt32(truncatingIfNeeded: slot)))
        }
        connections[slot].begin(key, state: state, now: now, context: context)
        lookup[key] = UInt32(truncatingIfNeeded: slot)
        peers.add(1, \.connections, of: key.remote.address)
        if state == .requested {
            connections[slot].isCountedHalfOpen = true
            peers.add(1, \.halfOpen, of: key.remote.address)
        }
        noteFlow(slot)
        return slot
    }

    /// Does what a call into a connection made necessary.
    mutating func settle(_ slot: Int, now: Microseconds) {
        if connections[slot].isCountedHalfOpen, connections[slot].isSynchronized { countOpen(slot) }
        if let ending = connections[slot].ending {
            connections[slot].ending = nil
            end(slot, ending, now: now)
            return
        }
        schedule(slot)
        enqueue(slot)
    }

    private mutating func countOpen(_ slot: Int) {
        connections[slot].isCountedHalfOpen = false
        peers.add(-1, \.halfOpen, of: connections[slot].key.remote.address)
    }

    /// Timers that move later stay where they are until they ring.
    func scheduled(_ slot: Int) -> Microseconds { timers.deadline(of: slot) }

    mutating func schedule(_ slot: Int) {
        let deadline = connections[slot].deadline
        if deadline < scheduled(slot) { timers.set(slot, deadline) }
    }

    mutating func enqueue(_ slot: Int) {
        if connections[slot].receive.mustAcknowledge, !connections[slot].waitsForAcknowledgment {
            connections[slot].waitsForAcknowledgment = true
            acknowledging.append(UInt32(truncatingIfNeeded: slot))
        }
        if !connections[slot].waitsForData, connections[slot].hasWork {
            connections[slot].waitsForData = true
            sending.append(UInt32(truncatingIfNeeded: slot))
        }
    }

    private mutating func end(_ slot: Int, _ ending: Connection.Ending, now: Microseconds) {
        let id = connections[slot].id
        if case .failed(let failure) = ending {
            context.events.append(.failed(id, failure))
            return remove(slot)
        }
        if connections[slot].state != .detached {
            leaveNetwork(slot)
            if ending == .timeWait { waitOut(slot, now: now) }
        }
        if connections[slot].endSignalled {
            context.events.append(.closed(id))
            remove(slot)
        } else {
            connections[slot].detach(&context)
            timers.set(slot, .never)
        }
    }

    private mutating func waitOut(_ slot: Int, now: Microseconds) {
        let key = connections[slot].key
        let expires = now + Microseconds(context.limits.timeWait)
        let entry = TimeWaitTable.Entry(connections[slot], expires: expires)
        let removed = timeWaits.insert(key, entry, most: context.limits.timeWaits)
        context.counters.timeWaitsCutShort &+= UInt64(removed)
        if connections[slot].receive.mustAcknowledge { answer(.segment(key, entry.header(now: now))) }
    }

    private mutating func leaveNetwork(_ slot: Int) {
        let key = connections[slot].key
        if lookup[key].map(Int.init) == slot { lookup[key] = nil }
        if lastFound?.slot == slot { lastFound = nil }
    }

    /// Forgets a connection.
    mutating func remove(_ slot: Int) {
        leaveNetwork(slot)
        if connections[slot].isCountedHalfOpen { countOpen(slot) }
        peers.add(-1, \.connections, of: connections[slot].key.remote.address)
        timers.set(slot, .never)
        connections[slot].end(&context)
        freeSlots.append(UInt32(truncatingIfNeeded: slot))
    }

    /// Counts a connection's flow once in each interval of statistics.
    mutating func noteFlow(_ slot: Int) {
        guard connections[slot].countedIn != flows.interval else { return }
        connections[slot].countedIn = flows.interval
        noteFlow(.tcp, connections[slot].key)
    }

    mutating func noteFlow(_ kind: InnerProtocol, _ key: FlowKey) {
        if !flows.note(kind, key, most: context.limits.countedFlows) { context.counters.uncountedFlows &+= 1 }
    }
}
