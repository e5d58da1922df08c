import AgentProto
import DERP
import Disco
import IPAddresses
import NIOCore
import Sodium
import WireGuard

extension TailnetNode {
    // MARK: The stream of coordination

    /// A stream was opened; what is to be sent on it goes to `send`.
    package func streamOpened(_ send: @escaping (Coder_Tailnet_V2_CoordinateRequest) -> Void) {
        guard !isClosed else { return }
        sendRequest = send
        coordinator.opened(now: clock())
        coordinate()
        work()
    }

    package func streamReceived(_ response: Coder_Tailnet_V2_CoordinateResponse) {
        guard !isClosed else { return }
        coordinator.receive(response, now: clock())
        coordinate()
        work()
    }

    func streamClosed() {
        sendRequest = nil
        coordinator.closed(now: clock())
        coordinate()
        work()
    }

    /// Says that we go: clients drop the tunnel at once.
    func sayGoodbye() {
        coordinator.disconnect()
        coordinate()
    }

    // MARK: Peers

    func add(_ peer: TailnetPeer) {
        let now = clock()
        do throws(PeerError) {
            let id = try tunnel.withNode { node, now throws(PeerError) in
                try node.addPeer(peer.key, allowed: Self.prefixes(peer), now: now)
            }
            peers[peer.key] = Peer(peer: peer, wireGuard: id)
            keys[id] = peer.key
            updatePaths(peer, now: now)
            logger.debug("a peer came", metadata: ["peer": "\(peer.key)"])
        } catch {
            logger.warning("peer rejected", metadata: ["peer": "\(peer.key)", "error": "\(error)"])
        }
    }

    func change(_ peer: TailnetPeer) {
        guard let old = peers[peer.key] else { return add(peer) }
        peers[peer.key]?.peer = peer
        if old.peer.addresses != peer.addresses {
            do throws(PeerError) {
                try tunnel.withNode { node, _ throws(PeerError) in
                    try node.replaceAllowed(Self.prefixes(peer), of: old.wireGuard)
                }
            } catch {
                logger.warning(
                    "a peer's addresses are not taken", metadata: ["peer": "\(peer.key)", "error": "\(error)"])
            }
            tunnel.reset(old.peer.addresses.filter { !peer.addresses.contains($0) })
        }
        updatePaths(peer, now: clock())
    }

    func remove(_ peer: TailnetPeer) {
        guard let old = peers.removeValue(forKey: peer.key) else { return }
        // While the peer can still be told.
        tunnel.reset(old.peer.addresses)
        keys[old.wireGuard] = nil
        tunnel.withNode { node, _ in node.removePeer(old.wireGuard) }
        disco.remove(peer.key)
        relays.forget(peer.key)
        logger.debug("a peer went", metadata: ["peer": "\(peer.key)"])
    }

    private func updatePaths(_ peer: TailnetPeer, now: Duration) {
        if !disco.update(peer.key, disco: peer.disco, endpoints: peer.endpoints, now: now) {
            logger.warning(
                "a peer has no direct paths: its disco key is another's, or there are too many peers",
                metadata: ["peer": "\(peer.key)"])
        }
    }

    private static func prefixes(_ peer: TailnetPeer) -> [IPPrefix] {
        peer.addresses.compactMap { IPPrefix($0, bits: 128) }
    }

    /// When the last handshake with a peer was completed.
    func handshake(of key: PublicKey, now: Duration) -> Duration? {
        peers[key].flatMap { tunnel.node.status(of: $0.wireGuard, now: now)?.lastHandshake }
    }

    // MARK: Pings

    /// How a peer answered a disco ping.
    package struct PingResult: Sendable, Hashable {
        /// nil when there was no answer in time.
        package var latency: Duration?
        /// The direct path; nil for the relay.
        package var endpoint: Endpoint?
    }

    /// Measures the way to a peer as packets take it now. Answered within ``DiscoLimits/pong``.
    /// - Throws: ``TunnelError`` when the peer is unknown or has too many pings under way.
    package func ping(_ peer: PublicKey) -> EventLoopFuture<PingResult> {
        loop.assertInEventLoop()
        guard !isClosed, let number = disco.ping(peer, now: clock()) else {
            return loop.makeFailedFuture(TunnelError.noPeer)
        }
        let promise = loop.makePromise(of: PingResult.self)
        pings[number] = promise
        work()
        return promise.futureResult
    }

    /// The peer with an address.
    package func peer(at address: IPAddress) -> PublicKey? { tunnel.node.peer(owning: address).flatMap { keys[$0] } }
}
