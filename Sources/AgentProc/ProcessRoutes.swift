import AgentCore
import AgentHTTP
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore

/// The routes below /api/v0/processes (spec: process API).
public struct ProcessRoutes: Sendable {
    static let base = "/api/v0/processes"
    /// Bytes read from disk and sent at once.
    private static let rawChunk = 256 << 10

    private let manager: ProcessManager
    private let pool: BlockingPool

    /// - Parameter pool: where spooled output is read.
    public init(manager: ProcessManager, pool: BlockingPool) {
        self.manager = manager
        self.pool = pool
    }

    public func add(to routes: AgentRoutes) {
        routes.post("\(Self.base)/start", bodyLimit: ProcLimits.startBodyBytes, start)
        routes.get("\(Self.base)/list", list)
        routes.get("\(Self.base)/tokens/{token}", token)
        routes.get("\(Self.base)/{id}/output", output)
        routes.get("\(Self.base)/{id}/output/raw", raw)
        routes.post("\(Self.base)/{id}/signal", signal)
    }

    private func start(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        let body = try await request.decodeJSON(StartBody.self)
        let started = try await answering {
            try await manager.start(try body.validated(), chat: context.chat)
        }
        return .json(
            StartAnswer(
                id: started.id.lowercased, started: !started.attached, attached: started.attached ? true : nil))
    }

    private func list(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let query = try Query(request, allowed: ["limit", "running"])
        let limit = try query.int("limit", in: 1...ProcLimits.maximumList) ?? ProcLimits.defaultList
        let found = manager.list(chat: context.chat, limit: limit, running: try query.bool("running"))
        return .json(ListAnswer(processes: found.map { ProcessInfo($0) }))
    }

    private func token(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        let token = try context.pathParameter("token")
        let id = manager.process(forToken: token, chat: context.chat)
        return .json(TokenAnswer(found: id != nil, process_id: id?.lowercased))
    }

    private func output(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let query = try Query(request, allowed: ["wait", "timeout_ms"])
        let wait = try query.bool("wait") ?? false
        let timeout = try query.int("timeout_ms", in: 0...ProcLimits.waitMilliseconds) ?? ProcLimits.waitMilliseconds
        let process = try find(context)
        if wait {
            let caller = context.caller
            var token: Int?
            await manager.wait(for: process, atMost: .milliseconds(timeout)) { token = caller.onGone($0) }
            if let token { caller.remove(token) }
        }
        return .json(OutputAnswer(process))
    }

    private func signal(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        struct Body: Decodable { var signal: String? }
        _ = try Query(request, allowed: [])
        let body = try await request.decodeJSON(Body.self)
        let process = try find(context)
        guard let name = body.signal, !name.isEmpty else { throw HTTPProblem(.badRequest, "Signal is required.") }
        guard let number = SignalName.number(name) else {
            throw HTTPProblem(.badRequest, "Unsupported signal \"\(name)\". Use \"kill\" or \"terminate\".")
        }
        let id = process.description.id.lowercased
        try await answering(id) { try await manager.signal(process, number) }
        return .json(MessageAnswer(message: "Signal \"\(name)\" sent to process \"\(id)\"."))
    }

    private func raw(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let query = try Query(request, allowed: ["offset", "limit"])
        let offset = try query.int("offset", in: 0...Int.max) ?? 0
        let limit = try query.int("limit", in: 1...Int.max) ?? Int.max
        let process = try find(context)
        let total = process.totalBytes
        guard offset <= total else {
            throw HTTPProblem(
                .rangeNotSatisfiable, "Offset \(offset) is past the end.", detail: "There are \(total) bytes.",
                headers: [.contentRange: "bytes */\(total)"])
        }
        guard offset < total else { return Self.rawResponse(.ok, range: "bytes */\(total)", ResponseBody()) }
        guard let spool = process.spool else {
            throw HTTPProblem(.gone, "The complete output is not kept.", detail: "The agent runs without a spool.")
        }
        let available: Int
        switch await spool.availability() {
        case .upTo(let end): available = min(end, total)
        case .dropped(let why): throw HTTPProblem(.gone, "The complete output is gone.", detail: "\(why).")
        }
        guard offset < available else {
            throw HTTPProblem(
                .gone, "The output from offset \(offset) is gone.",
                detail: "The first \(available) of \(total) bytes are kept.")
        }
        let end = limit < available - offset ? offset + limit : available
        let whole = offset == 0 && end == total
        return Self.rawResponse(
            whole ? .ok : .partialContent, range: "bytes \(offset)-\(end - 1)/\(total)",
            body(of: spool, offset..<end))
    }

    private func body(of spool: Spool, _ range: Range<Int>) -> ResponseBody {
        let pool = pool
        return ResponseBody(contentLength: range.count) { writer in
            var offset = range.lowerBound
            while offset < range.upperBound {
                let count = min(Self.rawChunk, range.upperBound - offset)
                let start = offset
                let chunk = try await pool.run { try spool.read(offset: start, count: count) }
                // The file went away below us: break the answer off rather than end it early.
                guard chunk.readableBytes > 0 else { throw CoreError.system(EIO, "spooled output ended early") }
                offset += chunk.readableBytes
                try await writer.write(chunk)
            }
            try await writer.finish(nil)
        }
    }

    private static func rawResponse(
        _ status: HTTPResponse.Status, range: String, _ body: ResponseBody
    ) -> Response {
        Response(
            status: status, headers: [.contentType: "application/octet-stream", .contentRange: range], body: body)
    }

    private func find(_ context: AgentRequestContext) throws -> ManagedProcess {
        let id = try context.pathParameter("id")
        guard let process = manager.find(id, chat: context.chat) else {
            throw HTTPProblem(.notFound, "Process \"\(id)\" not found.")
        }
        return process
    }

    /// Turns the manager's refusals into answers.
    private func answering<T: Sendable>(_ id: String = "", _ body: () async throws -> T) async throws -> T {
        do {
            return try await body()
        } catch let error as ProcError {
            throw Self.problem(error, id)
        }
    }

    private static func problem(_ error: ProcError, _ id: String) -> HTTPProblem {
        let failed = "Failed to start process."
        return switch error.code {
        case .shuttingDown: .shuttingDown
        case .tooManyProcesses: HTTPProblem(.tooManyRequests, "Too many running processes.", detail: error.detail)
        case .startTooLarge:
            HTTPProblem(
                .contentTooLarge, failed,
                detail: "Command and environment together are larger than the kernel takes.")
        case .startFailed(let launch) where launch.stage == .resources:
            // The machine's limit rather than ours: the same request may work later.
            HTTPProblem(.tooManyRequests, failed, detail: error.detail, cause: error)
        case .startFailed: HTTPProblem(.badRequest, failed, detail: error.detail)
        case .tokenConflict:
            HTTPProblem(.conflict, "The client token was used for a different request.")
        case .notFound: HTTPProblem(.notFound, "Process \"\(id)\" not found.")
        case .notRunning: HTTPProblem(.conflict, "Process \"\(id)\" is not running.")
        case .notPermitted:
            HTTPProblem(.internalServerError, "Failed to signal process.", detail: error.detail, cause: error)
        }
    }
}
