extension Connection {
    /// How long empty buffers are kept.
    private static let bufferTime: Microseconds = 1_000_000

    /// Does what is due.
    mutating func advance(now: Microseconds, context: inout StackContext) {
        if receive.delayedUntil <= now {
            receive.delayedUntil = .never
            receive.mustAcknowledge = true
        }
        if send.deadline <= now { runTimer(now: now, context: &context) }
        if houseKeepingAt <= now { keepHouse(now: now, context: &context) }
        if ending == nil, keepAliveAt <= now { keepAlive(now: now, context: context) }
    }

    private mutating func runTimer(now: Microseconds, context: inout StackContext) {
        let timer = send.timer
        send.stopTimer()
        switch timer {
        case .none: break
        case .reordering:
            let due = detectLoss(now: now, flight: send.inFlight)
            if case .recovery = send.congestion.phase {
                send.congestion.proportion(delivered: 0, inFlight: send.inFlight, madeProgress: false)
            }
            restartTimer(now: now)
            if due < send.deadline { send.start(.reordering, at: due) }
        case .tail:
            send.mustProbeTail = true
            // Until the probe is out, and again from then.
            send.start(.retransmission, at: now + send.rtt.timeout)
        case .retransmission: timedOut(now: now, context: &context)
        case .persist:
            guard countUnanswered(context) else { return }
            if send.window > 0 { send.mayBeSmall = true } else { send.mustProbe = true }
            send.rtt.backoff += 1
            send.start(.persist, at: now + send.rtt.timeout)
        }
    }

    /// Fails the connection when the peer answered nothing for too often.
    private mutating func countUnanswered(_ context: StackContext) -> Bool {
        let limits = context.limits
        let most = state == .synSent || state == .synReceived ? limits.synRetransmissions : limits.retransmissions
        guard send.unanswered < most else {
            ending = .failed(.timedOut)
            return false
        }
        send.unanswered += 1
        return true
    }

    private mutating func timedOut(now: Microseconds, context: inout StackContext) {
        guard !send.segments.isEmpty, countUnanswered(context) else { return }
        context.counters.timeouts &+= 1
        let flight = send.inFlight
        send.segments.markAllLost()
        send.duplicates = 0
        send.tailProbe = nil
        send.mustProbeTail = false
        if isSynchronized {
            // Only the first of several timeouts can be found spurious.
            if send.rtt.backoff > 0 { send.firstRepair = nil }
            send.congestion.timedOut(next: send.next, flight: flight)
        }
        send.rtt.backoff += 1
    }

    private mutating func keepAlive(now: Microseconds, context: StackContext) {
        // The retransmission timer watches already.
        guard send.segments.isEmpty, send.timer != .persist else {
            (heardAt, keepAliveProbes) = (now, 0)
            return
        }
        guard keepAliveProbes < context.limits.keepAliveProbes else {
            ending = .failed(.timedOut)
            return
        }
        keepAliveProbes += 1
        keepAliveProbedAt = now + Microseconds(context.limits.keepAliveInterval)
        send.mustProbe = true
    }

    // MARK: Memory

    /// Buffers are in use: look after them later.
    mutating func noteUse(_ now: Microseconds) {
        if houseKeepingAt == .never { houseKeepingAt = now + Self.bufferTime }
    }

    private mutating func keepHouse(now: Microseconds, context: inout StackContext) {
        houseKeepingAt = .never
        if state == .requested {
            ending = .failed(.timedOut)
            return
        }
        let isIdle = now - max(send.lastSentAt, heardAt) >= Self.bufferTime
        if isIdle, send.ring.isEmpty {
            context.budget.release(&send.ring)
            send.segments.release()
        }
        if isIdle, receive.ring.isEmpty, receive.held.isEmpty {
            context.budget.release(&receive.ring)
            receive.held.release()
        }
        if send.ring.capacity + receive.ring.capacity > 0 { noteUse(now) }
    }
}
