import NIOCore

/// Decides when a connection is pinged and when its peer counts as gone, without I/O.
///
/// The time for a pong runs only while we read: a pong may wait behind bytes that we have no room for. (Meanwhile the
/// kernel detects a dead machine, see TCP_USER_TIMEOUT in the dialler.)
struct Keepalive {
    enum Action: Equatable {
        case none
        case ping
        case gone
    }

    let interval: TimeAmount
    let timeout: TimeAmount
    private var awaiting = false
    /// Reading time since the ping was sent, up to `since`.
    private var spent = TimeAmount.zero
    /// Since when we read; nil when we do not.
    private var since: NIODeadline?
    private var progress = false

    init(interval: TimeAmount, timeout: TimeAmount, now: NIODeadline) {
        self.interval = interval
        self.timeout = timeout
        since = now
    }

    mutating func reading(_ reading: Bool, now: NIODeadline) {
        if let since, !reading {
            spent = spent + (now - since)
            self.since = nil
        } else if since == nil, reading {
            since = now
        }
    }

    mutating func pong() { awaiting = false }

    /// Part of a long frame arrived, after which a pong may wait.
    mutating func dataCame() { progress = true }

    /// - Parameter insideData: whether a data frame is incomplete.
    /// - Returns: what to do, and in what time to call again.
    mutating func timerFired(now: NIODeadline, insideData: Bool) -> (Action, next: TimeAmount) {
        guard awaiting else {
            awaiting = true
            progress = false
            spent = .zero
            if since != nil { since = now }
            return (.ping, min(interval, timeout))
        }
        let total = spent + (since.map { now - $0 } ?? .zero)
        if total < timeout { return (.none, timeout - total) }
        if insideData, progress {
            progress = false
            spent = .zero
            if since != nil { since = now }
            return (.none, timeout)
        }
        return (.gone, timeout)
    }
}
