import AgentProto
import FoundationEssentials

/// Who is connected to the coordinator, where each node is, and who has a tunnel to whom
/// (docs/contracts/tailnet.md#coordination). Nothing is sent from here: what is to be is in ``effects``, in order.
struct CoordinationState: Sendable {
    typealias ID = [UInt8]
    typealias Update = Coder_Tailnet_V2_CoordinateResponse.PeerUpdate

    enum Effect: Sendable {
        case deliver(to: UInt64, Coder_Tailnet_V2_CoordinateResponse)
        /// The stream is over once what was delivered before is sent.
        case end(UInt64)
    }

    private struct Peer {
        var stream: UInt64
        var isAgent: Bool
        var node: Coder_Tailnet_V2_Node?
    }

    /// A client's tunnel. It stays when the agent goes, so that the client hears of its return.
    private struct Tunnel: Hashable {
        var client: ID
        var agent: ID
    }

    private var peers: [ID: Peer] = [:]
    /// The id of each stream that hasn't ended.
    private var streams: [UInt64: ID] = [:]
    private var tunnels: Set<Tunnel> = []
    var effects: [Effect] = []

    var ids: [ID] { peers.keys.sorted { $0.lexicographicallyPrecedes($1) } }
    var agents: [ID] { ids.filter { peers[$0]?.isAgent == true } }
    var tunnelCount: Int { tunnels.count }
    func node(_ id: ID) -> Coder_Tailnet_V2_Node? { peers[id]?.node }
    func stream(_ id: ID) -> UInt64? { peers[id]?.stream }
    func isOpen(_ stream: UInt64) -> Bool { streams[stream] != nil }

    /// The peers that share a tunnel with this one, connected or not.
    private func partners(_ id: ID) -> [ID] {
        tunnels.compactMap { $0.client == id ? $0.agent : $0.agent == id ? $0.client : nil }
            .sorted { $0.lexicographicallyPrecedes($1) }
    }

    // MARK: Streams

    mutating func attach(_ stream: UInt64, _ id: ID, isAgent: Bool) {
        streams[stream] = id
        if let old = peers[id] {
            refuse(old.stream, "peer ID overwritten by new connection")
            streams[old.stream] = nil
            tunnels = tunnels.filter { $0.client != id }
        } else if peers.count >= SimulatorLimits.coordinatedPeers {
            refuse(stream, "too many peers")
            streams[stream] = nil
            return
        }
        peers[id] = Peer(stream: stream, isAgent: isAgent)
        // Those whose tunnels have waited for it.
        let known = partners(id).compactMap { partner in
            peers[partner]?.node.map { Self.update(partner, .node, "add tunnel", $0) }
        }
        if !known.isEmpty { deliver(id, known) }
    }

    /// The stream is over without a Disconnect.
    mutating func lost(_ stream: UInt64) { leave(stream, .lost, "lost") }

    private mutating func leave(_ stream: UInt64, _ kind: Update.Kind, _ reason: String) {
        guard let id = streams.removeValue(forKey: stream) else { return }
        for partner in partners(id) { deliver(partner, [Self.update(id, kind, reason)]) }
        peers[id] = nil
        tunnels = tunnels.filter { $0.client != id }
        effects.append(.end(stream))
    }

    /// Sends an error, and the stream ends with it.
    private mutating func refuse(_ stream: UInt64, _ error: String) {
        effects.append(.deliver(to: stream, .with { $0.error = error }))
        effects.append(.end(stream))
    }

    // MARK: Requests

    /// Returns the error that the stream ends with, when the request breaks the contract. Readiness for a peer that has just
    /// gone does not: it is answered with an error, and the stream goes on.
    mutating func receive(_ request: Coder_Tailnet_V2_CoordinateRequest, _ stream: UInt64) -> String? {
        guard let id = streams[stream], let peer = peers[id] else { return nil }
        if let problem = problem(request, id, peer) {
            let error = "authorization: \(problem)"
            effects.append(.deliver(to: stream, .with { $0.error = error }))
            leave(stream, .lost, "lost")
            return error
        }
        if request.hasUpdateSelf {
            let node = request.updateSelf.node
            peers[id]?.node = node
            for partner in partners(id) { deliver(partner, [Self.update(id, .node, "update self", node)]) }
        }
        if request.hasAddTunnel { addTunnel(id, to: [UInt8](request.addTunnel.id)) }
        if request.hasRemoveTunnel { removeTunnel(id, to: [UInt8](request.removeTunnel.id)) }
        ready(id, request.readyForHandshake)
        if request.hasDisconnect { leave(stream, .disconnected, "disconnected") }
        return nil
    }

    private func problem(_ request: Coder_Tailnet_V2_CoordinateRequest, _ id: ID, _ peer: Peer) -> String? {
        if peer.isAgent, let problem = NodeAuthorization.problem(request, agent: id) { return problem }
        let bytes = (try? request.updateSelf.serializedBytes() as [UInt8])?.count ?? 0
        if bytes > SimulatorLimits.nodeBytes { return "the node has \(bytes) bytes" }
        if request.hasAddTunnel, tunnels.count >= SimulatorLimits.tunnels { return "too many tunnels" }
        return nil
    }

    private mutating func addTunnel(_ client: ID, to agent: ID) {
        guard tunnels.insert(Tunnel(client: client, agent: agent)).inserted else { return }
        for (id, other) in [(client, agent), (agent, client)] {
            if let node = peers[id]?.node { deliver(other, [Self.update(id, .node, "add tunnel", node)]) }
        }
    }

    private mutating func removeTunnel(_ client: ID, to agent: ID) {
        guard tunnels.remove(Tunnel(client: client, agent: agent)) != nil else { return }
        deliver(agent, [Self.update(client, .disconnected, "remove tunnel")])
        deliver(client, [Self.update(agent, .disconnected, "remove tunnel")])
    }

    private mutating func ready(_ id: ID, _ marks: [Coder_Tailnet_V2_CoordinateRequest.ReadyForHandshake]) {
        guard let stream = peers[id]?.stream, !marks.isEmpty else { return }
        let partners = Set(partners(id))
        for mark in marks {
            let other = [UInt8](mark.id)
            if partners.contains(other) {
                deliver(other, [Self.update(id, .readyForHandshake, "")])
            } else {
                let name = UUID(data: mark.id).map { $0.description.lowercased() } ?? ""
                let text = "ready for handshake error: you do not share a tunnel with \"\(name)\""
                effects.append(.deliver(to: stream, .with { $0.error = text }))
            }
        }
    }

    private static func update(
        _ id: ID, _ kind: Update.Kind, _ reason: String, _ node: Coder_Tailnet_V2_Node? = nil
    ) -> Update {
        .with {
            $0.id = Data(id)
            $0.kind = kind
            $0.reason = reason
            if let node { $0.node = node }
        }
    }

    private mutating func deliver(_ id: ID, _ updates: [Update]) {
        guard let stream = peers[id]?.stream else { return }
        effects.append(.deliver(to: stream, .with { $0.peerUpdates = updates }))
    }
}
