import Dispatch
import Glibc
import Synchronization

/// Threads of their own for tests that block in system calls: the cooperative pool has one a core,
/// and tests that block there keep all others from running.
public final class BlockingExecutor: TaskExecutor {
    public static let shared = BlockingExecutor(threads: 8)

    private let jobs = Mutex<[UnownedJob]>([])
    private let waiting = DispatchSemaphore(value: 0)

    public init(threads: Int) {
        for _ in 0..<threads {
            var thread = pthread_t()
            pthread_create(
                &thread, nil,
                { argument in
                    guard let argument else { return nil }
                    Unmanaged<BlockingExecutor>.fromOpaque(argument).takeRetainedValue().run()
                    return nil
                }, Unmanaged.passRetained(self).toOpaque())
            pthread_detach(thread)
        }
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
