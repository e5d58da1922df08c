import Logging
import Synchronization

/// Keeps what is logged.
public final class LogLines: Sendable {
    private let recorded = Mutex<[(level: Logger.Level, text: String)]>([])

    public init() {}

    public func count(_ level: Logger.Level, _ part: String) -> Int {
        recorded.withLock { $0.count { $0.level == level && (part.isEmpty || $0.text.contains(part)) } }
    }

    /// Messages with their metadata, of all levels.
    public var lines: [String] { recorded.withLock { $0.map(\.text) } }

    public var all: String { recorded.withLock { $0.map { "\($0.level) \($0.text)" }.joined(separator: "\n") } }

    public var logger: Logger {
        var logger = Logger(label: "test") { _ in Handler(log: self) }
        logger.logLevel = .trace
        return logger
    }

    private struct Handler: LogHandler {
        let log: LogLines
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }
        func log(event: LogEvent) {
            let fields = (event.metadata ?? [:]).sorted { $0.key < $1.key }.map { "\($0)=\($1)" }
            log.recorded.withLock { $0.append((event.level, "\(event.message) \(fields.joined(separator: " "))")) }
        }
    }
}
