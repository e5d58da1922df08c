import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Calls that may never return, such as those on a dead mount: each on a thread of its own, which is left behind when
/// it takes too long.
enum LeftBehind {
    private final class Results<T: Sendable>: Sendable {
        let values: Mutex<[T?]>
        let changed = wa_eventfd()

        init(_ count: Int) { values = Mutex(Array(repeating: nil, count: count)) }
        deinit { if changed >= 0 { close(changed) } }

        func set(_ index: Int, _ value: T) {
            values.withLock { $0[index] = value }
            wa_eventfd_signal(changed)
        }
    }

    /// Runs the bodies at once and blocks until all are done, or the limit is reached.
    /// - Returns: their results in order; nil for what was not done in time, or got no thread.
    static func run<T: Sendable>(atMost limit: Duration, _ bodies: [@Sendable () -> T]) -> [T?] {
        let results = Results<T>(bodies.count)
        let started = bodies.indices.filter { index in startThread("check") { results.set(index, bodies[index]()) } }
        let end = ContinuousClock.now + limit
        while results.values.withLock({ values in started.contains { values[$0] == nil } }) {
            let rest = end - ContinuousClock.now
            guard rest > .zero else { break }
            var wait = pollfd(fd: results.changed, events: Int16(POLLIN), revents: 0)
            // Up to the next millisecond, or the last one would be spent in a busy loop.
            if poll(&wait, 1, CInt(clamping: Int(rest / .milliseconds(1)) + 1)) > 0 {
                wa_eventfd_drain(results.changed)
            }
        }
        return results.values.withLock { $0 }
    }
}
