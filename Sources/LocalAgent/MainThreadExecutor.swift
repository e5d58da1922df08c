import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Runs the tasks of a command on the main thread, which waits for it anyway.
///
/// The runtime's own pool wakes up once a second for as long as the process lives, even when all of
/// its threads idle; a script that waits for an hour should cost nothing.
package final class MainThreadExecutor: TaskExecutor {
    private struct State {
        var jobs: [UnownedJob] = []
        var outcome: Result<Void, any Error>?
    }

    private let state = Mutex(State())
    private let wake = wa_eventfd()

    private init() {}
    deinit { close(wake) }

    /// Runs the body with this as its executor, on the calling thread, and returns or throws what
    /// it does.
    package static func run(_ body: @escaping @Sendable () async throws -> Void) throws {
        let executor = MainThreadExecutor()
        guard executor.wake >= 0 else {
            throw CommandFailure(message: "cannot create an eventfd: \(errnoText(-executor.wake))")
        }
        Task(executorPreference: executor) {
            let outcome: Result<Void, any Error>
            do {
                try await body()
                outcome = .success(())
            } catch {
                outcome = .failure(error)
            }
            executor.state.withLock { $0.outcome = outcome }
            wa_eventfd_signal(executor.wake)
        }
        try executor.drain()
    }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        state.withLock { $0.jobs.append(job) }
        wa_eventfd_signal(wake)
    }

    private func drain() throws {
        while true {
            let (jobs, outcome) = state.withLock { state in
                defer { state.jobs.removeAll(keepingCapacity: true) }
                return (state.jobs, state.outcome)
            }
            for job in jobs { job.runSynchronously(on: asUnownedTaskExecutor()) }
            if !jobs.isEmpty { continue }
            if let outcome {
                return try outcome.get()
            } else {
                var poll = pollfd(fd: wake, events: Int16(POLLIN), revents: 0)
                if Glibc.poll(&poll, 1, -1) > 0 { wa_eventfd_drain(wake) }
            }
        }
    }
}
