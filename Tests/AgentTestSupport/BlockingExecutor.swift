import Dispatch
import Glibc
import Synchronization

/// Threads of their own for tests that block in system calls: the cooperative pool has one a core,
/// and tests that block there keep all others from running.
public final class BlockingExecutor: TaskExecutor {
    public static let shared = BlockingExecutor(threads: 24)

    private let jobs = Mutex<[UnownedJob]>([])
    private let waiting = DispatchSemaphore(value: 0)

    public init(threads: Int) {
        var started = 0
        for _ in 0..<threads {
            var thread = pthread_t()
            let own = Unmanaged.passRetained(self)
            let code = pthread_create(
                &thread, nil,
                { argument in
                    guard let argument else { return nil }
                    Unmanaged<BlockingExecutor>.fromOpaque(argument).takeRetainedValue().run()
                    return nil
                }, own.toOpaque())
            guard code == 0 else {
                // The kernel has no thread to give at the moment; fewer will do.
                own.release()
                continue
            }
            pthread_detach(thread)
            started += 1
        }
        precondition(started > 0, "no thread for tests that block")
    }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        jobs.withLock { $0.append(job) }
        waiting.signal()
    }

    private func run() {
        while true {
            waiting.wait()
            let job = jobs.withLock { $0.isEmpty ? nil : $0.removeFirst() }
            job?.runSynchronously(on: asUnownedTaskExecutor())
        }
    }
}
