import NetStack

/// Connections that we have closed and whose peer has not ended them yet. Each is dropped once nothing has moved for a
/// while: otherwise a peer that never ends its side would keep them for ever.
struct Orphans {
    private struct Orphan {
        var due: Duration
        /// Bytes that the peer had not acknowledged when the time began.
        var queued: Int
    }

    private let life: Duration
    private var orphans: [ConnectionID: Orphan] = [:]
    /// In the order of their times; those that have ended meanwhile are among them.
    private var order: [(due: Duration, id: ConnectionID)] = []

    init(life: Duration) { self.life = life }

    var count: Int { orphans.count }
    var nextDeadline: Duration? { order.first?.due }

    mutating func add(_ id: ConnectionID, queued: Int, now: Duration) {
        orphans[id] = Orphan(due: now + life, queued: queued)
        order.append((now + life, id))
    }

    /// - Returns: whether it was one.
    mutating func remove(_ id: ConnectionID) -> Bool { orphans.removeValue(forKey: id) != nil }

    /// Takes out those whose time is over.
    /// - Parameter left: the bytes that a peer has not acknowledged yet: fewer than before is progress.
    mutating func due(now: Duration, left: (ConnectionID) -> Int) -> [ConnectionID] {
        guard let first = order.first, first.due <= now else { return [] }
        let ended = order.prefix { $0.due <= now }
        order.removeFirst(ended.count)
        var result: [ConnectionID] = []
        for (due, id) in ended {
            guard let orphan = orphans[id], orphan.due == due else { continue }
            let queued = left(id)
            if queued > 0, queued < orphan.queued {
                add(id, queued: queued, now: now)
            } else {
                orphans[id] = nil
                result.append(id)
            }
        }
        return result
    }
}
