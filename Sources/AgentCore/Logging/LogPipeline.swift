import CPlatform
import Glibc
import Logging
import NIOCore
import Synchronization

/// Where the daemon's log goes. Lines are formatted by the thread that logs and written by one thread, so
/// that a slow disk or a stopped terminal never holds up the daemon.
public final class LogPipeline: Sendable {
    /// Bytes of lines that wait to be written; further lines are dropped, counted, and the count is
    /// logged when there is room again.
    public static let queueBytes = 4 << 20

    private struct State {
        var lines: [LogLine] = []
        var bytes = 0
        var dropped = 0
        var writing = false
        var running = false
    }

    /// The last lines, whether they could be written or not.
    public let recent = RecentLog()
    private let sinks: [any LogSink]
    private let state = Mutex(State())
    private let wake: CInt
    private let idle: CInt
    let wantsJSON: Bool

    /// - Parameter sinks: where each line is written, in this order.
    public init(sinks: [any LogSink]) {
        self.sinks = sinks
        wantsJSON = sinks.contains { $0.format == .json }
        wake = wa_eventfd()
        idle = wa_eventfd()
        state.withLock { $0.running = true }
        let started = startThread("log-writer") { [self] in loop() }
        if !started { state.withLock { $0.running = false } }
    }

    func log(_ line: LogLine) {
        recent.append(line.line)
        let (signal, direct) = state.withLock { state in
            guard state.running else { return (false, true) }
            guard state.bytes + line.byteCount <= Self.queueBytes else {
                state.dropped += 1
                return (false, false)
            }
            state.lines.append(line)
            state.bytes += line.byteCount
            return (state.lines.count == 1 && !state.writing, false)
        }
        if direct { write([line]) }
        if signal { wa_eventfd_signal(wake) }
    }

    /// Returns once all lines logged before are written, or after the time.
    public func flush(milliseconds: CInt = 1000) {
        guard state.withLock({ $0.running }) else { return }
        let deadline = ContinuousClock.now + .milliseconds(Int(milliseconds))
        // Being idle may be said of the time before the last line, and then late.
        while state.withLock({ !$0.lines.isEmpty || $0.writing }) {
            wa_eventfd_drain(idle)
            wa_eventfd_signal(wake)
            guard state.withLock({ !$0.lines.isEmpty || $0.writing }) else { return }
            let left = (deadline - .now) / .milliseconds(1)
            guard left > 0 else { return }
            var poll = pollfd(fd: idle, events: Int16(POLLIN), revents: 0)
            _ = Glibc.poll(&poll, 1, CInt(left.rounded(.up)))
        }
    }

    private func loop() {
        while true {
            var poll = pollfd(fd: wake, events: Int16(POLLIN), revents: 0)
            _ = Glibc.poll(&poll, 1, -1)
            wa_eventfd_drain(wake)
            while let batch = take() { write(batch) }
            wa_eventfd_signal(idle)
        }
    }

    private func take() -> [LogLine]? {
        state.withLock { state in
            guard !state.lines.isEmpty || state.dropped > 0 else {
                state.writing = false
                return nil
            }
            var lines = state.lines
            if state.dropped > 0 {
                lines.append(
                    LogLine(
                        level: .warning, message: "log lines dropped: the log could not be written fast enough",
                        metadata: ["count": "\(state.dropped)"], json: wantsJSON))
            }
            state.lines = []
            state.bytes = 0
            state.dropped = 0
            state.writing = true
            return lines
        }
    }

    private func write(_ lines: [LogLine]) {
        for sink in sinks {
            var buffer = ByteBuffer()
            for line in lines { buffer.writeString(sink.format == .json ? line.json : line.human) }
            sink.write(buffer)
        }
    }
}

/// One line, formatted.
struct LogLine: Sendable {
    var line: RecentLog.Line
    var human: String
    var json: String

    var byteCount: Int { human.utf8.count + json.utf8.count }

    init(level: Logger.Level, message: String, metadata: Logger.Metadata, json wantsJSON: Bool) {
        let time = LogFormat.timestamp()
        let fields = metadata.sorted { $0.key < $1.key }.map { (key: $0.key, value: "\($0.value)") }
        line = RecentLog.Line(time: time, level: level, message: message, fields: fields)
        human = LogFormat.human(time, level, message, fields)
        json = wantsJSON ? LogFormat.json(time, level, message, fields) : ""
    }
}

/// The swift-log side of a pipeline.
public struct AgentLogHandler: LogHandler {
    public var logLevel: Logger.Level
    public var metadata: Logger.Metadata = [:]
    private let pipeline: LogPipeline

    public init(pipeline: LogPipeline, level: Logger.Level) {
        self.pipeline = pipeline
        logLevel = level
    }

    public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    public func log(event: LogEvent) {
        var all = metadata
        if let extra = event.metadata { all.merge(extra) { _, new in new } }
        pipeline.log(
            LogLine(level: event.level, message: event.message.description, metadata: all, json: pipeline.wantsJSON))
    }
}
