import DequeModule
import Logging
import Synchronization

/// The daemon's last log lines, in memory, for those who watch. A reader keeps only the number to go on with, so that a
/// slow one costs no memory: it is told how many lines it missed.
public final class RecentLog: Sendable {
    /// One line.
    public struct Line: Sendable {
        /// RFC 3339, UTC, milliseconds.
        public var time: String
        public var level: Logger.Level
        public var message: String
        /// Ordered by key.
        public var fields: [(key: String, value: String)]

        var byteCount: Int { fields.reduce(message.utf8.count + 100) { $0 + $1.key.utf8.count + $1.value.utf8.count } }
    }

    /// What a reader gets.
    public struct Batch: Sendable {
        public var lines: [Line]
        /// Lines that were forgotten before this reader came to them.
        public var missed: Int
        /// The number to go on with.
        public var next: Int
    }

    /// Lines that are kept.
    public static let maximumLines = 1_000
    /// Bytes of lines that are kept.
    public static let maximumBytes = 256 << 10
    /// Lines of one batch.
    static let batchLines = 200

    private struct State {
        var lines: Deque<Line> = []
        var bytes = 0
        var first = 0
        var isClosed = false
        var nextReader = 0
        var readers: [Int: Wakeup] = [:]
    }

    private let state = Mutex(State())

    init() {}

    func append(_ line: Line) {
        let readers = state.withLock { state in
            state.lines.append(line)
            state.bytes += line.byteCount
            while state.lines.count > Self.maximumLines || state.bytes > Self.maximumBytes {
                guard let oldest = state.lines.popFirst() else { break }
                state.bytes -= oldest.byteCount
                state.first += 1
            }
            return Array(state.readers.values)
        }
        for reader in readers { reader.signal() }
    }

    /// Shutdown begins: readers get what there is, and end.
    public func close() {
        let readers = state.withLock { state in
            state.isClosed = true
            return Array(state.readers.values)
        }
        for reader in readers { reader.signal() }
    }

    /// Whether readers are to end.
    public var isClosed: Bool { state.withLock { $0.isClosed } }

    /// Has the wake-up signalled at each line and at the end, until the number that is returned is removed.
    package func addReader(_ wakeup: Wakeup) -> Int {
        state.withLock { state in
            state.nextReader += 1
            state.readers[state.nextReader] = wakeup
            return state.nextReader
        }
    }

    package func removeReader(_ number: Int) { state.withLock { _ = $0.readers.removeValue(forKey: number) } }

    package func hasReader(_ number: Int) -> Bool { state.withLock { $0.readers[number] != nil } }

    /// The number from which the last lines are read.
    public func start(lines: Int) -> Int { state.withLock { $0.first + max(0, $0.lines.count - lines) } }

    /// Lines from a number on, at most some hundred.
    public func read(from number: Int) -> Batch {
        state.withLock { state in
            let start = max(number, state.first)
            let lines = Array(state.lines.dropFirst(start - state.first).prefix(Self.batchLines))
            return Batch(lines: lines, missed: start - number, next: start + lines.count)
        }
    }
}
