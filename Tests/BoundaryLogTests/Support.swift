import AgentCore
import AgentProto
import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOCore
import NIOPosix
import SwiftProtobuf
import Synchronization
import Testing

@testable import BoundaryLog

typealias Request = Coder_Agent_V2_ReportBoundaryLogsRequest

func request(_ session: String, _ number: Int, logs: Int = 1, padding: Int = 0) -> Request {
    var request = Request()
    request.sessionID = session
    for index in 0..<logs {
        var log = Coder_Agent_V2_BoundaryLog()
        log.allowed = true
        log.sequenceNumber = UInt64(number * logs + index)
        log.httpRequest.method = "GET"
        log.httpRequest.url = "https://example.com/\(number)/" + String(repeating: "x", count: padding)
        request.logs.append(log)
    }
    return request
}

func encoded(_ request: Request) -> [UInt8] { (try? request.serializedBytes()) ?? [] }

func frame(_ request: Request, tag: UInt8 = 1) -> [UInt8] {
    var payload = encoded(request)
    if tag == 2 {
        var message = Coder_Boundarylogproxy_Codec_V1_BoundaryMessage()
        message.logs = request
        payload = (try? message.serializedBytes()) ?? []
    }
    return [tag, UInt8(payload.count >> 16), UInt8(payload.count >> 8 & 0xFF), UInt8(payload.count & 0xFF)] + payload
}

/// A queue with everything around it.
struct TestQueue {
    let queue: DurableQueue
    let registry: MetricsRegistry
    let metrics: BoundaryMetrics
    let clock: AgentClock
    let wall: Mutex2<Int64>
    let logger: Logger

    init(
        _ configuration: DurableQueue.Configuration, wall start: Int64? = nil,
        clock base: some Clock<Duration> = ContinuousClock()
    ) throws {
        registry = MetricsRegistry()
        metrics = BoundaryMetrics(registry: registry)
        let wall = Mutex2(start ?? Int64(time(nil)))
        self.wall = wall
        clock = AgentClock(base, wallSeconds: { wall.value })
        var logger = Logger(label: "test")
        logger.logLevel = getenv("TEST_LOG") == nil ? .critical : .trace
        self.logger = logger
        queue = try DurableQueue(
            configuration: configuration, clock: clock, metrics: metrics, registry: registry, logger: logger)
    }

    static func configuration(_ directory: TemporaryDirectory) -> DurableQueue.Configuration {
        var configuration = DurableQueue.Configuration(directory: directory.path)
        configuration.retry = (.milliseconds(10), .milliseconds(50))
        return configuration
    }

    @discardableResult
    func add(_ request: Request) -> Bool {
        encoded(request).withUnsafeBytes { queue.enqueue($0, [0..<$0.count], logs: request.logs.count) }
    }

    func stored() async throws {
        try await eventually("all is on disk") { queue.status.stagedBatches == 0 && queue.status.trouble == nil }
    }

    func read(after id: Int64 = 0, batches: Int = 1_000_000) async -> [QueuedBatch] {
        await queue.read(after: id, batches: batches, bytes: .max)
    }

    /// So many; a reader that comes while they are taken in may get the first of them alone.
    func read(exactly count: Int) async -> [QueuedBatch] {
        var found: [QueuedBatch] = []
        while found.count < count {
            let more = await read(after: found.last?.id ?? 0)
            if more.isEmpty { break }
            found += more
        }
        return found
    }

    /// Everything, as numbers of the first log.
    func numbers() async throws -> [Int] {
        try await eventually("readable") { queue.status.trouble == nil }
        guard queue.status.batches > 0 else { return [] }
        return await read().map {
            (try? Request(serializedBytes: $0.payload))?.logs.first.map { Int($0.sequenceNumber) } ?? -1
        }
    }

    func metric(_ line: String) -> Int {
        let text = registry.render().split(separator: "\n").first { $0.hasPrefix("agent_boundary_log_proxy_\(line) ") }
        return text.flatMap { Int($0.split(separator: " ").last ?? "") } ?? -1
    }

    func forwarder() -> BoundaryForwarder {
        BoundaryForwarder(
            queue: queue, clock: clock, metrics: metrics, logger: logger, backoff: { _ in .milliseconds(1) })
    }
}

final class Mutex2<T: Sendable>: Sendable {
    private let state: Mutex<T>
    init(_ value: T) { state = Mutex(value) }
    var value: T {
        get { state.withLock { $0 } }
        set { state.withLock { $0 = newValue } }
    }
    func update<R: Sendable>(_ body: @Sendable (inout T) -> R) -> R {
        state.withLock { body(&$0) }
    }
}

/// What a control plane got.
final class Receiver: Sendable {
    struct Failure: Error, Equatable {
        var what: String
    }

    struct State: Sendable {
        var requests: [Request] = []
        /// What to answer; nil takes it.
        var answer: (@Sendable (Request) -> Failure?)?
    }

    let state = Mutex2(State())

    @Sendable func report(_ request: Request) async throws {
        let failure: Failure? = state.update { state in
            let failure = state.answer?(request)
            if failure == nil { state.requests.append(request) }
            return failure
        }
        if let failure { throw failure }
    }

    @Sendable static func classify(_ error: any Error) -> BoundaryForwarder.Failure {
        switch (error as? Failure)?.what {
        case "refused": .refused
        case "transient": .transient
        default: .link
        }
    }

    /// Sequence numbers of a session in the order of arrival.
    func numbers(_ session: String) -> [Int] {
        state.value.requests.filter { $0.sessionID == session }.flatMap { $0.logs.map { Int($0.sequenceNumber) } }
    }

    var count: Int { state.value.requests.reduce(0) { $0 + $1.logs.count } }
}
