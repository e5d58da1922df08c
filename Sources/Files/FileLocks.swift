import AgentCore
import Synchronization

/// One lock for each real path: what reads a file, changes it and writes it back does so alone.
final class FileLocks: Sendable {
    private let state = Mutex<[[UInt8]: (turns: TurnQueue, users: Int)]>([:])

    /// Runs the body while it holds the locks of the paths, waiting for others in order.
    func holding<T: Sendable>(_ paths: [String], _ body: () async throws -> T) async throws -> T {
        // In one order for all, so that no two wait for each other.
        let keys = Set(paths.map(PathText.bytes)).sorted { $0.lexicographicallyPrecedes($1) }
        var held: [[UInt8]] = []
        defer { for key in held { release(key) } }
        for key in keys {
            let turns = enter(key)
            do {
                try await turns.take()
            } catch {
                leave(key)
                throw error
            }
            held.append(key)
        }
        return try await body()
    }

    private func enter(_ key: [UInt8]) -> TurnQueue {
        state.withLock { locks in
            let turns = locks[key]?.turns ?? TurnQueue()
            locks[key] = (turns, (locks[key]?.users ?? 0) + 1)
            return turns
        }
    }

    private func release(_ key: [UInt8]) {
        state.withLock { $0[key]?.turns }?.give()
        leave(key)
    }

    private func leave(_ key: [UInt8]) {
        state.withLock { locks in
            locks[key]?.users -= 1
            if locks[key]?.users == 0 { locks[key] = nil }
        }
    }

    /// Paths that are locked or waited for.
    var count: Int { state.withLock { $0.count } }
}
