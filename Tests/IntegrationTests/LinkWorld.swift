import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import DRPC
import Foundation
import NIOCore
import NIOPosix
import SwiftProtobuf
import Synchronization

@testable import ControlPlaneSimulator

typealias LifecycleState = Coder_Agent_V2_Lifecycle.State

/// A simulated control plane, and daemons of the built binary that are told to connect to it.
final class LinkWorld: Sendable {
    static let token = "5c5f5d1e-8a7e-4d6e-9a5d-0f6c2d5b7a11"

    let server: SimulatorServer
    /// Between the daemon and the server, where it was asked for.
    let proxy: FaultProxy?
    let directory: TemporaryDirectory
    private let group = MultiThreadedEventLoopGroup.singleton
    private let slot: Slot
    private let isStopped = Atomic(false)

    var recorder: Recorder { server.recorder }
    var faults: Faults { server.faults }
    var tokenFile: String { "\(directory.path)/token" }
    /// What the daemon is given as --agent-url.
    var url: String { proxy.map { "http://127.0.0.1:\($0.port)" } ?? server.url }

    /// - Parameters:
    ///   - manifest: changes the one that has ids, names and a directory, and nothing else.
    init(
        proxied: Bool = false, address: SimulatorServer.Address = .tcp(),
        directory: TemporaryDirectory? = nil, version: APIVersion = APIVersion(2, 10),
        server changeServer: (inout SimulatorServer.Configuration) -> Void = { _ in },
        service change: (inout AgentService.Configuration) -> Void = { _ in },
        manifest: (inout Coder_Agent_V2_Manifest, String) -> Void
    ) async throws {
        let slot = await Slot.take()
        let directory = try directory ?? TemporaryDirectory()
        self.directory = directory
        self.slot = slot
        let clock = AgentClock(EventLoopClock(group: group))
        var message = Coder_Agent_V2_Manifest()
        message.agentID = Self.id()
        message.workspaceID = Self.id()
        message.agentName = "main"
        message.workspaceName = "link-tests"
        message.ownerUsername = "developer"
        message.directory = directory.path
        manifest(&message, directory.path)
        var service = AgentService.Configuration(manifest: SimulatedManifest(message))
        service.statsInterval = .seconds(1)
        service.resources.config.collectionIntervalSeconds = 1
        service.resources.config.numDatapoints = 1
        change(&service)
        var configuration = SimulatorServer.Configuration(token: Secret(Self.token))
        configuration.address = address
        configuration.maximumVersion = version
        changeServer(&configuration)
        server = try await SimulatorServer.start(
            configuration: configuration,
            service: AgentService(configuration: service, recorder: Recorder(clock: clock), clock: clock),
            group: group)
        guard let bound = server.address else { throw DeadlineExceeded(what: "the simulator's address") }
        proxy = proxied ? try await FaultProxy.start(to: bound, group: group) : nil
        try Data(Self.token.utf8).write(to: URL(fileURLWithPath: tokenFile))
    }

    /// Starts a daemon; it has told systemd that it is ready, and connects by itself.
    func daemon(
        arguments: [String] = [], environment: [String: String] = [:], wrapper: [String] = [],
        logLevel: String = "debug", url: String? = nil, tcp: Bool = false
    ) throws -> DaemonProcess {
        let link = [
            "--agent-url", url ?? self.url, "--agent-token-file", tokenFile, "--boundary-log-proxy-socket-path",
            "\(directory.path)/boundary.sock",
        ]
        return try DaemonProcess(
            tcp: tcp, arguments: link + arguments,
            environment: ["HOME": directory.path].merging(environment) { _, new in new },
            wrapper: wrapper, logLevel: logLevel, directory: directory)
    }

    /// A test that did not come to its end has failed: what the daemon logged tells why.
    deinit {
        guard !isStopped.load(ordering: .relaxed) else { return }
        let log = (try? String(contentsOfFile: "\(directory.path)/human.log", encoding: .utf8)) ?? "no log"
        DaemonProcess.report("a test with a daemon in \(directory.path) did not come to its end", log: log)
    }

    /// Ends proxy and server.
    func stop() async {
        isStopped.store(true, ordering: .relaxed)
        await proxy?.stop()
        await server.stop()
    }

    /// Paths with queries of the answered REST requests for this, oldest first.
    func requests(_ name: String) -> [String] {
        recorder.recording.connectionEvents.compactMap { event in
            guard case .answered(_, let path, _) = event.change, path.contains(name) else { return nil }
            return path
        }
    }

    static func id() -> Data { withUnsafeBytes(of: UUID().uuid) { Data($0) } }

    static func script(
        _ name: String, _ text: String, _ change: (inout Coder_Agent_V2_WorkspaceAgentScript) -> Void = { _ in }
    ) -> Coder_Agent_V2_WorkspaceAgentScript {
        var script = Coder_Agent_V2_WorkspaceAgentScript()
        script.id = id()
        script.logSourceID = id()
        script.displayName = name
        script.script = text
        script.runOnStart = true
        script.timeout = Google_Protobuf_Duration(seconds: 600)
        change(&script)
        return script
    }

    static func metadata(
        _ key: String, _ script: String, every seconds: Int64 = 0
    ) -> Coder_Agent_V2_WorkspaceAgentMetadata.Description {
        var description = Coder_Agent_V2_WorkspaceAgentMetadata.Description()
        description.key = key
        description.displayName = key
        description.script = script
        description.interval = Google_Protobuf_Duration(seconds: seconds)
        description.timeout = Google_Protobuf_Duration(seconds: 60)
        return description
    }

    static func app(_ slug: String, health url: String? = nil) -> Coder_Agent_V2_WorkspaceApp {
        var app = Coder_Agent_V2_WorkspaceApp()
        app.id = id()
        app.slug = slug
        app.sharingLevel = .owner
        app.health = .disabled
        guard let url else { return app }
        app.url = url
        app.healthcheck.url = url
        app.healthcheck.interval = Google_Protobuf_Duration(seconds: 1)
        app.healthcheck.threshold = 1
        app.health = .initializing
        return app
    }

    /// Waits until the state was reported and taken.
    @discardableResult
    func reported(_ state: LifecycleState, within limit: Duration = .seconds(40)) async throws -> Recording {
        try await recorder.wait("\(state) is reported", within: limit) { $0.states.contains(state) }
    }
}

/// One of the places for tests that run at once: more daemons than that would only wait for each other,
/// and run into deadlines.
final class Slot: Sendable {
    private struct State {
        var free = 8
        var waiting: [CheckedContinuation<Void, Never>] = []
    }
    private static let state = Mutex(State())

    static func take() async -> Slot {
        await withCheckedContinuation { continuation in
            let isFree = state.withLock { state in
                if state.free > 0 {
                    state.free -= 1
                    return true
                }
                state.waiting.append(continuation)
                return false
            }
            if isFree { continuation.resume() }
        }
        return Slot()
    }

    private init() {}

    deinit {
        let next = Self.state.withLock { state in
            if state.waiting.isEmpty { state.free += 1 }
            return state.waiting.isEmpty ? nil : state.waiting.removeFirst()
        }
        next?.resume()
    }
}

extension Recording {
    /// Lifecycle states that took effect. One whose answer was lost comes again on the next connection
    /// and counts once.
    var states: [LifecycleState] {
        var states: [LifecycleState] = []
        var last = 0
        for call in calls(AgentAPI.updateLifecycle) where call.outcome == .answered {
            guard let request = call.request as? Coder_Agent_V2_UpdateLifecycleRequest else { continue }
            let state = request.lifecycle.state
            if states.last != state || call.connection == last { states.append(state) }
            last = call.connection
        }
        return states
    }

    /// Lines of a log source, as often as they came.
    func lines(_ source: Data, _ level: Coder_Agent_V2_Log.Level? = nil) -> [String] {
        requests(AgentAPI.batchCreateLogs).filter { $0.logSourceID == source }.flatMap(\.logs)
            .filter { level == nil || $0.level == level }.map(\.output)
    }

    /// Lines of all log sources. A batch whose answer was lost comes again as it was, and counts once.
    func linesOnce(_ source: Data) -> [String] {
        let batches = requests(AgentAPI.batchCreateLogs).filter { $0.logSourceID == source }
        return batches.enumerated().filter { $0.offset == 0 || batches[$0.offset - 1] != $0.element }
            .flatMap { $0.element.logs.map(\.output) }
    }

    /// Text of what broke the contract.
    var violations: [String] { refusals.map { "\($0.rpc): \($0.outcome)" } }

    /// Why connections ended.
    var ends: [String] {
        connectionEvents.compactMap { if case .closed(let reason) = $0.change { reason } else { nil } }
    }
}

extension DaemonProcess {
    /// What /healthz says of the control plane.
    func linkHealth() throws -> String {
        let reasons = try connect().request("GET", "/healthz").json["reasons"] as? [String] ?? []
        return reasons.first { $0.hasPrefix("control plane:") } ?? ""
    }

    var agentSocketPath: String { "\(directory.path)/agent.sock" }
}

/// Asks the local HTTP API again and again for as long as it lives, and counts what goes wrong.
final class Poller: Sendable {
    private struct State {
        var answers = 0
        var failures: [String] = []
    }
    private let state = Mutex(State())
    private let task = Mutex<Task<Void, Never>?>(nil)

    init(_ daemon: DaemonProcess) {
        let clock = AgentClock(EventLoopClock(group: MultiThreadedEventLoopGroup.singleton))
        let work = Task(executorPreference: BlockingExecutor.shared) { [weak self] in
            while !Task.isCancelled {
                let problem: String?
                do {
                    let response = try daemon.connect(timeout: 60).request("GET", "/healthz")
                    problem = response.status == 200 ? nil : "status \(response.status)"
                } catch {
                    problem = "\(error)"
                }
                self?.note(problem)
                try? await clock.sleep(.milliseconds(20))
            }
        }
        task.withLock { $0 = work }
    }

    deinit { task.withLock { $0 }?.cancel() }

    private func note(_ problem: String?) {
        state.withLock { state in
            if let problem { state.failures.append(problem) } else { state.answers += 1 }
        }
    }

    /// - Returns: answers and failures until now.
    func end() async -> (answers: Int, failures: [String]) {
        let work = task.withLock { $0.take() }
        work?.cancel()
        await work?.value
        return state.withLock { ($0.answers, $0.failures) }
    }
}
