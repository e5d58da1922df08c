import AgentCore
import Hummingbird
import Logging
import NIOCore

/// `GET /api/v0/logs/stream`: the daemon's own log as it comes, as server-sent events.
public struct LogStream: Sendable {
    /// Between two signs of life.
    static let heartbeat = Duration.seconds(15)

    private let log: RecentLog
    private let clock: AgentClock

    public init(log: RecentLog, clock: AgentClock) { (self.log, self.clock) = (log, clock) }

    public func add(to routes: AgentRoutes) { routes.get("/api/v0/logs/stream", stream) }

    private func stream(_ request: Request, _ context: AgentRequestContext) throws -> Response {
        let query = try Query(request, allowed: ["level", "lines"])
        let text = query["level"] ?? "info"
        guard let least = Logger.Level(rawValue: text) else {
            let levels = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
            throw HTTPProblem.invalid("level", "must be one of \(levels), not \"\(text)\"")
        }
        let lines = try query.int("lines", in: 0...RecentLog.maximumLines) ?? 200
        let (log, clock, caller) = (log, clock, context.caller)
        let body = ResponseBody { writer in
            let wakeup = Wakeup()
            let reader = log.addReader(wakeup)
            let token = caller.onGone {
                log.removeReader(reader)
                wakeup.signal()
            }
            defer {
                caller.remove(token)
                log.removeReader(reader)
            }
            var next = log.start(lines: lines)
            while true {
                let batch = log.read(from: next)
                if batch.missed > 0 {
                    try await writer.write(ByteBuffer(string: "event: dropped\ndata: {\"lines\":\(batch.missed)}\n\n"))
                }
                next = batch.next
                let events = Self.events(batch.lines.filter { $0.level >= least })
                if events.readableBytes > 0 { try await writer.write(events) }
                guard batch.lines.isEmpty else { continue }
                if log.isClosed || !log.hasReader(reader) { break }
                // Only the time makes a beat: a signal may come for a line that has been read already.
                if try await !wakeup.wait(atMost: Self.heartbeat, clock) {
                    try await writer.write(ByteBuffer(string: ":\n\n"))
                }
            }
            try await writer.finish(nil)
        }
        return Response(
            status: .ok,
            headers: [.contentType: "text/event-stream; charset=utf-8", .cacheControl: "no-store"], body: body)
    }

    private static func events(_ lines: [RecentLog.Line]) -> ByteBuffer {
        var buffer = ByteBuffer()
        for line in lines {
            buffer.writeString("event: line\ndata: {\"level\":\"\(line.level.rawValue)\",\"message\":")
            JSONString.write(line.message, into: &buffer, escaping: .allControls)
            buffer.writeString(",\"metadata\":{")
            for (index, field) in line.fields.enumerated() {
                if index > 0 { buffer.writeString(",") }
                JSONString.write(field.key, into: &buffer, escaping: .allControls)
                buffer.writeString(":")
                JSONString.write(field.value, into: &buffer, escaping: .allControls)
            }
            buffer.writeString("},\"time\":\"\(line.time)\"}\n\n")
        }
        return buffer
    }
}
