import NIOCore
import Synchronization

/// The open connections of the socket, limited in number. At the limit a new connection replaces the longest idle one,
/// so that idle or half-dead clients can't lock the others out.
final class ConnectionTable: Sendable {
    /// The entry of one connection.
    final class Slot: Sendable {
        let id: UInt64
        fileprivate let channel: any Channel
        private let busy = Atomic<Bool>(false)
        private let lastUsed = Atomic<UInt64>(0)

        fileprivate init(id: UInt64, channel: any Channel) {
            self.id = id
            self.channel = channel
        }

        /// A call has got its request, or has ended.
        func note(busy: Bool) {
            self.busy.store(busy, ordering: .relaxed)
            touch()
        }

        /// Marks the connection as used now.
        func touch() { lastUsed.store(NIODeadline.now().uptimeNanoseconds, ordering: .relaxed) }

        fileprivate var idleSince: UInt64? {
            busy.load(ordering: .relaxed) ? nil : lastUsed.load(ordering: .relaxed)
        }
    }

    /// Whether a new connection is admitted.
    enum Admission {
        case admitted(Slot)
        /// Admitted; the evicted one has to be closed.
        case replaced(Slot, evicted: any Channel)
        case refused
    }

    private struct State {
        var slots: [UInt64: Slot] = [:]
        var nextID: UInt64 = 0
        var closed = false
    }

    private let state = Mutex(State())
    private let capacity: Int

    init(capacity: Int) { self.capacity = capacity }

    var count: Int { state.withLock { $0.slots.count } }

    func admit(_ channel: any Channel) -> Admission {
        state.withLock { state in
            guard !state.closed else { return .refused }
            var evicted: (any Channel)?
            if state.slots.count >= capacity {
                let idle = state.slots.values.compactMap { slot in slot.idleSince.map { (slot, $0) } }
                guard let (victim, _) = idle.min(by: { $0.1 < $1.1 }) else { return .refused }
                state.slots[victim.id] = nil
                evicted = victim.channel
            }
            state.nextID += 1
            let slot = Slot(id: state.nextID, channel: channel)
            slot.touch()
            state.slots[slot.id] = slot
            return evicted.map { .replaced(slot, evicted: $0) } ?? .admitted(slot)
        }
    }

    func remove(_ slot: Slot) { state.withLock { $0.slots[slot.id] = nil } }

    /// Closes all connections, waits until they are closed, and refuses new ones.
    func closeAll() async {
        let channels = state.withLock { state in
            state.closed = true
            return state.slots.values.map(\.channel)
        }
        for channel in channels { channel.close(promise: nil) }
        for channel in channels { try? await channel.closeFuture.get() }
    }
}
