import NIOCore
import Synchronization

/// What all connections together keep in memory for clients that read more slowly than we write: messages of WebSockets
/// and answers. Beyond the limit, the ones whose clients have gone without reading for the longest time are closed, so
/// that those cost the others nothing.
final class OutputQueues: Sendable {
    /// That of one connection.
    final class Queue: Sendable {
        fileprivate let id: Int
        private let queues: OutputQueues
        private let callback = Mutex<@Sendable () -> Void>({})

        fileprivate init(_ id: Int, _ queues: OutputQueues) { (self.id, self.queues) = (id, queues) }

        deinit { queues.clear(id) }

        /// Called, on any thread, when the connection is to be closed.
        var onOverflow: @Sendable () -> Void {
            get { callback.withLock { $0 } }
            set { callback.withLock { $0 = newValue } }
        }

        /// These bytes wait for the client, too.
        func add(_ buffers: [ByteBuffer]) { queues.add(self, buffers) }

        /// Few or none wait any more.
        func clear() { queues.clear(id) }
    }

    private struct Waiting {
        weak var queue: Queue?
        /// Rises with each queue that begins to wait.
        var since: Int
        /// By where their bytes are, which no other has while they are kept.
        var buffers: [(place: UInt, buffer: ByteBuffer)]
    }

    /// A buffer that is in several queues is in memory once.
    private struct Shared {
        var queues = 0
        var bytes: Int
    }

    private struct State {
        var next = 0
        var waiting: [Int: Waiting] = [:]
        var shared: [UInt: Shared] = [:]
        var bytes = 0
    }

    private let limit: Int
    private let onClose: @Sendable () -> Void
    private let state = Mutex(State())

    /// - Parameters:
    ///   - limit: bytes of all queues.
    ///   - onClose: called for each connection that is closed.
    init(limit: Int, onClose: @escaping @Sendable () -> Void = {}) { (self.limit, self.onClose) = (limit, onClose) }

    /// Bytes of all queues.
    var bytes: Int { state.withLock { $0.bytes } }

    func make() -> Queue {
        let id = state.withLock { state in
            state.next += 1
            return state.next
        }
        return Queue(id, self)
    }

    private func add(_ queue: Queue, _ buffers: [ByteBuffer]) {
        let overflowing = state.withLock { state -> [Queue] in
            state.next += 1
            var waiting = state.waiting[queue.id] ?? Waiting(queue: queue, since: state.next, buffers: [])
            for buffer in buffers {
                let place = buffer.withUnsafeReadableBytes { UInt(bitPattern: $0.baseAddress) }
                var shared = state.shared[place] ?? Shared(bytes: buffer.readableBytes)
                if shared.queues == 0 { state.bytes += shared.bytes }
                shared.queues += 1
                state.shared[place] = shared
                waiting.buffers.append((place, buffer))
            }
            state.waiting[queue.id] = waiting
            var overflowing: [Queue] = []
            // One alone is as long as its route made it.
            while state.bytes > limit, state.waiting.count > 1,
                let oldest = state.waiting.min(by: { $0.value.since < $1.value.since })
            {
                Self.remove(oldest.key, &state)
                if let queue = oldest.value.queue { overflowing.append(queue) }
            }
            return overflowing
        }
        for queue in overflowing {
            onClose()
            queue.onOverflow()
        }
    }

    private func clear(_ id: Int) { state.withLock { Self.remove(id, &$0) } }

    private static func remove(_ id: Int, _ state: inout State) {
        for (place, _) in state.waiting.removeValue(forKey: id)?.buffers ?? [] {
            guard var shared = state.shared[place] else { continue }
            shared.queues -= 1
            if shared.queues == 0 { state.bytes -= shared.bytes }
            state.shared[place] = shared.queues == 0 ? nil : shared
        }
    }
}
