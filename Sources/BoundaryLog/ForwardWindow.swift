import AgentProto
import DequeModule

/// Decides which batches are sent when: those of one session one after the other, sessions in parallel. Batches in,
/// calls out; no I/O.
///
/// For a session that has fallen behind (``BoundaryLimits/mergeFrom``) several batches are sent in one call:
/// otherwise a slow link would carry one batch in each round trip.
package struct ForwardWindow: Sendable {
    /// A batch on its way.
    package struct Item: Sendable {
        package var id: Int64
        package var request: Coder_Agent_V2_ReportBoundaryLogsRequest
        package var bytes: Int
        var refusals = 0

        package init(id: Int64, request: Coder_Agent_V2_ReportBoundaryLogsRequest, bytes: Int) {
            (self.id, self.request, self.bytes) = (id, request, bytes)
        }

        fileprivate func merges(with other: Item) -> Bool {
            request.confinedProcessName == other.request.confinedProcessName && refusals == 0 && other.refusals == 0
                && request.unknownFields.data.isEmpty && other.request.unknownFields.data.isEmpty
        }
    }

    /// A call to make.
    package struct Call: Sendable {
        package var session: String
        package var request: Coder_Agent_V2_ReportBoundaryLogsRequest
        package var batches: Int
    }

    private struct Lane {
        var pending: Deque<Item> = []
        var underWay: [Item] = []
        /// Items at the front that are sent alone, because they were refused in one call.
        var alone = 0
        /// Whether the item under way is one of those.
        var sentAlone = false
        var failures = 0
    }

    private let backoff: @Sendable (Int) -> Duration
    private var lanes: [String: Lane] = [:]
    /// Sessions with something to send and no call under way, first come first.
    private var ready: Deque<String> = []
    /// Sessions that wait after a failure.
    private var waiting: [String: Duration] = [:]
    /// The items from the first that is not done on, in order.
    private var outstanding: Deque<(id: Int64, done: Bool)> = []
    /// Batches that are not done.
    package private(set) var batches = 0
    package private(set) var bytes = 0
    private var doneThrough: Int64?

    /// - Parameter backoff: how long to wait after so many failures in a row (from 1).
    package init(backoff: @escaping @Sendable (Int) -> Duration) { self.backoff = backoff }

    /// Whether more may be read from the queue.
    package var hasRoom: Bool {
        batches < BoundaryLimits.windowBatches && bytes < BoundaryLimits.windowBytes
            && outstanding.count < BoundaryLimits.windowSpan
    }

    /// The batch up to which everything is done; nil when that has not changed.
    package mutating func takeDone() -> Int64? {
        defer { doneThrough = nil }
        return doneThrough
    }

    /// When the next waiting session is due.
    package var nextDue: Duration? { waiting.values.min() }

    /// Adds the next batch of the queue.
    package mutating func admit(_ item: Item) {
        outstanding.append((item.id, false))
        batches += 1
        bytes += item.bytes
        let session = item.request.sessionID
        let isNew = lanes[session] == nil
        lanes[session, default: Lane()].pending.append(item)
        if isNew { ready.append(session) }
    }

    /// Passes over a batch that cannot be sent.
    package mutating func skip(_ id: Int64) {
        outstanding.append((id, true))
        settle()
    }

    /// The next call to make, if any session is ready.
    package mutating func next(now: Duration) -> Call? {
        for (session, due) in waiting where due <= now {
            waiting[session] = nil
            ready.append(session)
        }
        guard let session = ready.popFirst(), var lane = lanes[session], let first = lane.pending.popFirst() else {
            return nil
        }
        var call = Call(session: session, request: first.request, batches: 1)
        lane.underWay = [first]
        lane.sentAlone = lane.alone > 0
        if lane.sentAlone {
            lane.alone -= 1
        } else if lane.pending.count + 1 >= BoundaryLimits.mergeFrom {
            var size = first.bytes
            while let item = lane.pending.first, first.merges(with: item),
                size + item.bytes <= BoundaryLimits.mergeBytes
            {
                lane.pending.removeFirst()
                call.request.logs += item.request.logs
                call.batches += 1
                size += item.bytes
                lane.underWay.append(item)
            }
        }
        lanes[session] = lane
        return call
    }

    /// The control plane has acknowledged the session's call.
    package mutating func succeeded(_ session: String) {
        guard var lane = lanes[session] else { return }
        for item in lane.underWay { finish(item) }
        lane.underWay = []
        lane.failures = 0
        goOn(session, lane)
        settle()
    }

    /// The session's call failed on a connection that works; it is made again later.
    package mutating func failed(_ session: String, now: Duration) {
        guard var lane = lanes[session] else { return }
        putBack(&lane)
        lane.failures += 1
        lanes[session] = lane
        waiting[session] = now + backoff(lane.failures)
    }

    /// The control plane refused the session's call as invalid.
    /// - Returns: the batch that is dropped for it.
    package mutating func refused(_ session: String, now: Duration) -> Item? {
        guard var lane = lanes[session] else { return nil }
        guard lane.underWay.count == 1, var item = lane.underWay.first else {
            // One of them is invalid: sent alone, they show which.
            let together = lane.underWay.count
            putBack(&lane)
            lane.alone = together
            goOn(session, lane)
            return nil
        }
        item.refusals += 1
        lane.underWay = []
        guard item.refusals < BoundaryLimits.refusals else {
            finish(item)
            lane.failures = 0
            goOn(session, lane)
            settle()
            return item
        }
        lane.pending.prepend(item)
        lane.alone += 1
        lanes[session] = lane
        waiting[session] = now + backoff(item.refusals)
        return nil
    }

    /// The session's call ended with its connection; it is made again with the next.
    package mutating func abandoned(_ session: String) {
        guard var lane = lanes[session] else { return }
        putBack(&lane)
        goOn(session, lane)
    }

    private func putBack(_ lane: inout Lane) {
        if lane.sentAlone { lane.alone += 1 }
        lane.sentAlone = false
        lane.pending.prepend(contentsOf: lane.underWay)
        lane.underWay = []
    }

    private mutating func goOn(_ session: String, _ lane: Lane) {
        guard !lane.pending.isEmpty else {
            lanes[session] = nil
            return
        }
        lanes[session] = lane
        ready.append(session)
    }

    private mutating func finish(_ item: Item) {
        batches -= 1
        bytes -= item.bytes
        // The ids rise.
        var (low, high) = (0, outstanding.count)
        while low < high {
            let middle = (low + high) / 2
            if outstanding[middle].id < item.id { low = middle + 1 } else { high = middle }
        }
        if low < outstanding.count, outstanding[low].id == item.id { outstanding[low].done = true }
    }

    private mutating func settle() {
        while let first = outstanding.first, first.done {
            doneThrough = first.id
            outstanding.removeFirst()
        }
    }
}
