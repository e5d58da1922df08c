import IPAddresses
import NIOCore
import NIOPosix
import NetStack

/// What there is at our addresses in the tunnel (docs/contracts/tailnet.md#ports): the services of the daemon, each at
/// its port, and this machine's loopback ports.
package final class TunnelPorts: TunnelServices {
    package static let speedTest: UInt16 = 3
    package static let http: UInt16 = 4
    /// Ports of services alone: without one they do not lead to what this machine has there.
    static let reserved: Set<UInt16> = [1, 2, speedTest, http, 22]

    /// Serves a connection of the peer; it throws where there is no room.
    package typealias Service = @Sendable (any Channel, Endpoint) throws -> Void

    package struct Configuration: Sendable {
        package var services: [UInt16: Service]
        /// Whether this daemon itself listens on a port of this machine: a peer does not get to it. To answer at once.
        package var isOwnPort: @Sendable (UInt16) -> Bool
        /// UDP ports likewise.
        package var ownUDPPorts: Set<UInt16>

        package init(
            services: [UInt16: Service] = [:], ownUDPPorts: Set<UInt16> = [],
            isOwnPort: @escaping @Sendable (UInt16) -> Bool = { _ in false }
        ) {
            self.services = services
            self.isOwnPort = isOwnPort
            self.ownUDPPorts = ownUDPPorts
        }
    }

    private let tunnel: Tunnel
    private let configuration: Configuration
    /// The port of the tunnel's own UDP sockets.
    var ownUDPPort: UInt16?
    private let udp: UDPForwards
    /// Requests that wait for an answer of the port at loopback, and connections to it whose peer is not ready yet.
    private var dials: [ConnectionID: (any Channel)?] = [:]

    package init(tunnel: Tunnel, configuration: Configuration) {
        (self.tunnel, self.configuration) = (tunnel, configuration)
        udp = UDPForwards(tunnel: tunnel)
    }

    package func connectionRequested(_ id: ConnectionID, local: Endpoint, remote: Endpoint) {
        if let serve = configuration.services[local.port] {
            tunnel.accept(id) { channel in try serve(channel, remote) }
        } else if Self.reserved.contains(local.port) || configuration.isOwnPort(local.port) {
            tunnel.refuse(id)
        } else {
            dial(id, port: local.port)
        }
    }

    /// Answers only once the port at loopback has: a client learns at once when nothing listens.
    private func dial(_ id: ConnectionID, port: UInt16) {
        dials[id] = .some(nil)
        let bootstrap = ClientBootstrap(group: tunnel.loop)
            .channelOption(.autoRead, value: false)
            .channelOption(.allowRemoteHalfClosure, value: true)
        let ports = NIOLoopBound(self, eventLoop: tunnel.loop)
        let v4 = SocketAddress(Endpoint(IPAddress(v4: 0x7f00_0001), port))
        let v6 = SocketAddress(Endpoint(IPAddress(high: 0, low: 1), port))
        bootstrap.connect(to: v4).assumeIsolated()
            .flatMapError { _ in bootstrap.connect(to: v6) }
            .whenComplete { result in ports.value.dialled(id, try? result.get()) }
    }

    private func dialled(_ id: ConnectionID, _ channel: (any Channel)?) {
        guard dials.removeValue(forKey: id) != nil else {
            if let channel { StreamRelay.reset(channel) }
            return
        }
        guard let channel else { return tunnel.refuse(id) }
        dials[id] = channel
        tunnel.accept(id) { [weak self] stream in
            self?.dials[id] = nil
            do {
                try StreamRelay.join(stream, channel)
            } catch {
                // It has ended meanwhile.
                channel.close(promise: nil)
                throw error
            }
        }
    }

    package func requestEnded(_ id: ConnectionID) {
        if let channel = dials.removeValue(forKey: id) ?? nil { StreamRelay.reset(channel) }
    }

    package func datagram(_ payload: ByteBuffer, local: Endpoint, remote: Endpoint) {
        guard local.port != ownUDPPort, !configuration.ownUDPPorts.contains(local.port) else { return }
        udp.datagram(payload, local: local, remote: remote)
    }

    package func flowEnded(local: Endpoint, remote: Endpoint) { udp.flowEnded(local: local, remote: remote) }

    /// To be called after the tunnel's end.
    package func close() {
        udp.close()
        let open = dials.values.compactMap { $0 }
        dials = [:]
        for channel in open { channel.close(promise: nil) }
    }
}
