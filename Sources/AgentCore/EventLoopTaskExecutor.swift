import NIOCore

/// Runs the async functions of a task on one event loop, so that a handler and the connection it
/// serves share a thread and a call costs no hop between threads.
public final class EventLoopTaskExecutor: TaskExecutor {
    private let loop: any EventLoop

    public init(loop: any EventLoop) { self.loop = loop }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        loop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
