import AgentTestSupport
import Dispatch
import Foundation
import Glibc
import Synchronization
import Testing

/// Clients that are there before the daemon: nothing answers before everything is composed.
@Suite(.serialized, .blocking) struct StartRaceTests {
    private static let json = ["Content-Type": "application/json"]
    /// One request of each part that answers with more than itself.
    private static let requests: [@Sendable (RawConnection) throws -> RawConnection.Response] = [
        { try $0.request("GET", "/healthz") },
        { try $0.request("GET", "/api/v0/overview") },
        { try $0.request("GET", "/api/v0/units") },
        { try $0.request("POST", "/api/v0/ui/sessions", headers: json, body: "{}") },
        { try $0.request("POST", "/api/v0/processes/start", headers: json, body: #"{"command":"true"}"#) },
    ]
    /// WA_STARTS makes it more.
    private static let starts = ProcessInfo.processInfo.environment["WA_STARTS"].flatMap { Int($0) } ?? 5

    /// The first connection that succeeds.
    private static func connect(_ path: String) throws -> RawConnection {
        let deadline = ContinuousClock.now + .seconds(120)
        while true {
            if let connection = try? RawConnection(unix: path) { return connection }
            guard ContinuousClock.now < deadline else { throw DeadlineExceeded(what: "a connection to \(path)") }
            sched_yield()
        }
    }

    @Test func theFirstRequestsAreAnsweredRight() async throws {
        for _ in 0..<Self.starts {
            let directory = try TemporaryDirectory()
            let group = DispatchGroup()
            let answers = Mutex<[Result<Int, any Error>]>([])
            for request in Self.requests {
                let path = "\(directory.path)/http.sock"
                DispatchQueue.global().async(group: group) {
                    let answer = Result { try request(try Self.connect(path)).status }
                    answers.withLock { $0.append(answer) }
                }
            }
            let agentSocket = "\(directory.path)/agent.sock"
            DispatchQueue.global().async(group: group) {
                let connected = Result { _ = try Self.connect(agentSocket) }
                answers.withLock { $0.append(connected.map { 200 }) }
            }
            let daemon = try DaemonProcess(directory: directory)
            await withCheckedContinuation { continuation in group.notify(queue: .global()) { continuation.resume() } }
            let results = answers.withLock { $0 }
            #expect(results.count == Self.requests.count + 1)
            for result in results { #expect(try result.get() == 200) }
            let ping = try CommandResult.of([DaemonProcess.binary, "sync", "ping", "--socket-path", agentSocket])
            #expect(ping.output == "Success\n")
            #expect(try await daemon.stop() == 0)
        }
    }
}
