import AgentCore
import AgentHTTP
import AgentProto
import ControlPlane
import ControlPlaneAPI
import DERP
import Glibc
import NIOCore
import ServiceLifecycle
import Sodium
import Tailnet

/// The tailnet node: made at the first manifest, and then for the daemon's life.
final class TailnetParts: Service {
    let current = CurrentNode(nil)
    private let context: DaemonContext
    private let relays: any RelayTransport
    private let controlPlane: ControlPlaneAddress?
    /// What there is at our addresses.
    private let ports: TunnelPorts.Configuration
    private let isClosed = Watched(false)
    private let isEnding = Watched(false)
    /// Why there is no node.
    private let failure = Watched<String?>(nil)

    /// nil where there is no control plane, `--tailnet off` is given, or libsodium is missing: /healthz says so.
    /// - Parameter ports: what peers find at our addresses.
    init?(_ context: DaemonContext, _ upward: ControlPlaneParts?, _ ports: TunnelPorts.Configuration) {
        guard let upward, context.configuration.link != nil, context.configuration.isTailnetEnabled else { return nil }
        if let problem = Sodium.problem {
            let text = "tailnet: \(problem); install libsodium23"
            context.logger.error("\(text)")
            context.health.set("tailnet", .init(text))
            return nil
        }
        (self.context, self.ports) = (context, ports)
        relays = upward.relays
        controlPlane = context.configuration.link.flatMap { ControlPlaneAddress($0.url) }
        let (current, failure) = (current, failure)
        context.health.register("tailnet") {
            let summary = current.value?.summary
            return (failure.value ?? summary?.problem ?? summary?.relayWarning).map { .init("tailnet: \($0)") }
        }
        TailnetMetrics.register(context.metrics, current)
    }

    /// Why `/api/v0/tailnet` has no node to tell of, and will not have one.
    static func absence(_ configuration: AgentConfiguration) -> String? {
        if configuration.link == nil { return "It runs standalone: no --agent-url was given." }
        if !configuration.isTailnetEnabled { return "It was started with --tailnet off." }
        return Sodium.problem.map { "\($0); install libsodium23." }
    }

    var routines: [any Routine] {
        let isEnding = isEnding
        return [Coordinate(current, clock: context.clock) { isEnding.value }, FollowDERPMap(current)]
    }

    /// The daemon ends: clients are told so.
    func beginShutdown() { isEnding.update { $0 = true } }

    func run() async throws {
        try? await gracefulShutdown()
        await close()
    }

    /// Takes what a manifest says of the tailnet; makes the node if there is none.
    func take(_ manifest: Coder_Agent_V2_Manifest) async {
        guard let addresses = TailnetAddresses(agentID: manifest.agentID) else { return }
        let map = manifest.hasDerpMap ? DERPMap(manifest.derpMap) : nil
        let isDirect = !manifest.disableDirectConnections
        let forcesWebSocket = manifest.derpForceWebsockets
        do {
            var node = current.value
            if node == nil { node = try await make(addresses, isDirect, forcesWebSocket) }
            try await node?.onLoop { node in
                node.update(
                    { configuration in
                        configuration.addresses = addresses
                        configuration.isDirectEnabled = isDirect
                        configuration.alwaysWebSocket = forcesWebSocket
                    }, map: map)
            }
        } catch is CancellationError {
            return
        } catch {
            context.logger.error("cannot create the tailnet node", metadata: ["error": "\(error)"])
            failure.update { $0 = "\(error)" }
        }
    }

    private func make(
        _ addresses: TailnetAddresses, _ isDirect: Bool, _ forcesWebSocket: Bool
    ) async throws -> TailnetNode? {
        var configuration = TailnetNode.Configuration(addresses: addresses, controlPlane: controlPlane)
        (configuration.isDirectEnabled, configuration.alwaysWebSocket) = (isDirect, forcesWebSocket)
        configuration.port = context.configuration.tailnetPort
        let node = try TailnetNode(
            configuration, transport: relays, machine: Machine(pool: context.pool), on: context.group.next(),
            logger: context.logger)
        let ports = ports
        try await node.onLoop { $0.start(ports) }
        current.update { $0 = node }
        failure.update { $0 = nil }
        // Closed meanwhile: after it is known, so that one of the two closes it.
        if isClosed.value {
            try await node.onLoop { $0.close() }
            return nil
        }
        context.logger.info(
            "tailnet node made", metadata: ["address": "\(addresses.client)", "key": "\(node.key)"])
        return node
    }

    /// What the control plane is told of the node's use.
    func takeUsage() async -> NetworkUsage? {
        guard let node = current.value else { return nil }
        let pings = try? await node.loop.flatSubmit {
            EventLoopFuture.whenAllSucceed(
                node.activePeers.map { node.ping($0).map(\.latency).flatMapErrorThrowing { _ in nil } }, on: node.loop)
        }.get()
        guard let usage = try? await node.onLoop({ $0.takeUsage() }) else { return nil }
        let latencies = (pings ?? []).compactMap { $0 }.sorted()
        let median: Duration? =
            latencies.isEmpty
            ? nil : (latencies[(latencies.count - 1) / 2] + latencies[latencies.count / 2]) / 2
        return NetworkUsage(
            flows: Dictionary(usage.flows.map { ($0.key.name, Int64($0.value)) }, uniquingKeysWith: +),
            receivedPackets: Int64(usage.receivedPackets), receivedBytes: Int64(usage.receivedBytes),
            sentPackets: Int64(usage.sentPackets), sentBytes: Int64(usage.sentBytes), medianLatency: median)
    }

    private func close() async {
        isClosed.update { $0 = true }
        try? await current.value?.onLoop { $0.close() }
    }
}

/// What of the node is counted.
enum TailnetMetrics {
    static func register(_ registry: MetricsRegistry, _ current: CurrentNode) {
        let summary: @Sendable () -> TailnetNode.Summary? = { current.value?.summary }
        registry.gauge(
            "coderd_agentstats_currently_reachable_peers",
            help: "Peers of the tailnet with a usable session, by the kind of path.", labels: ["connection_type"]
        ) {
            summary().map {
                [(["p2p"], Double($0.reachableDirect)), (["derp"], Double($0.reachableByRelay))]
            } ?? []
        }
        registry.gauge(
            "agent_tailnet_relay_connected",
            help: "Whether the home relay is connected: clients can reach this agent."
        ) { summary().map { $0.isHomeUp ? 1 : 0 } }
        registry.gauge("agent_tailnet_peers", help: "Peers of the tailnet that the control plane announced.") {
            summary().map { Double($0.peers) }
        }
        registry.gauge("agent_tailnet_connections", help: "TCP connections with peers of the tailnet.") {
            summary().map { Double($0.connections) }
        }
        registry.gauge(
            "agent_tailnet_dropped", help: "Packets and peers that were not taken; /api/v0/tailnet has the causes.",
            labels: ["layer"]
        ) { summary()?.drops.sorted { $0.key < $1.key }.map { ([$0.key], Double($0.value)) } ?? [] }
    }
}
