import AgentCore
import ControlPlaneAPI
import AgentTestSupport
import ControlPlane
import Logging
import SwiftProtobuf
import Synchronization

/// Runs tasks on the calling thread in virtual time: when nobody has anything to do, the clock moves
/// to the next deadline. So an hour takes no time, and a run is the same every time.
final class Simulation: TaskExecutor {
    struct Stuck: Error { var what: String }

    let clock = ManualClock()
    private let jobs = Mutex<[UnownedJob]>([])
    /// Picks the next of so many jobs; the oldest unless a test explores other orders.
    private let pick: @Sendable (Int) -> Int

    init(pick: @escaping @Sendable (Int) -> Int = { _ in 0 }) { self.pick = pick }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        jobs.withLock { $0.append(job) }
    }

    /// - Throws: ``Stuck`` when nothing can happen any more, or the time is over.
    func run(
        _ what: String, within limit: Duration = .seconds(100_000), until condition: () -> Bool
    ) throws {
        let end = clock.now.advanced(by: limit)
        while !condition() {
            guard !step() else { continue }
            guard clock.now <= end, clock.advanceToNext() else { throw Stuck(what: what) }
        }
    }

    /// Runs for so long, whatever happens.
    func run(for duration: Duration) {
        let over = Mutex(false)
        Task(executorPreference: self) { [clock] in
            try? await clock.sleep(for: duration)
            over.withLock { $0 = true }
        }
        while !over.withLock({ $0 }) { if !step() { _ = clock.advanceToNext() } }
        while step() {}
    }

    /// Runs the body to its end.
    func run<T: Sendable>(_ what: String, _ body: @escaping @Sendable () async -> T) throws -> T {
        let result = Mutex<T?>(nil)
        Task(executorPreference: self) {
            let value = await body()
            result.withLock { $0 = value }
        }
        try run(what) { result.withLock { $0 != nil } }
        guard let value = result.withLock({ $0 }) else { throw Stuck(what: what) }
        return value
    }

    private func step() -> Bool {
        let job = jobs.withLock { jobs in jobs.isEmpty ? nil : jobs.remove(at: pick(jobs.count)) }
        job?.runSynchronously(on: asUnownedTaskExecutor())
        return job != nil
    }

    var now: Duration { clock.now.offset }

    /// - Parameter fraction: of the jitter.
    func runtime(fraction: Double = 1, logger: Logger = quiet) -> LinkRuntime {
        let clock = clock
        return LinkRuntime(
            clock: AgentClock(clock),
            wall: {
                let now = clock.now.offset.components
                return WallTime(
                    seconds: 1_800_000_000 + now.seconds, nanoseconds: Int32(now.attoseconds / 1_000_000_000))
            },
            random: { fraction }, executor: self, logger: logger)
    }
}

let quiet = Logger(label: "quiet") { _ in SwiftLogNoOpLogHandler() }
