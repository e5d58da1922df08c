import Glibc
import Synchronization

/// Collects the newest of the files that a walk comes upon.
final class GlobSearch: TreeVisitor {
    struct Found: Sendable {
        /// Last modification, in nanoseconds since 1970; of a link its own.
        var time: Int64
        /// Below the root.
        var path: [UInt8]

        /// The newest first, then by the paths' bytes.
        static func isBefore(_ a: Found, _ b: Found) -> Bool {
            a.time != b.time ? a.time > b.time : a.path.lexicographicallyPrecedes(b.path)
        }
    }

    private struct State {
        var found: [Found] = []
        var count = 0
        /// Older ones are none of the answer.
        var oldest = Int64.min
    }

    private let limit: Int
    private let prefix: Int
    private let state = Mutex(State())

    /// - Parameters:
    ///   - limit: how many are kept, at least 1.
    ///   - prefix: bytes of the entries' paths that are not below the root.
    init(limit: Int, prefix: Int) { (self.limit, self.prefix) = (limit, prefix) }

    func visit(
        _ entry: TreeEntry, _ buffer: inout ScratchBuffer, until end: ContinuousClock.Instant
    ) -> TreeVisit {
        guard let info = entry.info(), [S_IFREG, S_IFLNK].contains(info.st_mode & S_IFMT) else { return .done }
        let time = Int64(info.st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(info.st_mtim.tv_nsec)
        let oldest = state.withLock { state in
            state.count += 1
            return state.oldest
        }
        guard time >= oldest else { return .done }
        let found = Found(time: time, path: Array(entry.path[prefix...]))
        state.withLock { state in
            state.found.append(found)
            // Now and then, so that it costs little for each.
            if state.found.count >= 2 * limit + 1_024 { Self.cut(&state, limit) }
        }
        return .done
    }

    /// - Returns: the newest first, and whether there were more.
    func result() -> (paths: [[UInt8]], truncated: Bool) {
        state.withLock { state in
            Self.cut(&state, limit)
            return (state.found.map(\.path), state.count > limit)
        }
    }

    private static func cut(_ state: inout State, _ limit: Int) {
        state.found.sort(by: Found.isBefore)
        guard state.found.count > limit else { return }
        state.found.removeLast(state.found.count - limit)
        state.oldest = state.found.last?.time ?? .min
    }
}
