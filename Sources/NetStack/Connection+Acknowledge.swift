/// Acknowledgments that come in.
extension Connection {
    /// What one acknowledgment told.
    private struct News {
        var delivered = 0
        var sample: Microseconds?
        var sampleSentAt: Microseconds = .min
        var sawDuplicate = false
    }

    /// - Returns: false when the segment is to be dropped.
    @discardableResult
    mutating func acknowledge(_ segment: TCPSegment, now: Microseconds, context: inout StackContext) -> Bool {
        let number = segment.acknowledgment
        // RFC 5961, 5.2.
        guard number <= send.next, number >= send.unacknowledged - send.widestWindow else {
            context.counters.drop(.badAcknowledgment)
            challenge(now: now, context: &context)
            return false
        }
        let news = updateScoreboard(segment, now: now)
        let progress = number - send.unacknowledged
        let flight = send.inFlight
        if progress > 0 {
            advance(to: number, segment, news: news, now: now, context: &context)
        } else if progress == 0 {
            noteDuplicate(segment)
        }
        updateWindow(segment, madeProgress: progress > 0)
        let due = detectLoss(now: now, flight: flight)
        repair(news, madeProgress: progress > 0, flight: flight, now: now)
        if progress > 0 || send.window == 0 || send.segments.isEmpty { send.unanswered = 0 }
        // A timer that waits for a loss to show isn't put off by acknowledgments that show none.
        if progress > 0 || news.delivered > 0 || send.timer == .none || send.timer == .persist {
            restartTimer(now: now)
        }
        if due < send.deadline { send.start(.reordering, at: due) }
        if send.finSent, send.unacknowledged == send.next { finAcknowledged() }
        return true
    }

    // MARK: The scoreboard

    private mutating func updateScoreboard(_ segment: TCPSegment, now: Microseconds) -> News {
        var news = News()
        let before = send.segments.bytes - send.segments.sackedBytes
        while let sent = send.segments.popFirst(upTo: segment.acknowledgment) {
            if !sent.isSacked { arrived(sent, segment, now: now, news: &news) }
        }
        if usesSACK, segment.sack.count > 0 { takeBlocks(of: segment, now: now, news: &news) }
        news.delivered = before - (send.segments.bytes - send.segments.sackedBytes)
        return news
    }

    private mutating func takeBlocks(of segment: TCPSegment, now: Microseconds, news: inout News) {
        for index in 0..<segment.sack.count {
            let block = segment.sack[index]
            guard block.start < block.end, block.end <= send.next else { continue }
            // RFC 2883: the first block may tell of data that came twice.
            if index == 0,
                block.end <= segment.acknowledgment
                    || segment.sack.count > 1 && segment.sack[1].contains(block)
            {
                news.sawDuplicate = true
                continue
            }
            guard block.start >= segment.acknowledgment, block.start >= send.unacknowledged else { continue }
            // The closure may not touch the scoreboard.
            var loss = send.loss
            let (least, uses, offset) = (send.rtt.minimum, usesTimestamps, stampOffset)
            send.segments.markSacked(block) { sent in
                let isOlder =
                    uses && sent.isRetransmitted
                    && Self.echo(segment, isOlderThan: Self.stamp(sent.sentAt, offset: offset))
                loss.arrived(sent, now: now, leastRoundTrip: least, echoIsOlder: isOlder)
                if !sent.isRetransmitted || uses && !isOlder, sent.sentAt > news.sampleSentAt {
                    (news.sample, news.sampleSentAt) = (now - sent.sentAt, sent.sentAt)
                }
            }
            send.loss = loss
        }
        if news.sawDuplicate { send.loss.sawDuplicate(acknowledged: segment.acknowledgment, next: send.next) }
    }

    private static func echo(_ segment: TCPSegment, isOlderThan stamp: UInt32) -> Bool {
        guard let echo = segment.timestamps?.echo else { return false }
        return Int32(bitPattern: echo &- stamp) < 0
    }

    private mutating func arrived(
        _ sent: SentSegments.Segment, _ segment: TCPSegment, now: Microseconds, news: inout News
    ) {
        let isOlder =
            usesTimestamps && sent.isRetransmitted
            && Self.echo(segment, isOlderThan: stamp(sent.sentAt))
        send.loss.arrived(sent, now: now, leastRoundTrip: send.rtt.minimum, echoIsOlder: isOlder)
        // An echo tells which of several transmissions came (RFC 7323, 4): repairs are measured, too. Without, the
        // timeout would stay as long as it has become until something new is sent.
        if !sent.isRetransmitted || usesTimestamps && !isOlder, sent.sentAt >= news.sampleSentAt {
            (news.sample, news.sampleSentAt) = (now - sent.sentAt, sent.sentAt)
        }
    }

    // MARK: Progress

    private mutating func advance(
        to number: SequenceNumber, _ segment: TCPSegment, news: News, now: Microseconds,
        context: inout StackContext
    ) {
        let progress = number - send.unacknowledged
        if let repair = send.firstRepair, number >= repair.end {
            send.firstRepair = nil
            if usesTimestamps, Self.echo(segment, isOlderThan: repair.stamp), send.congestion.canUndo {
                send.congestion.undo()
                send.segments.undoLost()
            } else {
                send.congestion.confirm()
            }
        }
        send.unacknowledged = number
        send.duplicates = 0
        // SYN and FIN are not in the buffer.
        let bytes = min(send.ring.count, number - send.base)
        if bytes > 0 {
            send.ring.drop(bytes)
            send.base += bytes
            noteUse(now)
        }
        if let sample = news.sample {
            let isFirst = number > send.roundEnd
            if isFirst { send.roundEnd = send.next }
            send.rtt.add(sample, now: now, isFirstOfRound: isFirst)
        }
        if news.sample != nil || send.segments.isEmpty { send.rtt.backoff = 0 }
        decideTailProbe(segment, news)
        if let until = send.congestion.repairsUntil, number >= until {
            send.congestion.leaveRepair()
            send.firstRepair = nil
            send.loss.recovered()
        }
        send.congestion.acknowledged(
            progress, upTo: number, next: send.next, sample: news.sample, roundTrip: send.rtt.smoothed ?? 0,
            isLimited: send.isLimited, now: now, most: context.limits.sendBytes)
        growSendLimit(&context)
    }

    /// RFC 8985, 7.4.2.
    private mutating func decideTailProbe(_ segment: TCPSegment, _ news: News) {
        guard let probe = send.tailProbe, segment.acknowledgment >= probe.end else { return }
        if probe.isRetransmission, !news.sawDuplicate {
            // Both arrived, or only one: the next acknowledgment tells.
            guard segment.acknowledgment > probe.end else { return }
            send.congestion.reduceOnce(next: send.next, flight: send.inFlight)
        }
        send.tailProbe = nil
    }

    /// The buffer holds what is on its way, and as much again.
    private mutating func growSendLimit(_ context: inout StackContext) {
        if send.limit < context.limits.sendBytes {
            send.limit = min(context.limits.sendBytes, max(send.limit, 2 * send.congestion.window))
        }
        guard send.wantsWritable, send.ring.count <= send.limit - send.limit / 4, !send.finQueued else { return }
        send.wantsWritable = false
        context.events.append(.writable(id))
    }

    private mutating func noteDuplicate(_ segment: TCPSegment) {
        if let probe = send.tailProbe, probe.isRetransmission, segment.acknowledgment == probe.end,
            segment.payload.isEmpty
        {
            send.tailProbe = nil
        }
        // RFC 5681, 2.
        guard !usesSACK, segment.payload.isEmpty, !segment.flags.contains(.fin), !send.segments.isEmpty,
            Int(segment.window) << Int(send.shift) == send.window
        else { return }
        send.duplicates = min(send.duplicates + 1, send.segments.count)
    }

    /// The window counts from what is acknowledged. So progress brings its own along even with a segment that is older
    /// than the last one that did, as a retransmission is: with the old one, its end would have moved on.
    private mutating func updateWindow(_ segment: TCPSegment, madeProgress: Bool) {
        let isNewer =
            madeProgress || segment.sequence > send.windowSequence
            || segment.sequence == send.windowSequence && segment.acknowledgment >= send.windowAcknowledgment
        guard isNewer, segment.acknowledgment >= send.unacknowledged else { return }
        // That of a SYN isn't scaled.
        send.window = Int(segment.window) << Int(segment.flags.contains(.syn) ? 0 : send.shift)
        send.widestWindow = max(send.widestWindow, send.window)
        (send.windowSequence, send.windowAcknowledgment) = (segment.sequence, segment.acknowledgment)
        if send.window > 0, send.timer == .persist, send.newPayload(most: send.mss) != nil {
            send.stopTimer()
            send.rtt.backoff = 0
        }
    }

    // MARK: Repair

    private mutating func repair(_ news: News, madeProgress: Bool, flight: Int, now: Microseconds) {
        if !usesSACK, send.segments.count > 0 {
            // NewReno (RFC 6582): three duplicates, then each partial acknowledgment, tell of the first segment.
            let isRepairing: Bool
            if case .recovery = send.congestion.phase { isRepairing = true } else { isRepairing = false }
            if send.duplicates >= 3 && send.congestion.isOpen || isRepairing && madeProgress {
                send.segments.markLost(send.segments.first)
                send.congestion.enterRecovery(next: send.next, flight: max(flight, send.mss))
            }
        }
        if case .recovery = send.congestion.phase {
            let delivered = news.delivered + (madeProgress || usesSACK ? 0 : send.mss)
            send.congestion.proportion(delivered: delivered, inFlight: send.inFlight, madeProgress: madeProgress)
        }
    }

    /// - Parameter flight: bytes in flight before.
    /// - Returns: when more may be lost, if nothing comes before.
    mutating func detectLoss(now: Microseconds, flight: Int) -> Microseconds {
        guard usesSACK, !send.segments.isEmpty, isSynchronized else { return .never }
        let due = send.loss.detect(
            &send.segments, isRepairing: !send.congestion.isOpen, rtt: send.rtt, now: now)
        if send.segments.lostBytes > 0 { send.congestion.enterRecovery(next: send.next, flight: flight) }
        return due
    }

    mutating func restartTimer(now: Microseconds) {
        send.restartTimer(now: now, canProbe: usesSACK && isSynchronized)
    }

    private mutating func finAcknowledged() {
        switch state {
        case .finWait1: state = .finWait2
        case .closing: ending = .timeWait
        case .lastAck: ending = .closed
        default: break
        }
    }
}
