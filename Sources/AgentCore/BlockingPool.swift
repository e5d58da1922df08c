import NIOPosix

/// The threads on which calls that may block (spawn, /proc, files) run, so that no event loop and
/// no cooperative thread ever waits for a disk or another process.
public final class BlockingPool: Sendable {
    private let pool: NIOThreadPool

    /// - Parameter threads: how many calls run at once; more wait in order.
    public init(threads: Int) {
        pool = NIOThreadPool(numberOfThreads: threads)
        pool.start()
    }

    /// Runs the call on a thread of the pool and returns or throws what it does.
    public func run<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
        try await pool.runIfActive(body)
    }

    /// As ``run(_:)``, but what is begun is done even if the calling task is cancelled: for what must not be
    /// left undone, such as killing and cleaning up.
    public func runToEnd<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
        try await withCheckedThrowingContinuation { continuation in
            pool.submit { state in
                guard state == .active else { return continuation.resume(throwing: CancellationError()) }
                continuation.resume(with: Result { try body() })
            }
        }
    }

    /// Ends the threads; calls after this throw.
    public func shutdown() async {
        try? await pool.shutdownGracefully()
    }
}
