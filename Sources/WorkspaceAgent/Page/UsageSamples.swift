import AgentCore
import DequeModule
import Glibc
import Synchronization

/// What the daemon used over the last minutes. Taken when the page asks, so that nothing wakes the daemon while no page
/// is open.
final class UsageSamples: Sendable {
    struct Sample: Encodable, Sendable {
        /// Seconds since 1970.
        var time: Int64
        var rss_bytes: Int
        /// Of one core, on average since the sample before.
        var cpu_percent: Double
        /// Open HTTP connections.
        var connections: Int64
    }

    /// Seconds between two samples.
    static let interval = 5
    /// Samples that are kept: of 15 minutes.
    static let kept = 180

    private struct State {
        var samples: Deque<Sample> = []
        var last: (time: Duration, cpu: Duration)
    }

    private let clock: AgentClock
    private let connections: @Sendable () -> Int64
    private let state: Mutex<State>

    /// - Parameter connections: HTTP connections that are open.
    init(clock: AgentClock, connections: @escaping @Sendable () -> Int64) {
        (self.clock, self.connections) = (clock, connections)
        state = Mutex(State(last: (clock.now(), Self.cpuTime())))
    }

    /// The samples, oldest first, with one of now unless the last is younger than ``interval``.
    func current() -> [Sample] {
        let (now, wall) = (clock.now(), clock.wallSeconds())
        let (cpu, resident, connections) = (Self.cpuTime(), Self.residentBytes(), connections())
        return state.withLock { state in
            let passed = now - state.last.time
            // A little early counts: the page's own clock is not ours.
            if state.samples.isEmpty || passed >= .milliseconds(Self.interval * 1_000 - 500) {
                // Another's request may have taken its sample after this one's and come first.
                let percent = passed > .zero ? max(.zero, cpu - state.last.cpu) / passed * 100 : 0
                state.last = (now, cpu)
                state.samples.append(
                    Sample(
                        time: wall, rss_bytes: resident, cpu_percent: (percent * 100).rounded() / 100,
                        connections: connections))
                let oldest = wall - Int64(Self.kept * Self.interval)
                while let first = state.samples.first, state.samples.count > Self.kept || first.time < oldest {
                    state.samples.removeFirst()
                }
            }
            return Array(state.samples)
        }
    }

    private static func cpuTime() -> Duration {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        func duration(_ time: timeval) -> Duration {
            .seconds(Int64(time.tv_sec)) + .microseconds(Int64(time.tv_usec))
        }
        return duration(usage.ru_utime) + duration(usage.ru_stime)
    }

    private static func residentBytes() -> Int {
        let fields = readTextFile("/proc/self/statm")?.split(separator: " ") ?? []
        return (fields.count > 1 ? Int(fields[1]) ?? 0 : 0) * Int(sysconf(CInt(_SC_PAGESIZE)))
    }
}
