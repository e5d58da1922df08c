import AgentProto
import DRPC
import NIOCore

/// A client of the agent socket, of our server and of older ones.
public struct AgentSocketClient: Sendable {
    private let client: RPCClient

    /// Connects to the socket at a path.
    /// - Throws: `DRPCError` with code `closed` when no server listens there.
    public static func connect(
        path: String, group: any EventLoopGroup, timeout: TimeAmount = .seconds(10)
    ) async throws -> AgentSocketClient {
        AgentSocketClient(client: try await RPCClient.connect(unixPath: path, group: group, timeout: timeout))
    }

    /// The loop that the connection lives on.
    public var eventLoop: any EventLoop { client.eventLoop }

    /// Closes the connection.
    public func close() async { await client.close() }

    /// Asks whether the agent answers.
    public func ping() async throws { _ = try await client.unary(AgentSocketAPI.ping, .init()) }

    /// Says that the unit wants the dependency to be completed before it starts.
    public func want(_ unit: String, dependsOn: String) async throws {
        _ = try await client.unary(
            AgentSocketAPI.syncWant,
            .with {
                $0.unit = unit
                $0.dependsOn = dependsOn
            })
    }

    /// Marks the unit started.
    public func start(_ unit: String) async throws {
        _ = try await client.unary(AgentSocketAPI.syncStart, .with { $0.unit = unit })
    }

    /// Marks the unit completed.
    public func complete(_ unit: String) async throws {
        _ = try await client.unary(AgentSocketAPI.syncComplete, .with { $0.unit = unit })
    }

    /// Whether all that the unit wants is completed.
    public func isReady(_ unit: String) async throws -> Bool {
        try await client.unary(AgentSocketAPI.syncReady, .with { $0.unit = unit }).ready
    }

    /// What is known of the unit.
    public func status(_ unit: String) async throws -> UnitReport {
        Self.report(unit, try await client.unary(AgentSocketAPI.syncStatus, .with { $0.unit = unit }))
    }

    /// The registered units, without their dependencies.
    public func list() async throws -> [UnitReport] {
        try await client.unary(AgentSocketAPI.syncList, .init()).units.map {
            UnitReport(unit: $0.unit, status: $0.status, isReady: $0.isReady)
        }
    }

    /// Waits until the unit is ready. The server reports it; an older one is polled each `pollInterval`.
    public func waitUntilReady<C: Clock>(
        _ unit: String, pollInterval: C.Duration, clock: C
    ) async throws {
        do {
            let ready = try await client.withServerStream(
                AgentSocketAPI.syncWait, .with { $0.unit = unit }
            ) { responses in
                // Read to the end: leaving early would cancel the call, and with it close the connection.
                var ready = false
                for try await response in responses { ready = response.isReady }
                return ready
            }
            if ready { return }
        } catch let error as DRPCError where error.isUnknownRPC {
            // The server is an older one.
        }
        while try await !isReady(unit) { try await clock.sleep(for: pollInterval) }
    }

    /// What happened to the units so far, oldest first.
    public func history() async throws -> [UnitEvent] {
        try await client.withServerStream(AgentSocketAPI.syncEvents, .with { $0.historyOnly = true }) { responses in
            var events: [UnitEvent] = []
            for try await response in responses { events.append(Self.event(response)) }
            return events
        }
    }

    /// What happened to the units so far, oldest first, and then what happens, until the task is
    /// cancelled or the agent ends.
    public func follow(_ body: (UnitEvent) async throws -> Void) async throws {
        try await client.withServerStream(AgentSocketAPI.syncEvents, .init()) { responses in
            for try await response in responses { try await body(Self.event(response)) }
        }
    }

    /// Passes the status of an app upward.
    package func updateAppStatus(_ request: Coder_Agent_V2_UpdateAppStatusRequest) async throws {
        _ = try await client.unary(AgentSocketAPI.updateAppStatus, request)
    }

    /// Asks for what git is to log in with.
    /// - Throws: `DRPCError`; `isUnknownRPC` when the server has no control plane to ask, or is another program.
    package func gitLogin(
        _ request: Coder_Agentsocket_V1_GitLoginRequest
    ) async throws -> Coder_Agentsocket_V1_GitLoginResponse {
        try await client.unary(AgentSocketAPI.gitLogin, request)
    }

    private static func event(_ event: Coder_Agentsocket_V1_UnitEvent) -> UnitEvent {
        UnitEvent(
            unit: event.unit, status: event.status,
            at: UnitInstant(seconds: event.at.seconds, nanoseconds: event.at.nanos))
    }

    private static func report(_ unit: String, _ response: Coder_Agentsocket_V1_SyncStatusResponse) -> UnitReport {
        UnitReport(
            unit: unit, status: response.status, isReady: response.isReady,
            dependencies: response.dependencies.map {
                UnitReport.Dependency(
                    dependsOn: $0.dependsOn, requiredStatus: $0.requiredStatus, currentStatus: $0.currentStatus,
                    isSatisfied: $0.isSatisfied)
            })
    }
}
