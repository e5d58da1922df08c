/// The bytes that all TCP buffers together may have.
///
/// The last eighth is kept for buffers of the least size, so that connections whose peers and readers work go on when
/// stalled ones hold the rest: with the default limits it is 8 KiB for each connection.
struct BufferBudget: Sendable {
    let limit: Int
    private(set) var used = 0

    init(limit: Int) { self.limit = limit }

    /// What a buffer may grow by.
    func room(capacity: Int) -> Int {
        let small = max(0, min(ByteRing.leastCapacity - capacity, limit - used))
        return max(small, limit - limit / 8 - used)
    }

    /// Whether there is so much that windows may grow.
    var isAmple: Bool { used < limit / 4 * 3 }

    /// Grows the ring so that it holds so many bytes, or leaves it as it is.
    mutating func grow(_ ring: inout ByteRing, for bytes: Int, limit: Int) -> Bool {
        if bytes <= ring.capacity { return true }
        guard bytes <= limit else { return false }
        let wanted = ring.capacity(for: bytes, limit: limit)
        for capacity in [wanted, bytes] where capacity - ring.capacity <= room(capacity: ring.capacity) {
            used += capacity - ring.capacity
            ring.grow(to: capacity)
            return true
        }
        return false
    }

    mutating func release(_ ring: inout ByteRing) {
        used -= ring.capacity
        ring.release()
    }
}
