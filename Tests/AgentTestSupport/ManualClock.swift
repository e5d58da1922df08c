import Synchronization

/// A clock that stands still until a test moves it.
public final class ManualClock: Clock, Sendable {
    public struct Instant: InstantProtocol {
        public var offset: Duration
        public func advanced(by duration: Duration) -> Instant { Instant(offset: offset + duration) }
        public func duration(to other: Instant) -> Duration { other.offset - offset }
        public static func < (a: Instant, b: Instant) -> Bool { a.offset < b.offset }
    }

    private struct Sleeper {
        var deadline: Instant
        var continuation: CheckedContinuation<Void, any Error>
    }

    private struct State {
        var now = Instant(offset: .zero)
        var next = 0
        var sleepers: [Int: Sleeper] = [:]
        var cancelled: Set<Int> = []
        var arrivals: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let state = Mutex(State())

    public init() {}

    public var now: Instant { state.withLock { $0.now } }
    public var minimumResolution: Duration { .nanoseconds(1) }

    public func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        let id = state.withLock { state in
            state.next += 1
            return state.next
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                let (arrived, result): ([CheckedContinuation<Void, Never>], Result<Void, any Error>?) =
                    state.withLock { state in
                        if state.cancelled.contains(id) { return ([], .failure(CancellationError())) }
                        if deadline <= state.now { return ([], .success(())) }
                        state.sleepers[id] = Sleeper(deadline: deadline, continuation: continuation)
                        let due = state.arrivals.filter { $0.count <= state.sleepers.count }
                        state.arrivals.removeAll { $0.count <= state.sleepers.count }
                        return (due.map(\.continuation), nil)
                    }
                if let result { continuation.resume(with: result) }
                for waiter in arrived { waiter.resume() }
            }
        } onCancel: {
            let sleeper = state.withLock { state in
                state.cancelled.insert(id)
                return state.sleepers.removeValue(forKey: id)
            }
            sleeper?.continuation.resume(throwing: CancellationError())
        }
    }

    /// Moves time and wakes whoever is due.
    public func advance(by duration: Duration) {
        let due = state.withLock { state in
            state.now = state.now.advanced(by: duration)
            let due = state.sleepers.filter { $0.value.deadline <= state.now }
            for id in due.keys { state.sleepers[id] = nil }
            return due.values.sorted { $0.deadline < $1.deadline }
        }
        for sleeper in due { sleeper.continuation.resume() }
    }

    /// When the first of those who sleep is due.
    public var nextDeadline: Instant? { state.withLock { $0.sleepers.values.map(\.deadline).min() } }

    /// Moves time to the next deadline and wakes whoever is due.
    /// - Returns: whether anybody sleeps.
    public func advanceToNext() -> Bool {
        guard let next = nextDeadline else { return false }
        advance(by: now.duration(to: next))
        return true
    }

    /// Returns once at least so many tasks sleep.
    public func sleepers(_ count: Int) async {
        await withCheckedContinuation { continuation in
            let now = state.withLock { state in
                if state.sleepers.count >= count { return true }
                state.arrivals.append((count, continuation))
                return false
            }
            if now { continuation.resume() }
        }
    }

    /// Tasks that sleep at the moment.
    public var sleeping: Int { state.withLock { $0.sleepers.count } }
}
