import IPAddresses
import Logging
import NIOCore
import NetStack
import Sodium
import Synchronization
import WireGuard

/// A plain WireGuard node, without a control plane: peers and addresses of a file, datagrams on UDP, and peers that are
/// where they were last heard from (whitepaper, 2.1).
///
/// Unchecked, since it is touched on its event loop only, as NIO's channels are.
package final class WireGuardInterface: Underlay, @unchecked Sendable {
    /// Finds the address of a name. It may take long.
    package typealias Resolver = @Sendable (_ name: String, _ port: UInt16) async throws -> Endpoint

    /// Between two look-ups of a name.
    static let lookupInterval = Duration.seconds(5)

    private struct Place {
        var endpoint: Endpoint?
        var target: WireGuardConfiguration.Target?
        var isLookingUp = false
        var lastLookup: Duration?
        /// The last datagram that had nowhere to go: a handshake's, which would be sent again in five seconds only.
        var unsent: [UInt8] = []
    }

    package let tunnel: Tunnel
    package let port: UInt16
    private let sockets: UDPSockets
    private let resolver: Resolver
    private let logger: Logger
    private var places: [PeerID: Place] = [:]
    private var ports: TunnelPorts?
    private let hasFailed = Atomic(false)

    /// Opens the sockets; ``start(_:)`` begins.
    /// - Throws: when a peer cannot be taken in or the port cannot be had.
    package static func open(
        _ configuration: WireGuardConfiguration, limits: NetStackLimits = .init(), on loop: any EventLoop,
        logger: Logger, resolver: @escaping Resolver
    ) async throws -> WireGuardInterface {
        let sockets = try await UDPSockets.open(port: configuration.port, forbidsFragments: false, on: loop)
        return try await loop.submit {
            do {
                return try WireGuardInterface(
                    configuration, limits: limits, sockets: sockets, on: loop, logger: logger, resolver: resolver)
            } catch {
                sockets.close()
                throw error
            }
        }.get()
    }

    private init(
        _ configuration: WireGuardConfiguration, limits: NetStackLimits, sockets: UDPSockets, on loop: any EventLoop,
        logger: Logger, resolver: @escaping Resolver
    ) throws {
        var wireGuardLimits = WireGuardLimits()
        // Those of a file are the owner's.
        wireGuardLimits.prefixesPerPeer = max(
            wireGuardLimits.prefixesPerPeer, configuration.peers.map(\.allowed.count).max() ?? 0)
        wireGuardLimits.peers = max(wireGuardLimits.peers, configuration.peers.count)
        let node = WireGuardNode(
            key: configuration.key, addresses: configuration.addresses, limits: wireGuardLimits,
            wall: TunnelClock.wall)
        tunnel = Tunnel(loop: loop, node: node, limits: limits)
        (self.sockets, self.resolver, self.logger, port) = (sockets, resolver, logger, sockets.port)
        for peer in configuration.peers {
            do throws(PeerError) {
                let id = try tunnel.withNode { node, now throws(PeerError) in
                    try node.addPeer(
                        peer.key, preshared: peer.preshared, allowed: peer.allowed, keepAlive: peer.keepAlive,
                        now: now)
                }
                var place = Place(target: peer.target)
                if case .address(let endpoint)? = peer.target { place.endpoint = endpoint }
                places[id] = place
            } catch {
                throw WireGuardInterfaceError(description: "peer \(peer.key): \(error)")
            }
        }
    }

    /// Begins to receive and to serve.
    package func start(_ configuration: TunnelPorts.Configuration) {
        tunnel.loop.assertInEventLoop()
        let ports = TunnelPorts(tunnel: tunnel, configuration: configuration)
        self.ports = ports
        sockets.start(
            .init(
                datagram: { [tunnel] datagram, endpoint in tunnel.receive(datagram, from: Source(endpoint)) },
                burstEnded: { [tunnel] in tunnel.work() },
                refused: { [logger] reason in logger.warning("the kernel refuses datagrams of the tunnel: \(reason)") },
                failed: { [weak self] in self?.hasFailed.store(true, ordering: .relaxed) }))
        tunnel.start(underlay: self, services: ports)
    }

    /// Resets all connections and closes the sockets.
    package func close() {
        tunnel.loop.assertInEventLoop()
        tunnel.close()
        ports?.close()
        sockets.close()
    }

    /// What keeps it from working; nil when nothing is known to.
    package var problem: String? {
        hasFailed.load(ordering: .relaxed) ? "its UDP sockets were closed by an error; restart the daemon" : nil
    }

    // MARK: Underlay

    package var hasRoom: Bool { sockets.hasRoom }

    package func send(_ datagram: UnsafeRawBufferPointer, to destination: Transmission.Destination) {
        switch destination {
        case .source(let source):
            if let endpoint = source.endpoint { sockets.send(datagram, to: endpoint) }
        case .peer(let id):
            guard let place = places[id] else { return }
            if let endpoint = place.endpoint { return sockets.send(datagram, to: endpoint) }
            if place.target != nil { places[id]?.unsent = Array(datagram) }
            lookUp(id)
        }
    }

    package func flush() { sockets.flush() }

    package func heard(_ sender: Authentic, from source: Source) -> Bool {
        guard let endpoint = source.endpoint, places[sender.peer]?.endpoint != endpoint else { return true }
        places[sender.peer]?.endpoint = endpoint
        return true
    }

    package func handle(_ event: WireGuardNode.Event) {
        switch event {
        // Its name may lead elsewhere by now.
        case .gaveUp(let id): lookUp(id)
        case .forgotKeys: break
        }
    }

    private func lookUp(_ id: PeerID) {
        guard var place = places[id], case .name(let name, let port)? = place.target, !place.isLookingUp else { return }
        let now = TunnelClock.now()
        if let last = place.lastLookup, now - last < Self.lookupInterval { return }
        (place.isLookingUp, place.lastLookup) = (true, now)
        places[id] = place
        let (loop, resolver) = (tunnel.loop, resolver)
        let promise = loop.makePromise(of: Endpoint.self)
        promise.completeWithTask { try await resolver(name, port) }
        promise.futureResult.whenComplete { result in
            self.places[id]?.isLookingUp = false
            switch result {
            case .success(let endpoint): self.found(endpoint, id)
            case .failure(let error):
                self.logger.warning("cannot find the WireGuard peer \(name): \(error); it is tried again")
            }
        }
    }

    private func found(_ endpoint: Endpoint, _ id: PeerID) {
        let unsent = places[id]?.unsent ?? []
        places[id]?.unsent = []
        places[id]?.endpoint = endpoint
        unsent.withUnsafeBytes { sockets.send($0, to: endpoint) }
        sockets.flush()
    }
}

/// Why there is no interface.
package struct WireGuardInterfaceError: Error, CustomStringConvertible {
    package var description: String
}
