import AgentProto
import FoundationEssentials
import NIOCore
import SwiftProtobuf

/// Why a call is answered with an error.
struct Refusal: Error, Equatable {
    var text: String
    init(_ text: String) { self.text = text }
}

/// What the control plane knows of one agent: checks each report against the manifest and what came
/// before (docs/contracts/agent-api.md, docs/contracts/control-plane.md).
struct ControlPlaneState: Sendable {
    typealias LifecycleState = Coder_Agent_V2_Lifecycle.State

    var manifest: Coder_Agent_V2_Manifest
    /// Bytes of log text that are stored before `log_limit_exceeded`; nil for no limit.
    var logLimit: Int?
    private(set) var lifecycle: Coder_Agent_V2_Lifecycle?
    private var lifecycleConnection = 0
    private(set) var logBytes = 0
    private(set) var logLimitExceeded = false
    private(set) var healths: [Data: Coder_Agent_V2_AppHealth] = [:]
    private(set) var subAgents: [Coder_Agent_V2_SubAgent] = []

    init(manifest: Coder_Agent_V2_Manifest, logLimit: Int? = nil) {
        self.manifest = manifest
        self.logLimit = logLimit
    }

    // MARK: Lifecycle

    /// States that may follow. An agent begins anew with STARTING or, when it is stopped before its
    /// first manifest, SHUTTING_DOWN; the same state again is a report whose answer was lost.
    private static func follows(_ new: LifecycleState, _ old: LifecycleState?) -> Bool {
        guard let old else { return [.starting, .shuttingDown].contains(new) }
        if new == old { return true }
        return switch old {
        case .starting: [.ready, .startTimeout, .startError, .shuttingDown].contains(new)
        case .startTimeout: [.ready, .startError, .shuttingDown].contains(new)
        case .ready, .startError: new == .shuttingDown
        case .shuttingDown: [.off, .shutdownTimeout, .shutdownError].contains(new)
        case .shutdownTimeout: [.off, .shutdownError].contains(new)
        default: false
        }
    }

    mutating func updateLifecycle(
        _ request: Coder_Agent_V2_UpdateLifecycleRequest, connection: Int
    ) throws(Refusal) -> Coder_Agent_V2_Lifecycle {
        let new = request.lifecycle
        guard Self.isKnown(new.state), new.state != .unspecified else {
            throw Refusal("unknown lifecycle state: \(new.state.rawValue)")
        }
        guard new.state != .created else {
            throw Refusal("lifecycle CREATED is never reported: the control plane begins with it by itself")
        }
        guard new.hasChangedAt else { throw Refusal("lifecycle \(Self.name(new.state)): changed_at is missing") }
        let isOver = [.off, .shutdownError, .shutdownTimeout].contains(lifecycle?.state)
        // A new connection may be a new agent, after one that crashed.
        let mayBegin = isOver || connection > lifecycleConnection
        guard Self.follows(new.state, lifecycle?.state) || (mayBegin && Self.follows(new.state, nil)) else {
            // Of a connection that was cut something may be left that its successor has said again since.
            if connection < lifecycleConnection { return new }
            let old = lifecycle.map { Self.name($0.state) } ?? "nothing"
            throw Refusal("lifecycle \(Self.name(new.state)) cannot follow \(old)")
        }
        lifecycle = new
        lifecycleConnection = connection
        return new
    }

    private static func isKnown(_ value: some SwiftProtobuf.Enum & CaseIterable) -> Bool {
        type(of: value).allCases.contains { $0.rawValue == value.rawValue }
    }

    static func name(_ state: LifecycleState) -> String {
        switch state {
        case .unspecified: "UNSPECIFIED"
        case .created: "CREATED"
        case .starting: "STARTING"
        case .startTimeout: "START_TIMEOUT"
        case .startError: "START_ERROR"
        case .ready: "READY"
        case .shuttingDown: "SHUTTING_DOWN"
        case .shutdownTimeout: "SHUTDOWN_TIMEOUT"
        case .shutdownError: "SHUTDOWN_ERROR"
        case .off: "OFF"
        case .UNRECOGNIZED(let number): "\(number)"
        }
    }

    // MARK: Scripts and their logs

    mutating func createLogs(
        _ request: Coder_Agent_V2_BatchCreateLogsRequest
    ) throws(Refusal) -> Coder_Agent_V2_BatchCreateLogsResponse {
        guard let source = UUID(data: request.logSourceID) else {
            throw Refusal("log_source_id has \(request.logSourceID.count) bytes, not 16")
        }
        guard manifest.scripts.contains(where: { $0.logSourceID == request.logSourceID }) else {
            throw Refusal("unknown log source \(source)")
        }
        let size = (try? request.serializedBytes() as [UInt8])?.count ?? 0
        guard size <= SimulatorLimits.logBatchBytes else {
            throw Refusal("the batch has \(size) bytes; at most \(SimulatorLimits.logBatchBytes) are taken")
        }
        for (index, log) in request.logs.enumerated() {
            guard Self.isKnown(log.level), log.level != .unspecified else {
                throw Refusal("logs[\(index)]: unknown level \(log.level.rawValue)")
            }
            guard log.hasCreatedAt else { throw Refusal("logs[\(index)]: created_at is missing") }
            guard !log.output.utf8.contains(0) else { throw Refusal("logs[\(index)]: the text has a NUL") }
        }
        var response = Coder_Agent_V2_BatchCreateLogsResponse()
        let added = request.logs.reduce(0) { $0 + $1.output.utf8.count }
        if let logLimit, logLimitExceeded || logBytes + added > logLimit {
            logLimitExceeded = true
            response.logLimitExceeded = true
        } else {
            logBytes += added
        }
        return response
    }

    func scriptCompleted(_ request: Coder_Agent_V2_WorkspaceAgentScriptCompletedRequest) throws(Refusal) {
        let timing = request.timing
        guard manifest.scripts.contains(where: { $0.id == timing.scriptID && !timing.scriptID.isEmpty }) else {
            throw Refusal("unknown script \(Self.id(timing.scriptID))")
        }
        guard timing.hasStart, timing.hasEnd else { throw Refusal("start or end is missing") }
        guard timing.start.order <= timing.end.order else {
            throw Refusal("the script ended before it started")
        }
        guard Self.isKnown(timing.stage) else { throw Refusal("unknown stage \(timing.stage.rawValue)") }
        guard Self.isKnown(timing.status) else { throw Refusal("unknown status \(timing.status.rawValue)") }
    }

    // MARK: Metadata, apps, startup

    func updateMetadata(_ request: Coder_Agent_V2_BatchUpdateMetadataRequest) throws(Refusal) {
        for item in request.metadata {
            guard manifest.metadata.contains(where: { $0.key == item.key }) else {
                throw Refusal("unknown metadata key \"\(item.key)\"")
            }
            guard item.result.hasCollectedAt else { throw Refusal("metadata \(item.key): collected_at is missing") }
            let size = item.result.value.utf8.count
            guard size <= SimulatorLimits.metadataValueBytes else {
                throw Refusal(
                    "metadata \(item.key): \(size) bytes; at most \(SimulatorLimits.metadataValueBytes) are taken")
            }
        }
    }

    mutating func updateHealths(_ request: Coder_Agent_V2_BatchUpdateAppHealthRequest) throws(Refusal) {
        var healths = healths
        for update in request.updates {
            guard let app = manifest.apps.first(where: { $0.id == update.id && !update.id.isEmpty }) else {
                throw Refusal("unknown app \(Self.id(update.id))")
            }
            guard !app.healthcheck.url.isEmpty else { throw Refusal("app \(app.slug) has no health check") }
            guard Self.isKnown(update.health), update.health != .unspecified else {
                throw Refusal("app \(app.slug): unknown health \(update.health.rawValue)")
            }
            healths[update.id] = update.health
        }
        self.healths = healths
    }

    func updateAppStatus(_ request: Coder_Agent_V2_UpdateAppStatusRequest) throws(Refusal) {
        guard manifest.apps.contains(where: { $0.slug == request.slug }) else {
            throw Refusal("unknown app \"\(request.slug)\"")
        }
        guard Self.isKnown(request.state) else { throw Refusal("unknown app status \(request.state.rawValue)") }
    }

    func updateStartup(_ request: Coder_Agent_V2_UpdateStartupRequest) throws(Refusal) -> Coder_Agent_V2_Startup {
        let startup = request.startup
        guard !startup.version.isEmpty else { throw Refusal("version is missing") }
        guard startup.expandedDirectory.isEmpty || startup.expandedDirectory.hasPrefix("/") else {
            throw Refusal("expanded_directory \"\(startup.expandedDirectory)\" is not absolute")
        }
        for system in startup.subsystems where !Self.isKnown(system) || system == .unspecified {
            throw Refusal("unknown subsystem \(system.rawValue)")
        }
        return startup
    }

    // MARK: Connections, boundary logs, resources

    func reportConnection(_ request: Coder_Agent_V2_ReportConnectionRequest) throws(Refusal) {
        let connection = request.connection
        guard UUID(data: connection.id) != nil, connection.id.contains(where: { $0 != 0 }) else {
            throw Refusal("connection id \(Self.id(connection.id)) is no UUID")
        }
        guard Self.isKnown(connection.action), connection.action != .unspecified else {
            throw Refusal("unknown connection action \(connection.action.rawValue)")
        }
        guard Self.isKnown(connection.type), connection.type != .unspecified else {
            throw Refusal("unknown connection type \(connection.type.rawValue)")
        }
        guard connection.hasTimestamp else { throw Refusal("timestamp is missing") }
        guard connection.ip.isEmpty || (try? SocketAddress(ipAddress: connection.ip, port: 0)) != nil else {
            throw Refusal("\"\(connection.ip)\" is no IP address")
        }
    }

    func reportBoundaryLogs(_ request: Coder_Agent_V2_ReportBoundaryLogsRequest) throws(Refusal) {
        for (index, log) in request.logs.enumerated() {
            guard log.hasTime else { throw Refusal("logs[\(index)]: time is missing") }
            guard log.resource != nil else { throw Refusal("logs[\(index)]: the resource is missing") }
        }
    }

    func pushResources(
        _ request: Coder_Agent_V2_PushResourcesMonitoringUsageRequest, datapoints limit: Int32
    ) throws(Refusal) {
        guard !request.datapoints.isEmpty, request.datapoints.count <= Int(limit) else {
            throw Refusal("\(request.datapoints.count) datapoints; 1 to \(limit) are taken")
        }
        for (index, point) in request.datapoints.enumerated() where !point.hasCollectedAt {
            throw Refusal("datapoints[\(index)]: collected_at is missing")
        }
    }

    // MARK: Sub-agents

    mutating func createSubAgent(
        _ request: Coder_Agent_V2_CreateSubAgentRequest
    ) throws(Refusal) -> Coder_Agent_V2_CreateSubAgentResponse {
        guard !request.name.isEmpty else { throw Refusal("the name of the sub-agent is missing") }
        var agent = Coder_Agent_V2_SubAgent()
        agent.name = request.name
        agent.authToken = UUID().data
        if request.hasID {
            // Pre-created: named by a dev container of the manifest.
            guard manifest.devcontainers.contains(where: { $0.hasSubagentID && $0.subagentID == request.id }) else {
                throw Refusal("unknown sub-agent \(Self.id(request.id))")
            }
            agent.id = request.id
            subAgents.removeAll { $0.id == agent.id }
        } else {
            agent.id = UUID().data
        }
        guard !subAgents.contains(where: { $0.name == agent.name }) else {
            throw Refusal("there is a sub-agent \"\(agent.name)\" already")
        }
        guard subAgents.count < SimulatorLimits.subAgents else {
            throw Refusal("there are \(SimulatorLimits.subAgents) sub-agents")
        }
        subAgents.append(agent)
        var response = Coder_Agent_V2_CreateSubAgentResponse()
        response.agent = agent
        var slugs: Set<String> = []
        for (index, app) in request.apps.enumerated() where app.slug.isEmpty || !slugs.insert(app.slug).inserted {
            var problem = Coder_Agent_V2_CreateSubAgentResponse.AppCreationError()
            problem.index = Int32(truncatingIfNeeded: index)
            problem.field = "slug"
            problem.error = app.slug.isEmpty ? "slug is missing" : "slug \"\(app.slug)\" is used twice"
            response.appCreationErrors.append(problem)
        }
        return response
    }

    mutating func deleteSubAgent(_ request: Coder_Agent_V2_DeleteSubAgentRequest) throws(Refusal) {
        guard let index = subAgents.firstIndex(where: { $0.id == request.id }) else {
            throw Refusal("unknown sub-agent \(Self.id(request.id))")
        }
        subAgents.remove(at: index)
    }

    /// UUID text, or what is there instead.
    private static func id(_ data: Data) -> String {
        UUID(data: data)?.uuidString.lowercased() ?? "of \(data.count) bytes"
    }
}

extension Google_Protobuf_Timestamp {
    /// Order of two times without the arithmetic that a hostile value could make trap.
    fileprivate var order: (Int64, Int32) { (seconds, nanos) }
}
