import AgentCore
import AgentHTTP

/// Runs a walk on the threads for what computes, in pieces, so that other requests are served between them.
enum TreeSearch {
    /// Waits for the end of the walk, but no longer than ``FilesLimits/searchMilliseconds`` and only while the client
    /// is there: what was found until then is the result.
    /// - Parameter root: named when the file system does not answer.
    static func run(_ walk: TreeWalk, _ root: String, _ work: DiskWork, _ caller: CallerPresence) async throws {
        let over = Promise<Result<Void, any Error>>()
        let limit = Duration.milliseconds(FilesLimits.searchMilliseconds)
        let takeBack = work.clock.after(limit) { walk.stop() }
        // Work that hangs in the kernel is left behind.
        let takeBackGrace = work.clock.after(limit + .seconds(1)) { over.fulfill(.success(())) }
        let gone = caller.onGone {
            walk.stop()
            over.fulfill(.success(()))
        }
        defer {
            takeBack()
            takeBackGrace()
            caller.remove(gone)
        }
        let workers = Task(executorPreference: work.executor) {
            do {
                try await withThrowingTaskGroup { group in
                    for _ in 0..<FilesLimits.searchThreads { group.addTask { try await follow(walk, root, work) } }
                    try await group.waitForAll()
                }
                over.fulfill(.success(()))
            } catch {
                walk.stop()
                over.fulfill(.failure(error))
            }
        }
        defer { workers.cancel() }
        try await over.valueIgnoringCancellation.get()
    }

    /// Takes part in a walk until there is nothing left to do.
    private static func follow(_ walk: TreeWalk, _ root: String, _ work: DiskWork) async throws {
        let idle = Wakeup()
        while true {
            switch try await work.run(root, computing: true, { walk.work(FilesLimits.searchPieceMilliseconds, idle) }) {
            case .more: continue
            case .idle: try await idle.wait()
            case .end: return
            }
        }
    }
}
