import DERP
import Disco
import IPAddresses
import NetStack
import Sodium
import WireGuard

/// All that a node knows of itself and its peers, as `GET /api/v0/tailnet` tells it. Ages are in seconds, and nil where
/// there was no such thing yet.
package struct TailnetReport: Codable, Sendable {
    package struct Coordination: Codable, Sendable {
        package var is_open: Bool
        /// The control plane's last error.
        package var error: String?
    }

    package struct Relay: Codable, Sendable {
        package var region_id: Int
        package var region_code: String
        package var region_name: String
        /// nil for a region without a relay, which has STUN servers only.
        package var url: String?
        package var is_home: Bool
        package var is_connected: Bool
        package var connected_seconds: Double?
        package var last_write_seconds: Double?
        package var latency_ms: Double?
        /// Why it is reached by WebSocket only.
        package var websocket_reason: String?
        package var queued_packets: Int
        package var problem: String?
    }

    package struct Direct: Codable, Sendable {
        package var is_enabled: Bool
        package var port: UInt16?
        /// Ours, as peers are told.
        package var endpoints: [String]
        /// Whether servers saw us at different endpoints (a symmetric NAT); nil when it isn't known.
        package var mapping_varies: Bool?
        package var problem: String?
    }

    package struct Candidate: Codable, Sendable {
        package var endpoint: String
        package var last_ping_seconds: Double?
        package var last_pong_seconds: Double?
        package var latency_ms: Double?
    }

    package enum Path: String, Codable, Sendable {
        case direct, relay
        /// By both, until the direct path has proven itself again.
        case both
    }

    package struct Peer: Codable, Sendable {
        /// As a UUID.
        package var id: String
        package var key: String
        package var addresses: [String]
        package var home_region: Int
        package var session: String
        package var last_handshake_seconds: Double?
        /// Whether data came or went in the last 45 seconds.
        package var is_active: Bool
        package var path: Path
        package var endpoint: String?
        /// Of the direct path.
        package var latency_ms: Double?
        package var received_bytes: UInt64
        package var sent_bytes: UInt64
        package var staged_packets: Int
        package var connections: Int
        package var candidates: [Candidate]
    }

    package var addresses: [String]
    package var key: String
    package var home_region: Int
    package var coordination: Coordination
    package var relays: [Relay]
    package var direct: Direct
    package var peers: [Peer]
    package var connections: Int
    package var udp_flows: Int
    /// Packets that were not taken, by layer and cause; those that never were are left out.
    package var drops: [String: UInt64]

    /// What keeps clients away; nil when nothing does.
    package var problem: String?
}

extension TailnetNode {
    /// What may be read anywhere, without a look at the event loop.
    package struct Summary: Sendable {
        /// Whether there is a map with a relay.
        package var hasRelay = false
        package var home = 0
        package var isHomeUp = false
        package var homeProblem: String?
        package var directProblem: String?
        package var coordinationError: String?
        package var peers = 0
        /// Peers with a session that is usable, by the kind of path.
        package var reachableDirect = 0
        package var reachableByRelay = 0
        package var connections = 0
        /// What was not taken, by layer.
        package var drops: [String: UInt64] = [:]

        /// What the home relay says is wrong with it, while it is connected.
        package var relayWarning: String? {
            isHomeUp ? homeProblem.map { "the relay of region \(home) says: \($0)" } : nil
        }

        /// What keeps clients away; nil when nothing does.
        package var problem: String? {
            if let coordinationError { return "the control plane says: \(coordinationError)" }
            if hasRelay, !isHomeUp {
                let name = home > 0 ? "the relay of region \(home)" : "no relay"
                return "\(name) is not connected" + (homeProblem.map { ": \($0)" } ?? "")
            }
            return nil
        }
    }

    func makeSummary() -> Summary {
        let now = clock()
        var summary = Summary()
        summary.hasRelay = relays.map.regions.values.contains { $0.relay != nil }
        (summary.home, summary.isHomeUp) = (relays.home, relays.isHomeUp)
        summary.homeProblem = relays.problems[relays.home]
        summary.directProblem = direct.problem
        summary.coordinationError = coordinator.lastError
        summary.peers = peers.count
        summary.connections = tunnel.connectionCount
        for layer in Self.layers { summary.drops[layer] = 0 }
        for (cause, count) in allDrops { summary.drops[String(cause.prefix { $0 != ":" }), default: 0] &+= count }
        for (key, peer) in peers where tunnel.node.status(of: peer.wireGuard, now: now)?.session == .usable {
            if disco.isDirect(key, now: now) { summary.reachableDirect += 1 } else { summary.reachableByRelay += 1 }
        }
        return summary
    }

    /// To be called on the event loop.
    package func report() -> TailnetReport {
        loop.assertInEventLoop()
        let now = clock()
        return TailnetReport(
            addresses: configuration.addresses.all.map { "\($0)" }, key: "\(key)", home_region: relays.home,
            coordination: .init(is_open: sendRequest != nil, error: coordinator.lastError),
            relays: relays.map.regions.values.sorted { $0.id < $1.id }.map { relay($0, now) },
            direct: .init(
                is_enabled: configuration.isDirectEnabled, port: direct.port,
                endpoints: disco.endpoints.map { "\($0)" }, mapping_varies: disco.mappingVaries,
                problem: direct.problem),
            peers: peers.values.map { report($0, now) }.sorted { $0.id < $1.id },
            connections: tunnel.connectionCount, udp_flows: tunnel.stack.udpFlowCount, drops: allDrops,
            problem: makeSummary().problem)
    }

    private func relay(_ region: DERPMap.Region, _ now: Duration) -> TailnetReport.Relay {
        let id = region.id
        let latencies = relays.latencies(now: now)
        return .init(
            region_id: id, region_code: region.code, region_name: region.name,
            url: region.relay.map { "\($0)" }, is_home: id == relays.home, is_connected: relays.links.isOpen(id),
            connected_seconds: age(relays.opened[id], now), last_write_seconds: age(relays.links.lastWrite(id), now),
            latency_ms: (latencies["\(id)-v4"] ?? latencies["\(id)-v6"]).map(\.inMilliseconds),
            websocket_reason: relays.links.forcedWebSocket[id], queued_packets: relays.queued(id),
            problem: relays.problems[id])
    }

    private func report(_ peer: Peer, _ now: Duration) -> TailnetReport.Peer {
        let status = tunnel.node.status(of: peer.wireGuard, now: now)
        let paths = disco.report(peer.peer.key, now: now)
        let path: TailnetReport.Path = paths?.best == nil ? .relay : paths?.isTrusted == true ? .direct : .both
        return .init(
            id: peer.peer.idText, key: "\(peer.peer.key)", addresses: peer.peer.addresses.map { "\($0)" },
            home_region: peer.peer.home, session: "\(status?.session ?? .none)",
            last_handshake_seconds: age(status?.lastHandshake, now),
            is_active: disco.isActive(peer.peer.key, now: now), path: path,
            endpoint: paths?.best.map { "\($0)" }, latency_ms: paths?.latency.map(\.inMilliseconds),
            received_bytes: status?.receivedBytes ?? 0, sent_bytes: status?.sentBytes ?? 0,
            staged_packets: status?.staged ?? 0,
            connections: peer.peer.addresses.reduce(0) { $0 + tunnel.stack.counts(of: $1).connections },
            candidates: (paths?.candidates ?? []).map {
                .init(
                    endpoint: "\($0.endpoint)", last_ping_seconds: age($0.lastPing, now),
                    last_pong_seconds: age($0.lastPong, now), latency_ms: $0.latency.map(\.inMilliseconds))
            })
    }

    private func age(_ time: Duration?, _ now: Duration) -> Double? {
        time.map { max(.zero, now - $0).inMilliseconds.rounded() / 1_000 }
    }

    private static let layers = ["path", "relay", "disco", "wireguard", "stack", "coordination"]

    /// Every counter of what was not taken, as `LAYER: CAUSE`.
    package var allDrops: [String: UInt64] {
        var all: [String: UInt64] = [:]
        func add(_ layer: String, _ cause: String, _ count: UInt64) {
            if count > 0 { all["\(layer): \(cause)", default: 0] &+= count }
        }
        for (drop, count) in drops { add("path", drop.rawValue, count) }
        let relay = relays.counters
        add("relay", "no relay, or no room while it was dialled", relays.drops)
        add("relay", "the queue is full", relay.droppedQueueFull)
        add("relay", "beyond the relay's limit", relay.droppedRateLimit)
        add("relay", "too long", relay.droppedTooLong &+ relay.droppedReceivedTooLong)
        for (drop, count) in disco.counters.drops { add("disco", "\(drop)", count) }
        for reason in WireGuard.DropReason.allCases { add("wireguard", "\(reason)", tunnel.node.drops[reason]) }
        for (cause, count) in tunnel.stackCounters.causes { add("stack", cause, count) }
        add("coordination", "peers that were refused", coordinator.counters.refusedPeers)
        add("coordination", "addresses that another peer holds", coordinator.counters.refusedAddresses)
        return all
    }

    /// Usage since the last call, for the control plane.
    package func takeUsage() -> FlowStatistics { tunnel.takeStatistics() }

    /// Peers that exchanged data in the last 45 seconds.
    package var activePeers: [PublicKey] {
        let now = clock()
        return peers.keys.filter { disco.isActive($0, now: now) }
    }
}

extension Duration {
    var inMilliseconds: Double { self / .milliseconds(1) }
}
