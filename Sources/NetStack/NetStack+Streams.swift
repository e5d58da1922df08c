import IPAddresses
import NIOCore

/// The bytes of connections.
extension NetStack {
    /// Queues bytes to be sent; what the send buffer has no room for stays in `bytes`, and ``NetStackEvent/writable(_:)``
    /// comes when there is room again.
    /// - Returns: how many were taken.
    @discardableResult
    package mutating func write(_ id: ConnectionID, _ bytes: inout ByteBuffer, now: Duration) -> Int {
        let count = bytes.withUnsafeReadableBytes { write(id, $0, now: now) }
        bytes.moveReaderIndex(forwardBy: count)
        return count
    }

    /// The same for bytes anywhere in memory.
    package mutating func write(_ id: ConnectionID, _ bytes: UnsafeRawBufferPointer, now: Duration) -> Int {
        guard let slot = slot(id) else { return 0 }
        let count = connections[slot].write(bytes, now: clock(now), context: &context)
        if count > 0 { schedule(slot) }
        enqueue(slot)
        return count
    }

    /// How much a write would take now.
    package func writableBytes(_ id: ConnectionID) -> Int {
        guard let slot = slot(id), connections[slot].canWrite else { return 0 }
        return max(0, connections[slot].send.limit - connections[slot].send.ring.count)
    }

    /// Asks for ``NetStackEvent/writable(_:)`` when there is room again, for a writer that looked with
    /// ``writableBytes(_:)`` instead of writing.
    package mutating func awaitRoom(_ id: ConnectionID) {
        guard let slot = slot(id), connections[slot].canWrite else { return }
        connections[slot].send.wantsWritable = true
    }

    /// Bytes that were written and that the peer has not acknowledged.
    package func queuedBytes(_ id: ConnectionID) -> Int { slot(id).map { connections[$0].send.ring.count } ?? 0 }

    /// Takes received bytes.
    /// - Returns: at most `limit` bytes; nil when there are none.
    package mutating func read(_ id: ConnectionID, limit: Int = 262_144, now: Duration) -> ByteBuffer? {
        guard let slot = slot(id), !connections[slot].receive.ring.isEmpty, limit > 0 else { return nil }
        let now = clock(now)
        let count = min(limit, connections[slot].receive.ring.count)
        var buffer = ByteBufferAllocator().buffer(capacity: count)
        // Twice where the bytes go round the end of the ring.
        while buffer.readableBytes < count {
            let left = count - buffer.readableBytes
            let taken = connections[slot].read(now: now, context: &context) { bytes in
                buffer.writeBytes(UnsafeRawBufferPointer(rebasing: bytes.prefix(left)))
            }
            guard taken > 0 else { break }
        }
        settle(slot, now: now)
        return buffer
    }

    /// Hands received bytes that lie together to `body`, which says how many it took: for writing them to a socket
    /// without a copy.
    /// - Returns: what it took; 0 when there are none.
    @discardableResult
    package mutating func read(
        _ id: ConnectionID, now: Duration, _ body: (UnsafeRawBufferPointer) -> Int
    ) -> Int {
        guard let slot = slot(id) else { return 0 }
        let now = clock(now)
        let count = connections[slot].read(now: now, context: &context, body)
        if count > 0 { settle(slot, now: now) }
        return count
    }

    /// Received bytes that wait for the reader.
    package func readableBytes(_ id: ConnectionID) -> Int {
        slot(id).map { connections[$0].receive.ring.count } ?? 0
    }

    /// Ends our side after what was written; the peer's goes on.
    package mutating func finish(_ id: ConnectionID, now: Duration) {
        guard let slot = slot(id) else { return }
        connections[slot].finish()
        settle(slot, now: clock(now))
    }

    /// How long a connection may be silent before the peer is asked whether it is still there: 2 h at first.
    /// - Parameter idle: zero for never.
    package mutating func setKeepAlive(_ id: ConnectionID, idle: Duration) {
        guard let slot = slot(id) else { return }
        connections[slot].keepAliveIdle = max(0, Microseconds(idle))
        schedule(slot)
    }

    /// Both ends of a connection.
    package func endpoints(_ id: ConnectionID) -> (local: Endpoint, remote: Endpoint)? {
        slot(id).map { (connections[$0].key.local, connections[$0].key.remote) }
    }
}
