import AgentCore
import AgentHTTP
import HTTPTypes
import Hummingbird
import IPAddresses
import NIOCore
import Sodium

/// What the HTTP API tells of the node. The paths exist without one, too, and then say so.
package struct TailnetRoutes: Sendable {
    private let current: CurrentNode
    /// Why there is no node, and will be none.
    private let absence: @Sendable () -> String?
    private let pool: BlockingPool

    /// - Parameter absence: nil while one may come.
    package init(_ current: CurrentNode, pool: BlockingPool, absence: @escaping @Sendable () -> String?) {
        (self.current, self.pool, self.absence) = (current, pool, absence)
    }

    package func add(to routes: AgentRoutes) {
        routes.get("/api/v0/tailnet", status)
        routes.post("/api/v0/tailnet/ping", changes: false, ping)
        routes.get("/api/v0/netcheck", netcheck)
        routes.get("/debug/magicsock", page)
    }

    private func node() throws -> TailnetNode {
        if let node = current.value { return node }
        throw HTTPProblem(
            .serviceUnavailable, "This agent is not on a tailnet.",
            detail: absence() ?? "It becomes one with the first manifest of its control plane.")
    }

    private func status(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        return .json(try await node().onLoop { $0.report() })
    }

    // MARK: Ping

    private struct Pong: Encodable {
        var peer: String
        /// nil when there was no answer within 5 seconds.
        var latency_ms: Double?
        var path: TailnetReport.Path
        var endpoint: String?
        /// The region of the relay that it went by.
        var region_id: Int?
    }

    private func ping(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let text = try Query(request, allowed: ["peer"])["peer"]
        guard let text else { throw HTTPProblem.invalid("peer", "is missing: an id, an address or a key of a peer") }
        let node = try node()
        let pong = try await node.loop.flatSubmit { () -> EventLoopFuture<Pong> in
            guard let peer = node.find(text) else {
                return node.loop.makeFailedFuture(
                    HTTPProblem(
                        .notFound, "No peer is \"\(text.prefix(64))\".", detail: "GET /api/v0/tailnet lists them."))
            }
            return node.ping(peer.key).map { result in
                Pong(
                    peer: peer.idText, latency_ms: result.latency.map(\.inMilliseconds),
                    path: result.endpoint == nil ? .relay : .direct, endpoint: result.endpoint.map { "\($0)" },
                    region_id: result.endpoint == nil ? peer.home : nil)
            }
        }.get()
        return .json(pong)
    }

    // MARK: Netcheck

    /// As the reference's clients read it.
    private struct Netcheck: Encodable {
        struct NetInfo: Encodable {
            var MappingVariesByDestIP: Bool?
            var HairPinning: Bool?
            var WorkingIPv6: Bool?
            var OSHasIPv6: Bool?
            var WorkingUDP: Bool?
            var WorkingICMPv4: Bool?
            var HavePortMap: Bool?
            var UPnP: Bool?
            var PMP: Bool?
            var PCP: Bool?
            var PreferredDERP: Int
            var DERPLatency: [String: Double]
            var IPv4: Bool?
            var IPv6: Bool?

            func encode(to encoder: any Encoder) throws {
                var fields = encoder.container(keyedBy: CodingKeys.self)
                // null says that it was not measured.
                try fields.encode(MappingVariesByDestIP, forKey: .MappingVariesByDestIP)
                try fields.encode(HairPinning, forKey: .HairPinning)
                try fields.encode(WorkingIPv6, forKey: .WorkingIPv6)
                try fields.encode(OSHasIPv6, forKey: .OSHasIPv6)
                try fields.encode(WorkingUDP, forKey: .WorkingUDP)
                try fields.encode(WorkingICMPv4, forKey: .WorkingICMPv4)
                try fields.encode(HavePortMap, forKey: .HavePortMap)
                try fields.encode(UPnP, forKey: .UPnP)
                try fields.encode(PMP, forKey: .PMP)
                try fields.encode(PCP, forKey: .PCP)
                try fields.encode(PreferredDERP, forKey: .PreferredDERP)
                try fields.encode(DERPLatency, forKey: .DERPLatency)
                try fields.encode(IPv4, forKey: .IPv4)
                try fields.encode(IPv6, forKey: .IPv6)
            }

            enum CodingKeys: String, CodingKey {
                case MappingVariesByDestIP, HairPinning, WorkingIPv6, OSHasIPv6, WorkingUDP, WorkingICMPv4, HavePortMap
                case UPnP, PMP, PCP, PreferredDERP, DERPLatency, IPv4, IPv6
            }
        }

        struct Interfaces: Encodable {
            struct Interface: Encodable {
                var name: String
                var mtu: Int
                var addresses: [String]
            }
            var severity: String
            var warnings: [Warning]
            var dismissed = false
            var interfaces: [Interface]
        }

        struct Warning: Encodable {
            var code: String
            var message: String
        }

        var severity: String
        var warnings: [Warning]
        var dismissed = false
        var net_info: NetInfo
        var interfaces: Interfaces
    }

    /// Inner packets and WireGuard's overhead fit in that on a path of IPv6.
    private static let leastMTU = 1_378

    private func netcheck(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        let (info, problem) = try await node().onLoop { (Self.info($0), $0.summary.problem) }
        let found = try await pool.run { NetworkInterface.all() }
        let small = found.filter { $0.mtu > 0 && $0.mtu < Self.leastMTU }.map { interface in
            Netcheck.Warning(
                code: "EIF01",
                message: "Network interface \(interface.name) has an MTU of \(interface.mtu), below \(Self.leastMTU); "
                    + "direct connections over it are slow or fail.")
        }
        let warnings = [problem].compactMap { $0 }.map { Netcheck.Warning(code: "EDERP01", message: $0) }
        return .json(
            Netcheck(
                severity: warnings.isEmpty ? "ok" : "warning", warnings: warnings, net_info: info,
                interfaces: .init(
                    severity: small.isEmpty ? "ok" : "warning", warnings: small,
                    interfaces: found.map { .init(name: $0.name, mtu: $0.mtu, addresses: $0.addresses) })))
    }

    private static func info(_ node: TailnetNode) -> Netcheck.NetInfo {
        let mapped = node.disco.mappedEndpoints
        func seen(_ isV4: Bool) -> Bool? {
            guard node.configuration.isDirectEnabled, node.disco.hasSTUNServers(isV4: isV4) else { return nil }
            return mapped.contains { ($0.address.v4 != nil) == isV4 }
        }
        let isAsked = seen(true) != nil || seen(false) != nil
        return Netcheck.NetInfo(
            MappingVariesByDestIP: node.disco.mappingVaries, WorkingIPv6: seen(false), OSHasIPv6: node.direct.hasIPv6,
            WorkingUDP: isAsked ? !mapped.isEmpty : nil, PreferredDERP: node.relays.home,
            DERPLatency: node.relays.latencies(now: node.clock()).mapValues { $0 / .seconds(1) }, IPv4: seen(true),
            IPv6: seen(false))
    }

    // MARK: Page

    private func page(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        let report = try await node().onLoop { $0.report() }
        return Response(
            status: .ok,
            headers: [
                .contentType: "text/html; charset=utf-8", .contentSecurityPolicy: "default-src 'none'",
                .cacheControl: "no-store",
            ], body: .init(byteBuffer: ByteBuffer(string: MagicsockPage.html(report))))
    }
}

extension TailnetNode {
    /// The peer with an id, an address or a key (as it is written here).
    fileprivate func find(_ text: String) -> TailnetPeer? {
        if let address = IPAddress(text) { return peer(at: address).flatMap { peers[$0]?.peer } }
        let found = peers.values.map(\.peer).filter { $0.idText == text.lowercased() || "\($0.key)" == text }
        return found.count == 1 ? found.first : nil
    }
}
