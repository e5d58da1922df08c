import AgentCore
import AgentHTTP
import HTTPTypes
import Hummingbird
import NIOCore

// A process's output as it comes: server-sent events (docs/contracts/process-api.md#output-as-it-comes) and attached
// clients (docs/contracts/process-api.md#attach).
extension ProcessRoutes {
    private static let lastEventID = HTTPField.Name("Last-Event-ID")

    func stream(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let query = try Query(request, allowed: ["offset"])
        var offset = try query.int("offset", in: 0...Int.max) ?? 0
        if let name = Self.lastEventID, let last = request.headers[name] {
            guard let resumed = Int(last), resumed >= 0 else {
                throw HTTPProblem.invalid("Last-Event-ID", "must be an id of this stream, not \"\(last)\"")
            }
            offset = resumed
        }
        let process = try find(context)
        try Self.check(offset, within: process)
        let (start, pool, manager, caller) = (offset, pool, manager, context.caller)
        let body = ResponseBody { writer in
            let follower = OutputFollower(process, pool: pool)
            let token = caller.onGone { follower.stop() }
            let heart = manager.heartbeat { follower.beat() }
            defer {
                heart.cancel()
                caller.remove(token)
                follower.stop()
            }
            var events = OutputEvents(from: start)
            loop: while true {
                switch await follower.next(from: events.offset) {
                case .bytes(let bytes):
                    let event = events.events(for: bytes)
                    if event.readableBytes > 0 { try await writer.write(event) }
                case .gone(let count): try await writer.write(events.gone(count))
                case .quiet: try await writer.write(ByteBuffer(string: ":\n\n"))
                case .ended(let snapshot):
                    try await writer.write(events.exit(OutputAnswer(process, snapshot, rendered: nil)))
                    break loop
                case .stopped: break loop
                }
            }
            try await writer.finish(nil)
        }
        return Response(
            status: .ok,
            headers: [.contentType: "text/event-stream; charset=utf-8", .cacheControl: "no-store"], body: body)
    }

    func attach(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        try WebSocketUpgrade.check(request)
        let query = try Query(request, allowed: ["offset", "token"])
        let offset = try query.int("offset", in: 0...Int.max)
        let process = try find(context)
        if let offset { try Self.check(offset, within: process) }
        let (pool, clock) = (pool, manager.configuration.clock)
        return try WebSocketUpgrade.respond(to: request, context: context) { webSocket in
            await AttachedClient(process, webSocket, pool: pool, clock: clock).run(from: offset)
        }
    }

    /// - Throws: ``HTTPProblem`` 416.
    static func check(_ offset: Int, within process: ManagedProcess) throws {
        let total = process.totalBytes
        guard offset > total else { return }
        throw HTTPProblem(
            .rangeNotSatisfiable, "Offset \(offset) is past the end.", detail: "There are \(total) bytes.",
            headers: [.contentRange: "bytes */\(total)"])
    }
}

extension ProcessManager {
    /// Calls the closure again and again, with this time between, until it is cancelled.
    func heartbeat(
        each interval: Duration = ProcLimits.streamHeartbeat, _ beat: @escaping @Sendable () -> Void
    ) -> Task<Void, Never> {
        let clock = configuration.clock
        return Task(executorPreference: executor) {
            while (try? await clock.sleep(interval)) != nil { beat() }
        }
    }
}
