import NIOCore

/// Runs Swift tasks on an event loop, so that a task that talks to a channel of that loop never
/// changes threads on its way there and back.
public final class EventLoopTaskExecutor: TaskExecutor {
    private let loop: any EventLoop

    public init(_ loop: any EventLoop) { self.loop = loop }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        loop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
