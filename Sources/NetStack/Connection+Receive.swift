/// Segments that come in, in the order of RFC 9293, 3.10.7.
extension Connection {
    mutating func receive(_ segment: TCPSegment, now: Microseconds, context: inout StackContext) {
        switch state {
        case .free, .detached: context.counters.drop(.closed)
        case .requested: receiveRequested(segment, now: now, context: &context)
        case .synSent: receiveSynSent(segment, now: now, context: &context)
        default: receiveSynchronized(segment, now: now, context: &context)
        }
    }

    /// The driver hasn't answered yet, and so have we not.
    private mutating func receiveRequested(_ segment: TCPSegment, now: Microseconds, context: inout StackContext) {
        if segment.flags.contains(.rst) {
            // We sent nothing: its number is the SYN's own or the next.
            let distance = segment.sequence - receive.next
            if distance == 0 || distance == -1 {
                ending = .failed(.reset)
            } else {
                context.counters.drop(.outsideWindow)
            }
        } else if segment.flags.contains(.syn), !segment.flags.contains(.ack) {
            // The same again, or the peer began anew.
            takeOptions(of: segment, now: now)
        } else {
            context.counters.drop(.outsideWindow)
        }
    }

    private mutating func receiveSynSent(_ segment: TCPSegment, now: Microseconds, context: inout StackContext) {
        let acknowledges = segment.flags.contains(.ack)
        if acknowledges, segment.acknowledgment != send.initial + 1 || send.next == send.initial {
            return context.counters.drop(.badAcknowledgment)
        }
        if segment.flags.contains(.rst) {
            if acknowledges { ending = .failed(.refused) }
            return
        }
        guard segment.flags.contains(.syn) else { return context.counters.drop(.outsideWindow) }
        heardAt = now
        takeOptions(of: segment, now: now)
        receive.mustAcknowledge = true
        if acknowledges {
            establish(now: now, context: &context)
            acknowledge(segment, now: now, context: &context)
        } else {
            // Both sides dial: our SYN goes out again, with an acknowledgment.
            state = .synReceived
            send.segments.markAllLost()
        }
    }

    private mutating func establish(now: Microseconds, context: inout StackContext) {
        state = .established
        send.unanswered = 0
        context.counters.established &+= 1
        context.events.append(.established(id))
        if send.finQueued { state = .finWait1 }
    }

    private mutating func receiveSynchronized(_ segment: TCPSegment, now: Microseconds, context: inout StackContext) {
        guard checkTimestamps(segment, now: now, context: &context) else { return }
        guard receive.accepts(segment.sequence, length: segment.length) else {
            return receiveUnacceptable(segment, now: now, context: &context)
        }
        if segment.flags.contains(.rst) { return receiveReset(segment, now: now, context: &context) }
        if segment.flags.contains(.syn) { return challenge(now: now, context: &context) }
        guard segment.flags.contains(.ack) else { return context.counters.drop(.badAcknowledgment) }
        heardAt = now
        keepAliveProbes = 0
        if state == .synReceived {
            guard segment.acknowledgment > send.unacknowledged, segment.acknowledgment <= send.next else {
                return context.counters.drop(.badAcknowledgment)
            }
            // Not that of a SYN, but scaled from here on.
            send.windowSequence = segment.sequence - 1
            establish(now: now, context: &context)
        }
        guard acknowledge(segment, now: now, context: &context), ending == nil else { return }
        if !segment.payload.isEmpty || segment.flags.contains(.fin) {
            takeData(segment, now: now, context: &context)
        }
    }

    // MARK: Checks

    /// RFC 7323, 3.2 and 5.
    private mutating func checkTimestamps(
        _ segment: TCPSegment, now: Microseconds, context: inout StackContext
    ) -> Bool {
        guard usesTimestamps, !segment.flags.contains(.rst) else { return true }
        guard let timestamps = segment.timestamps else {
            context.counters.drop(.noTimestamp)
            return false
        }
        let isOlder = Int32(bitPattern: timestamps.value &- recentStamp) < 0
        // A timestamp says nothing after 24 days.
        if isOlder, now - recentStampAt < 24 * 86_400_000_000 {
            context.counters.drop(.oldTimestamp)
            if segment.length > 0 {
                receive.mustAcknowledge = true
            } else {
                challenge(now: now, context: &context)
            }
            return false
        }
        if segment.sequence <= receive.acknowledged,
            segment.sequence + segment.length >= receive.acknowledged
        {
            (recentStamp, recentStampAt) = (timestamps.value, now)
        }
        return true
    }

    private mutating func receiveUnacceptable(
        _ segment: TCPSegment, now: Microseconds, context: inout StackContext
    ) {
        context.counters.drop(.outsideWindow)
        if segment.flags.contains(.rst) { return }
        if state == .synReceived, segment.flags.contains(.syn), segment.sequence + 1 == receive.next {
            // Our answer was lost; or both sides dialled, and the peer answers ours.
            if segment.flags.contains(.ack) { receive.mustAcknowledge = true } else { send.segments.markAllLost() }
            return
        }
        guard !segment.payload.isEmpty || segment.flags.contains(.fin) else {
            return challenge(now: now, context: &context)
        }
        let end = segment.sequence + segment.payload.count
        if !segment.payload.isEmpty, end <= receive.next {
            receive.duplicate = SequenceRange(start: segment.sequence, end: end)
        }
        receive.mustAcknowledge = true
    }

    /// RFC 5961, 3.2: only the very next number resets; the end of what came out of order is as hard to guess.
    private mutating func receiveReset(_ segment: TCPSegment, now: Microseconds, context: inout StackContext) {
        guard segment.sequence == receive.next || segment.sequence == receive.held.end else {
            return challenge(now: now, context: &context)
        }
        // All was said already when only the acknowledgment of our FIN is missing.
        ending = state == .lastAck || state == .closing ? .closed : .failed(state == .synReceived ? .refused : .reset)
        if isPassive, state == .synReceived { ending = .failed(.reset) }
    }

    // MARK: Data

    private mutating func takeData(_ segment: TCPSegment, now: Microseconds, context: inout StackContext) {
        switch state {
        case .established, .finWait1, .finWait2: break
        // The peer's FIN came; what follows it has no meaning (RFC 9293, 3.10.7.4).
        default:
            receive.mustAcknowledge = true
            return
        }
        let reason = receive.take(
            segment, now: now, mss: send.mss, limits: context.limits, budget: &context.budget)
        if let reason { context.counters.drop(reason) }
        noteUse(now)
        if !receive.ring.isEmpty, !readableSignalled {
            readableSignalled = true
            context.events.append(.readable(id))
        }
        guard receive.hasEnded else { return }
        signalEnd(&context)
        switch state {
        case .established: state = .closeWait
        case .finWait1: state = .closing
        case .finWait2: ending = .timeWait
        default: break
        }
    }

    /// Tells of the end of input once all before it was read.
    mutating func signalEnd(_ context: inout StackContext) {
        guard receive.hasEnded, receive.ring.isEmpty, !endSignalled else { return }
        endSignalled = true
        context.events.append(.endOfInput(id))
    }
}
