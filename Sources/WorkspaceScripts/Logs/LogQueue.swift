import AgentProto
import ControlPlaneAPI
import DequeModule
import FoundationEssentials
import SwiftProtobuf

/// One line for the control plane.
package struct ScriptLogLine: Sendable, Equatable {
    package enum Level: Sendable, Equatable {
        case debug, info, warn, error

        var proto: Coder_Agent_V2_Log.Level {
            switch self {
            case .debug: .debug
            case .info: .info
            case .warn: .warn
            case .error: .error
            }
        }
    }

    package var time: WallTime
    package var level: Level
    /// Valid for the control plane's database: no NUL.
    package var text: String

    package init(time: WallTime, level: Level, text: String) {
        self.time = time
        self.level = level
        self.text = text
    }

    var proto: Coder_Agent_V2_Log {
        var log = Coder_Agent_V2_Log()
        log.createdAt = time.proto
        log.output = text
        log.level = level.proto
        return log
    }

    /// Bytes that the line takes in an encoded request.
    var encodedBytes: Int {
        let time = 1 + 1 + Self.field(time.seconds) + Self.field(Int64(time.nanoseconds))
        let text = text.utf8.isEmpty ? 0 : 1 + Self.varint(UInt64(text.utf8.count)) + text.utf8.count
        let body = time + text + 2
        return 1 + Self.varint(UInt64(body)) + body
    }

    private static func field(_ value: Int64) -> Int { value == 0 ? 0 : 1 + varint(UInt64(bitPattern: value)) }
    private static func varint(_ value: UInt64) -> Int { max((64 - value.leadingZeroBitCount + 6) / 7, 1) }
}

/// What waits to be sent, without I/O (docs/contracts/control-plane.md#logs). A line leaves the queue when the
/// batch that it is in was acknowledged, and not before: a connection that drops under a batch costs
/// nothing but sending it again.
package struct LogQueue: Sendable {
    /// Whether a line was queued.
    package enum Admission: Sendable, Equatable {
        case queued
        /// There is no room. `isFirst` once, until there is room again.
        case dropped(isFirst: Bool)
        /// The control plane takes no more logs of this agent.
        case refused
    }

    package struct Batch: Sendable, Equatable {
        package var source: Data
        package var lines: [ScriptLogLine]

        var request: Coder_Agent_V2_BatchCreateLogsRequest {
            var request = Coder_Agent_V2_BatchCreateLogsRequest()
            request.logSourceID = source
            request.logs = lines.map(\.proto)
            return request
        }
    }

    private var sources: [Data: Deque<ScriptLogLine>] = [:]
    /// Whose turn is next: each source with lines once.
    private var turns: Deque<Data> = []
    private var inFlight: (source: Data, count: Int)?
    private var isDropping = false
    package private(set) var lines = 0
    package private(set) var textBytes = 0
    package private(set) var encodedBytes = 0
    /// The control plane said so; it never changes back.
    package private(set) var limitExceeded = false

    package init() {}

    package var isEmpty: Bool { lines == 0 }
    /// A batch was given out and not acknowledged.
    package var isInFlight: Bool { inFlight != nil }
    /// Enough for a batch without waiting for more.
    package var isDue: Bool { encodedBytes >= ScriptLimits.logBatchBytes }

    package mutating func append(_ line: ScriptLogLine, source: Data) -> Admission {
        if limitExceeded { return .refused }
        let size = line.text.utf8.count
        guard textBytes + size <= ScriptLimits.queuedLogBytes, lines < ScriptLimits.queuedLogLines else {
            defer { isDropping = true }
            return .dropped(isFirst: !isDropping)
        }
        if sources[source, default: []].isEmpty { turns.append(source) }
        sources[source, default: []].append(line)
        lines += 1
        textBytes += size
        encodedBytes += line.encodedBytes
        return .queued
    }

    /// The next batch: of one source, at most ``ScriptLimits/logBatchBytes`` encoded. The same one again
    /// when the last was neither acknowledged nor given up.
    package mutating func nextBatch() -> Batch? {
        if let inFlight, let queue = sources[inFlight.source] {
            return Batch(source: inFlight.source, lines: Array(queue.prefix(inFlight.count)))
        }
        guard let source = turns.first, let queue = sources[source] else { return nil }
        var size = source.isEmpty ? 0 : 2 + source.count
        var count = 0
        for line in queue {
            let next = line.encodedBytes
            // One line alone always goes: it is far smaller than a batch.
            guard count == 0 || size + next <= ScriptLimits.logBatchBytes else { break }
            size += next
            count += 1
        }
        inFlight = (source, count)
        return Batch(source: source, lines: Array(queue.prefix(count)))
    }

    /// The control plane has the batch that ``nextBatch()`` gave last.
    /// - Returns: lines that went with it, and those that were thrown away because it takes no more.
    package mutating func acknowledge(limitExceeded exceeded: Bool) -> (sent: Int, refused: Int) {
        guard let (source, count) = inFlight else { return (0, 0) }
        inFlight = nil
        var queue = sources.removeValue(forKey: source) ?? []
        for line in queue.prefix(count) {
            lines -= 1
            textBytes -= line.text.utf8.count
            encodedBytes -= line.encodedBytes
        }
        queue.removeFirst(min(count, queue.count))
        if turns.first == source { turns.removeFirst() }
        if !queue.isEmpty {
            turns.append(source)
            sources[source] = queue
        }
        // Said once for each time that it fills up.
        if lines == 0 { isDropping = false }
        guard exceeded else { return (count, 0) }
        let refused = lines
        self = LogQueue()
        limitExceeded = true
        return (count, refused)
    }
}
