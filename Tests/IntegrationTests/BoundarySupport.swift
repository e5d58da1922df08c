import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import ControlPlaneSimulator
import Foundation
import Glibc
import NIOCore
import NIOPosix
import SwiftProtobuf
import Synchronization

@testable import BoundaryLog

typealias BoundaryRequest = Coder_Agent_V2_ReportBoundaryLogsRequest

/// Logs of boundary as a multiset: how many, and what they say.
struct BoundaryDigest: Equatable, CustomStringConvertible {
    var logs = 0
    /// The sum of a hash of each log and its session: equal for equal logs in any order.
    var sum: UInt64 = 0

    mutating func add(_ session: String, _ log: Coder_Agent_V2_BoundaryLog) {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in session.utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
        let bytes: [UInt8] = (try? log.serializedBytes()) ?? []
        for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
        logs += 1
        sum &+= hash
    }

    mutating func add(_ request: BoundaryRequest) { for log in request.logs { add(request.sessionID, log) } }

    var description: String { "\(logs) logs \(String(sum, radix: 16))" }
}

/// What a control plane got of boundary logs. A log is known by its session and sequence number.
struct BoundarySeen {
    /// Each log once.
    var digest = BoundaryDigest()
    /// Logs that came again.
    var duplicates = 0
    /// Logs that came, for the first time, after a later one of their session.
    var disorder = 0
    var requests = 0
    var sessions: [String: Set<UInt64>] = [:]
    private var last: [String: UInt64] = [:]

    mutating func add(_ request: BoundaryRequest) {
        requests += 1
        for log in request.logs {
            guard sessions[request.sessionID, default: []].insert(log.sequenceNumber).inserted else {
                duplicates += 1
                continue
            }
            digest.add(request.sessionID, log)
            if let last = last[request.sessionID], last > log.sequenceNumber { disorder += 1 }
            last[request.sessionID] = max(last[request.sessionID] ?? 0, log.sequenceNumber)
        }
    }
}

/// A control plane in this process, a network in front of it that can fail, and places for the daemon.
final class BoundaryPlane: Sendable {
    let server: SimulatorServer
    let proxy: FaultProxy
    let directory: TemporaryDirectory
    let clock: AgentClock
    private let record: Record

    private final class Record: Sendable {
        let seen = Mutex(BoundarySeen())
    }

    var seen: BoundarySeen { record.seen.withLock { $0 } }
    var arrived: Int { record.seen.withLock { $0.digest.logs } }
    var socket: String { "\(directory.path)/boundary.sock" }
    var database: String { "\(directory.path)/state/boundary-logs/queue.db" }

    init() async throws {
        let group = MultiThreadedEventLoopGroup.singleton
        clock = AgentClock(EventLoopClock(group: group))
        directory = try TemporaryDirectory()
        let record = Record()
        self.record = record
        var kept = Recorder.Configuration()
        kept.keptByRPC = ["ReportBoundaryLogs": 0]
        let recorder = Recorder(
            configuration: kept, clock: clock,
            onEvent: { event in
                guard case .call(let call) = event, call.outcome == .answered,
                    let request = call.request as? BoundaryRequest
                else { return }
                record.seen.withLock { $0.add(request) }
            })
        let service = AgentService(
            configuration: .init(manifest: try SimulatedManifest(json: Array(#"{"directory": "/tmp"}"#.utf8))),
            recorder: recorder, clock: clock)
        server = try await SimulatorServer.start(
            configuration: .init(token: Secret("boundary-test")), service: service, group: group)
        guard let address = server.address else { throw DeadlineExceeded(what: "the simulator listens") }
        proxy = try await FaultProxy.start(to: address, group: group)
        try "boundary-test".write(toFile: "\(directory.path)/token", atomically: true, encoding: .utf8)
    }

    /// Starts the daemon, in the same directories each time.
    func daemon(arguments: [String] = [], logLevel: String = "info") throws -> DaemonProcess {
        try DaemonProcess(
            arguments: [
                "--agent-url", "http://127.0.0.1:\(proxy.port)", "--agent-token-file", "\(directory.path)/token",
            ]
                + arguments, logLevel: logLevel, directory: directory)
    }

    /// Ends the connection and resets every further one. The port stays ours meanwhile.
    func down() async {
        server.faults.planConnection(.reset, times: nil)
        await proxy.cut()
    }

    func up() { server.faults.clearConnections() }

    /// Waits until so many different logs have come.
    func arrived(_ logs: Int, within limit: Duration = .seconds(60)) async throws {
        try await eventually("\(logs) boundary logs arrive; \(arrived) have", within: limit) { arrived >= logs }
    }

    func stop() async {
        await proxy.stop()
        await server.stop()
    }
}

/// Writes batches as boundary does: numbered within a session, never waiting for an answer.
struct BoundaryWriter {
    let session: String
    var logs = 1
    var padding = 40
    private(set) var next: UInt64 = 0
    /// Of everything that was handed to the socket.
    private(set) var digest = BoundaryDigest()

    init(_ session: String, logs: Int = 1, padding: Int = 40) {
        (self.session, self.logs, self.padding) = (session, logs, padding)
    }

    func request(_ first: UInt64) -> BoundaryRequest {
        var request = BoundaryRequest()
        request.sessionID = session
        request.confinedProcessName = "agent"
        for number in first..<first + UInt64(logs) {
            var log = Coder_Agent_V2_BoundaryLog()
            log.allowed = number % 3 != 0
            log.time.seconds = 1_700_000_000 + Int64(number)
            log.sequenceNumber = number
            log.httpRequest.method = "GET"
            log.httpRequest.url = "https://example.com/\(number)/" + String(repeating: "x", count: padding)
            request.logs.append(log)
        }
        return request
    }

    /// The next batch's frame.
    mutating func frame(tag: UInt8 = 1) -> [UInt8] {
        let request = request(next)
        next += UInt64(logs)
        digest.add(request)
        return Self.frame(request, tag: tag)
    }

    mutating func frames(_ count: Int, tag: UInt8 = 1) -> Data {
        var data = Data()
        for _ in 0..<count { data += frame(tag: tag) }
        return data
    }

    static func frame(_ request: BoundaryRequest, tag: UInt8 = 1) -> [UInt8] {
        if tag == 2 {
            var message = Coder_Boundarylogproxy_Codec_V1_BoundaryMessage()
            message.logs = request
            return frame((try? message.serializedBytes()) ?? [], tag: 2)
        }
        return frame((try? request.serializedBytes()) ?? [], tag: tag)
    }

    static func frame(_ payload: [UInt8], tag: UInt8) -> [UInt8] {
        let n = payload.count
        return [tag, UInt8(n >> 16 & 0xff), UInt8(n >> 8 & 0xff), UInt8(n & 0xff)] + payload
    }
}

/// A thread that writes at a rate and connects again whenever it has to.
final class SteadyWriter: Sendable {
    struct Progress: Sendable {
        /// Batches whose bytes the kernel took whole.
        var written: UInt64 = 0
        var connects = 0
        var ended = false
    }

    private let progress = Mutex(Progress())
    private let stopped = Mutex(false)

    var state: Progress { progress.withLock { $0 } }

    /// - Parameters:
    ///   - rate: batches per second.
    ///   - count: after so many it ends.
    init(_ writer: BoundaryWriter, to path: String, rate: Int, count: UInt64 = .max) {
        Thread.detachNewThread { [self] in
            run(writer, path, rate, count)
            progress.withLock { $0.ended = true }
        }
    }

    func stop() async throws {
        stopped.withLock { $0 = true }
        try await eventually("the writer ends") { state.ended }
    }

    private func run(_ writer: BoundaryWriter, _ path: String, _ rate: Int, _ count: UInt64) {
        var writer = writer
        var connection: RawConnection?
        let begin = ContinuousClock.now
        while !stopped.withLock({ $0 }), writer.next < count {
            let due = begin + .nanoseconds(Int64(writer.next) * (1_000_000_000 / Int64(rate)))
            let ahead = ContinuousClock.now.duration(to: due)
            if ahead > .milliseconds(2) { poll(nil, 0, CInt(ahead / .milliseconds(1))) }
            let frame = Data(writer.frame())
            while !stopped.withLock({ $0 }) {
                if connection == nil, let fresh = try? RawConnection(unix: path) {
                    connection = fresh
                    progress.withLock { $0.connects += 1 }
                }
                // One that breaks off in the middle leaves half a frame at the end of its connection.
                if let open = connection, (try? open.send(frame)) != nil {
                    progress.withLock { $0.written += 1 }
                    break
                }
                connection = nil
                poll(nil, 0, 5)
            }
        }
    }
}

/// What a dead daemon's database holds, read from a copy: session and number of each log.
func boundaryLogs(inCopyOf database: String) throws -> [String: Set<UInt64>] {
    let copy = try TemporaryDirectory()
    let manager = FileManager.default
    guard manager.fileExists(atPath: database) else { return [:] }
    for suffix in ["", "-wal"] where manager.fileExists(atPath: database + suffix) {
        try manager.copyItem(atPath: database + suffix, toPath: "\(copy.path)/queue.db\(suffix)")
    }
    let opened = try QueueDatabase(path: "\(copy.path)/queue.db")
    var result: [String: Set<UInt64>] = [:]
    for batch in try opened.read(after: 0, batches: .max, bytes: .max) {
        let request = try BoundaryRequest(serializedBytes: batch.payload)
        result[request.sessionID, default: []].formUnion(request.logs.map(\.sequenceNumber))
    }
    return result
}
