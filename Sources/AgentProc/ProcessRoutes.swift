import AgentCore
import AgentHTTP
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore

/// The routes below /api/v0/processes (docs/contracts/process-api.md#routes-of-the-stock-agent).
public struct ProcessRoutes: Sendable {
    static let base = "/api/v0/processes"

    let manager: ProcessManager
    let pool: BlockingPool
    private let work: WaitWork

    /// - Parameters:
    ///   - pool: where spooled output is read.
    ///   - work: where waits look for what they wait for.
    public init(manager: ProcessManager, pool: BlockingPool, work: WaitWork = WaitWork()) {
        self.manager = manager
        self.pool = pool
        self.work = work
    }

    public func add(to routes: AgentRoutes) {
        routes.post("\(Self.base)/start", bodyLimit: ProcLimits.startBodyBytes, start)
        routes.get("\(Self.base)/list", list)
        routes.get("\(Self.base)/tokens/{token}", token)
        routes.get("\(Self.base)/{id}/output", output)
        routes.get("\(Self.base)/{id}/output/raw", raw)
        routes.get("\(Self.base)/{id}/output/stream", stream)
        routes.get("\(Self.base)/{id}/wait", wait)
        routes.webSocket("\(Self.base)/{id}/attach", changes: true, attach)
        routes.post("\(Self.base)/{id}/signal", signal)
    }

    private func start(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        let (wait, start) = try await request.decodeJSON(StartBody.self) { (try $0.wait(), try $0.validated()) }
        let started = try await answering { try await manager.start(start, chat: context.chat) }
        let answer = StartAnswer(
            id: started.id.lowercased, started: !started.attached, attached: started.attached ? true : nil)
        guard let wait, let process = manager.find(answer.id, chat: context.chat) else { return .json(answer) }
        await manager.awaitEnd(of: process, atMost: wait, context.caller)
        return .json(RunAnswer(start: answer, output: OutputAnswer(process)))
    }

    private func list(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let query = try Query(request, allowed: ["limit", "running"])
        let limit = try query.int("limit", in: 1...ProcLimits.maximumList) ?? ProcLimits.defaultList
        let found = manager.list(chat: context.chat, limit: limit, running: try query.bool("running"))
        return ProcessList(found.map(\.description.id), manager).response
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
        if wait { await manager.awaitEnd(of: process, atMost: .milliseconds(timeout), context.caller) }
        return .json(OutputAnswer(process))
    }

    private func wait(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let begin = manager.configuration.clock.now()
        let query = try Query(request, allowed: WaitCondition.keys)
        let condition = try WaitCondition(query)
        let time = try query.int("timeout_ms", in: 0...ProcLimits.waitMilliseconds) ?? ProcLimits.waitMilliseconds
        let process = try find(context)
        let outcome = try await ConditionWait(manager: manager, process: process, pool: pool, work: work)
            .run(condition, atMost: .milliseconds(time), context.caller)
        let (seconds, attoseconds) = (manager.configuration.clock.now() - begin).components
        var answer = WaitAnswer(
            condition: condition, isMet: false, milliseconds: seconds * 1_000 + attoseconds / 1_000_000_000_000_000)
        switch outcome {
        case .met(let match): (answer.isMet, answer.match) = (true, match)
        case .unmet(let isCutShort): answer.isCutShort = isCutShort
        }
        if case .exit = condition {
            answer.state = OutputAnswer(process)
        } else if !answer.isMet {
            answer.state = OutputAnswer(process)
        }
        return .json(answer)
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
        try Self.check(offset, within: process)
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
                let count = min(ProcLimits.rawBytes, range.upperBound - offset)
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

    func find(_ context: AgentRequestContext) throws -> ManagedProcess {
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
