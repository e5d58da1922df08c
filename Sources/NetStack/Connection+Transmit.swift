/// Segments that go out, one at a time into the driver's memory.
extension Connection {
    /// Writes the segment whose turn it is.
    /// - Returns: bytes of the packet; 0 when nothing is to be sent.
    mutating func transmit(
        into memory: UnsafeMutableRawBufferPointer, now: Microseconds, context: inout StackContext
    ) -> Int {
        switch state {
        case .free, .requested, .detached: return 0
        case .synSent, .synReceived: return transmitSYN(into: memory, now: now, context: &context)
        default: break
        }
        if send.mustProbe {
            send.mustProbe = false
            // An old number, so that it must be answered, even by a peer whose window is closed.
            return emit(.ack, at: send.unacknowledged - 1, into: memory, now: now, context: &context)
        }
        if let id = send.segments.firstLost(), send.fits(Int(send.segments[id].length)) {
            return retransmit(id, into: memory, now: now, context: &context)
        }
        if let count = transmitNew(into: memory, now: now, context: &context) { return count }
        let mustProbeTail = send.mustProbeTail
        send.mustProbeTail = false
        if mustProbeTail, !send.segments.isEmpty, !send.segments[send.segments.lastID].isSacked {
            send.tailProbe = (send.next, true)
            return retransmit(send.segments.lastID, into: memory, now: now, context: &context)
        }
        return acknowledgment(into: memory, now: now, context: &context)
    }

    private mutating func acknowledgment(
        into memory: UnsafeMutableRawBufferPointer, now: Microseconds, context: inout StackContext
    ) -> Int {
        guard receive.mustAcknowledge else { return 0 }
        return emit(.ack, at: send.next, into: memory, now: now, context: &context)
    }

    private mutating func transmitSYN(
        into memory: UnsafeMutableRawBufferPointer, now: Microseconds, context: inout StackContext
    ) -> Int {
        if send.segments.isEmpty {
            send.segments.append(.init(start: send.initial, length: 1, isSYN: true, sentAt: now))
            send.next = send.initial + 1
        } else if let id = send.segments.firstLost() {
            send.segments.markSent(id, at: now)
            context.counters.retransmissions &+= 1
        } else {
            // A challenge.
            return acknowledgment(into: memory, now: now, context: &context)
        }
        send.lastSentAt = now
        if send.timer == .none { restartTimer(now: now) }
        var header = TCPHeader(sequence: send.initial, flags: .syn)
        let isAnswer = state == .synReceived
        header.mss = UInt16(SendSide.mostSegmentBytes)
        if isAnswer {
            header.flags = [.syn, .ack]
            header.acknowledgment = receive.next
        }
        header.sackPermitted = isAnswer ? usesSACK : true
        header.windowScale = !isAnswer || receive.shift > 0 ? ReceiveSide.scale : nil
        if !isAnswer || usesTimestamps { header.timestamps = .init(value: stamp(now), echo: recentStamp) }
        header.window = receive.offer(mss: send.mss, budget: context.budget, shift: 0)
        if isAnswer { receive.noteAcknowledged() }
        return header.finish(key, payload: 0, in: memory)
    }

    private mutating func retransmit(
        _ id: Int, into memory: UnsafeMutableRawBufferPointer, now: Microseconds, context: inout StackContext
    ) -> Int {
        let segment = send.segments[id]
        send.segments.markSent(id, at: now)
        context.counters.retransmissions &+= 1
        if send.firstRepair == nil, send.congestion.canUndo { send.firstRepair = (stamp(now), segment.end) }
        send.congestion.sent(Int(segment.length))
        noteSent(now: now)
        let payload = Int(segment.length) - (segment.isFIN ? 1 : 0)
        var flags: TCPFlags = payload > 0 ? [.ack, .psh] : .ack
        if segment.isFIN { flags.insert(.fin) }
        return emit(flags, at: segment.start, payload: payload, into: memory, now: now, context: &context)
    }

    /// Sends what was never sent, as far as both windows allow.
    private mutating func transmitNew(
        into memory: UnsafeMutableRawBufferPointer, now: Microseconds, context: inout StackContext
    ) -> Int? {
        guard send.hasUnsent else {
            ranOut()
            return nil
        }
        idleRestart(now: now)
        let most = min(send.mss, IPv6Packet.mostBytes - header(.ack, at: send.next, now: now).byteCount)
        guard let count = send.newPayload(most: most) else {
            if send.timer == .none { restartTimer(now: now) }
            ranOut()
            return nil
        }
        guard send.fits(count) || send.mustProbeTail else {
            send.isLimited = true
            return nil
        }
        guard send.segments.count < context.limits.segmentsInFlight else {
            context.counters.flightLimitHits &+= 1
            return nil
        }
        if send.mustProbeTail {
            send.mustProbeTail = false
            send.tailProbe = (send.next + count, false)
        }
        let isLast = count == send.unsent
        let fin = isLast && send.finQueued
        let start = send.next
        send.segments.append(
            .init(start: start, length: UInt16(count + (fin ? 1 : 0)), isFIN: fin, sentAt: now))
        send.next += count + (fin ? 1 : 0)
        if fin { send.finSent = true }
        send.mayBeSmall = false
        if case .recovery = send.congestion.phase { send.congestion.sent(count) }
        noteSent(now: now)
        var flags: TCPFlags = .ack
        if isLast, count > 0 { flags.insert(.psh) }
        if fin { flags.insert(.fin) }
        return emit(flags, at: start, payload: count, into: memory, now: now, context: &context)
    }

    /// There is nothing that may be sent, but for what the congestion window holds back. Slow start goes on while half
    /// of its window is in use.
    private mutating func ranOut() {
        let congestion = send.congestion
        send.isLimited = congestion.isInSlowStart ? 2 * send.inFlight >= congestion.window : !send.fits(send.mss)
    }

    /// RFC 5681, 4.1.
    private mutating func idleRestart(now: Microseconds) {
        guard send.segments.isEmpty, send.lastSentAt > 0 else { return }
        let idle = now - send.lastSentAt
        if idle > send.rtt.timeout { send.congestion.idled(timeouts: Int(idle / send.rtt.timeout)) }
    }

    private mutating func noteSent(now: Microseconds) {
        send.lastSentAt = now
        noteUse(now)
        switch send.timer {
        case .none, .tail, .persist: restartTimer(now: now)
        case .reordering, .retransmission: break
        }
    }

    // MARK: Bytes

    private func header(_ flags: TCPFlags, at sequence: SequenceNumber, now: Microseconds) -> TCPHeader {
        var header = TCPHeader(sequence: sequence, flags: flags)
        header.acknowledgment = receive.next
        if usesTimestamps { header.timestamps = .init(value: stamp(now), echo: recentStamp) }
        if usesSACK, !receive.held.isEmpty || receive.duplicate != nil {
            header.sack = receive.held.blocks(after: receive.duplicate, most: usesTimestamps ? 3 : 4)
        }
        return header
    }

    private mutating func emit(
        _ flags: TCPFlags, at sequence: SequenceNumber, payload: Int = 0,
        into memory: UnsafeMutableRawBufferPointer, now: Microseconds, context: inout StackContext
    ) -> Int {
        var header = header(flags, at: sequence, now: now)
        // What was sent once goes out in the same piece.
        if header.byteCount + payload > IPv6Packet.mostBytes { header.sack = SACKBlocks() }
        let start = header.byteCount
        guard payload <= memory.count - start else { return 0 }
        let target = UnsafeMutableRawBufferPointer(rebasing: memory[start..<start + payload])
        guard payload == 0 || send.ring.copy(at: sequence - send.base, into: target) else { return 0 }
        header.window = receive.offer(mss: send.mss, budget: context.budget, shift: receive.shift)
        receive.noteAcknowledged()
        return header.finish(key, payload: payload, in: memory)
    }
}
