import AgentCore
import AgentProto
import ControlPlaneAPI
import DRPC
import FoundationEssentials
import SwiftProtobuf
import Synchronization

/// The whole service `coder.agent.v2.Agent` for one agent, answered as a control plane does: every
/// call is checked, recorded, and subject to the planned ``Faults``.
package final class AgentService: Sendable {
    /// What the service answers.
    package struct Configuration: Sendable {
        package var manifest: SimulatedManifest
        /// Encoded size that the manifest is padded to with opaque bytes; nil for none
        /// (``SimulatorLimits/manifestPaddingBytes``).
        package var manifestBytes: Int?
        /// Relays in place of the server's own; nil for those of the manifest, or else the server's.
        package var derpMap: Coder_Tailnet_V2_DERPMap?
        package var banners: [Coder_Agent_V2_BannerConfig] = []
        /// Time between reports of statistics.
        package var statsInterval: Duration = .seconds(30)
        /// Bytes of log text after which `log_limit_exceeded` is answered; nil for no limit.
        package var logLimit: Int?
        /// Default: 20 datapoints, one each 10 s, memory and the root volume.
        package var resources: Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse

        package init(manifest: SimulatedManifest) {
            self.manifest = manifest
            resources = .init()
            resources.config.numDatapoints = 20
            resources.config.collectionIntervalSeconds = 10
            resources.memory.enabled = true
            var root = Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse.Volume()
            root.enabled = true
            root.path = "/"
            resources.volumes = [root]
        }
    }

    /// A connection as its calls see it.
    package struct Caller: Sendable {
        /// From 1.
        package var connection: Int
        package var version: APIVersion
        /// Cuts the connection without a word.
        package var cut: @Sendable () -> Void

        package init(connection: Int, version: APIVersion, cut: @escaping @Sendable () -> Void) {
            self.connection = connection
            self.version = version
            self.cut = cut
        }
    }

    private struct State {
        var configuration: Configuration
        var plane: ControlPlaneState
        /// The map of the server's own relay.
        var servedDERPMap: Coder_Tailnet_V2_DERPMap?
    }

    package let recorder: Recorder
    package let faults: Faults
    private let state: Mutex<State>
    let clock: AgentClock
    /// What ``derpMap`` is, to wait for its changes.
    let derpMaps: Watched<Coder_Tailnet_V2_DERPMap>

    package init(configuration: Configuration, recorder: Recorder, faults: Faults = Faults(), clock: AgentClock) {
        self.recorder = recorder
        self.faults = faults
        self.clock = clock
        derpMaps = Watched(Self.derpMap(configuration, served: nil))
        state = Mutex(
            State(
                configuration: configuration,
                plane: ControlPlaneState(
                    manifest: configuration.manifest.message, logLimit: configuration.logLimit)))
    }

    /// What is answered from now on. A new manifest reaches the agent with its next connection.
    package func reconfigure(_ change: (inout Configuration) -> Void) {
        state.withLock { state in
            change(&state.configuration)
            state.plane.manifest = state.configuration.manifest.message
            state.plane.logLimit = state.configuration.logLimit
            updateDERPMap(state)
        }
    }

    /// A server has a relay: its map is told where no other is configured.
    func serve(_ map: Coder_Tailnet_V2_DERPMap) {
        state.withLock { state in
            state.servedDERPMap = map
            updateDERPMap(state)
        }
    }

    private func updateDERPMap(_ state: State) {
        let map = Self.derpMap(state.configuration, served: state.servedDERPMap)
        if derpMaps.value != map { derpMaps.update { $0 = map } }
    }

    private static func derpMap(
        _ configuration: Configuration, served: Coder_Tailnet_V2_DERPMap?
    ) -> Coder_Tailnet_V2_DERPMap {
        let manifest = configuration.manifest.message
        return configuration.derpMap ?? (manifest.hasDerpMap ? manifest.derpMap : served ?? .init())
    }

    /// The relays that the manifest tells, and `StreamDERPMaps` at once and after each change: the configured ones,
    /// the manifest file's, else the server's own.
    package var derpMap: Coder_Tailnet_V2_DERPMap { derpMaps.value }

    /// The manifest that is handed out, without padding.
    package var manifest: Coder_Agent_V2_Manifest { state.withLock { manifest($0.configuration) } }

    private func manifest(_ configuration: Configuration) -> Coder_Agent_V2_Manifest {
        var manifest = configuration.manifest.message
        let map = derpMaps.value
        if map != .init() { manifest.derpMap = map }
        return manifest
    }

    /// Bytes of log text taken so far.
    package var logBytes: Int { state.withLock { $0.plane.logBytes } }

    /// The rpcs that a connection has; those that its version lacks are unknown to it.
    package func router(_ caller: Caller) -> Router {
        var router = Router()
        add(AgentAPI.getManifest, caller, to: &router) { [self] state, _ in
            let manifest = manifest(state.configuration)
            guard let target = state.configuration.manifestBytes else { return manifest }
            return Self.pad(manifest, to: min(target, SimulatorLimits.manifestPaddingBytes))
        }
        add(AgentAPI.getServiceBanner, caller, to: &router) { state, _ in
            var banner = Coder_Agent_V2_ServiceBanner()
            if let first = state.configuration.banners.first {
                banner.enabled = first.enabled
                banner.message = first.message
                banner.backgroundColor = first.backgroundColor
            }
            return banner
        }
        add(AgentAPI.getAnnouncementBanners, caller, to: &router) { state, _ in
            var response = Coder_Agent_V2_GetAnnouncementBannersResponse()
            response.announcementBanners = state.configuration.banners
            return response
        }
        addReports(caller, to: &router)
        addScripts(caller, to: &router)
        addResources(caller, to: &router)
        addSubAgents(caller, to: &router)
        return router
    }

    private func addReports(_ caller: Caller, to router: inout Router) {
        add(AgentAPI.updateStats, caller, to: &router) { state, _ in
            var response = Coder_Agent_V2_UpdateStatsResponse()
            response.reportInterval = Google_Protobuf_Duration(state.configuration.statsInterval)
            return response
        }
        add(AgentAPI.updateLifecycle, caller, to: &router) { state, request in
            try state.plane.updateLifecycle(request, connection: caller.connection)
        }
        add(AgentAPI.batchUpdateAppHealths, caller, to: &router) { state, request in
            try state.plane.updateHealths(request)
            return .init()
        }
        add(AgentAPI.updateStartup, caller, to: &router) { state, request in try state.plane.updateStartup(request) }
        add(AgentAPI.batchUpdateMetadata, caller, to: &router) { state, request in
            try state.plane.updateMetadata(request)
            return .init()
        }
        add(AgentAPI.reportConnection, caller, to: &router) { state, request in
            try state.plane.reportConnection(request)
            return .init()
        }
        add(AgentAPI.reportBoundaryLogs, caller, to: &router) { state, request in
            try state.plane.reportBoundaryLogs(request)
            return .init()
        }
        if caller.version.hasAppStatus {
            add(AgentAPI.updateAppStatus, caller, to: &router) { state, request in
                try state.plane.updateAppStatus(request)
                return .init()
            }
        }
    }

    private func addScripts(_ caller: Caller, to router: inout Router) {
        add(AgentAPI.batchCreateLogs, caller, to: &router) { state, request in try state.plane.createLogs(request) }
        add(AgentAPI.scriptCompleted, caller, to: &router) { state, request in
            try state.plane.scriptCompleted(request)
            return .init()
        }
    }

    private func addResources(_ caller: Caller, to router: inout Router) {
        add(AgentAPI.getResourcesMonitoringConfiguration, caller, to: &router) { state, _ in
            state.configuration.resources
        }
        add(AgentAPI.pushResourcesMonitoringUsage, caller, to: &router) { state, request in
            try state.plane.pushResources(request, datapoints: state.configuration.resources.config.numDatapoints)
            return .init()
        }
    }

    private func addSubAgents(_ caller: Caller, to router: inout Router) {
        add(AgentAPI.createSubAgent, caller, to: &router) { state, request in try state.plane.createSubAgent(request) }
        add(AgentAPI.deleteSubAgent, caller, to: &router) { state, request in
            try state.plane.deleteSubAgent(request)
            return .init()
        }
        add(AgentAPI.listSubAgents, caller, to: &router) { state, _ in
            var response = Coder_Agent_V2_ListSubAgentsResponse()
            response.agents = state.plane.subAgents
            return response
        }
    }

    private func add<Request, Response>(
        _ method: Method<Request, Response>, _ caller: Caller, to router: inout Router,
        _ answer: @escaping @Sendable (inout State, Request) throws -> Response
    ) {
        let rpc = rpcName(method)
        router.unary(method) { [self] request, _ in
            let fault = try await begin(rpc, caller, request)
            let result = perform(rpc, caller, request, answer)
            if case .delay(let time) = fault { try await clock.sleep(time) }
            if case .drop = fault {
                caller.cut()
                try await Self.hang()
            }
            return try result.get()
        }
    }

    /// Does what is planned for a call before it has any effect.
    /// - Returns: a fault whose turn comes once the call is done.
    private func begin(_ rpc: String, _ caller: Caller, _ request: any Message) async throws -> RPCFault? {
        let fault = faults.takeCall(rpc)
        switch fault {
        case .fail(let code, let text):
            recorder.call(rpc: rpc, connection: caller.connection, request: request, outcome: .faulted)
            throw DRPCError(.remote(code), text)
        case .unimplemented:
            recorder.call(rpc: rpc, connection: caller.connection, request: request, outcome: .faulted)
            throw DRPCError(.remote(DRPCError.unimplementedCode), "Unimplemented")
        case .hang:
            recorder.call(rpc: rpc, connection: caller.connection, request: request, outcome: .faulted)
            try await Self.hang()
        case .drop(recorded: false):
            caller.cut()
            try await Self.hang()
        case .drop(recorded: true), .delay, nil: return fault
        }
    }

    /// Does what is planned for a stream, before its first message.
    func fault(_ rpc: String, _ caller: Caller, _ request: any Message) async throws {
        switch try await begin(rpc, caller, request) {
        case .delay(let time): try await clock.sleep(time)
        case .drop:
            caller.cut()
            try await Self.hang()
        default: break
        }
    }

    /// Answers and records in one step, so that the record has the order in which calls took effect.
    private func perform<Request: Message, Response>(
        _ rpc: String, _ caller: Caller, _ request: Request, _ answer: (inout State, Request) throws -> Response
    ) -> Result<Response, DRPCError> {
        state.withLock { state in
            let result: Result<Response, DRPCError>
            var outcome = RecordedCall.Outcome.answered
            do {
                result = .success(try answer(&state, request))
            } catch {
                let text = (error as? Refusal)?.text ?? "\(error)"
                outcome = .refused(text)
                result = .failure(DRPCError(.remote(0), text))
            }
            recorder.call(rpc: rpc, connection: caller.connection, request: request, outcome: outcome)
            return result
        }
    }

    /// Waits for the end of the call's connection, or that its client gives it up.
    static func hang() async throws -> Never {
        let (never, end) = AsyncStream.makeStream(of: Void.self)
        defer { end.finish() }
        for await _ in never {}
        throw CancellationError()
    }
}

extension Google_Protobuf_Duration {
    init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        self.init(seconds: seconds, nanos: Int32(truncatingIfNeeded: attoseconds / 1_000_000_000))
    }
}
