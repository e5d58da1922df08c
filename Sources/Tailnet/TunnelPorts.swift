import IPAddresses
import NIOCore
import NIOPosix
import NetStack

/// What there is at our addresses in the tunnel (docs/contracts/tailnet.md#ports): the HTTP API, the speed test, and
/// this machine's loopback ports.
package final class TunnelPorts: TunnelServices {
    package static let speedTest: UInt16 = 3
    package static let http: UInt16 = 4
    /// SSH and terminals, which are not served yet: they must not lead to this machine's own.
    static let reserved: Set<UInt16> = [1, 2, 22]

    package struct Configuration: Sendable {
        /// Takes a connection to the HTTP API; it throws where there is no room.
        package var http: @Sendable (any Channel, Endpoint) throws -> Void
        /// Ports that this daemon listens on: a peer does not get to them.
        package var ownPorts: Set<UInt16>
        /// UDP ports likewise.
        package var ownUDPPorts: Set<UInt16>

        package init(
            ownPorts: Set<UInt16>, ownUDPPorts: Set<UInt16> = [],
            http: @escaping @Sendable (any Channel, Endpoint) throws -> Void
        ) {
            (self.ownPorts, self.ownUDPPorts, self.http) = (ownPorts, ownUDPPorts, http)
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
        switch local.port {
        case Self.http:
            tunnel.accept(id) { [http = configuration.http] channel in try http(channel, remote) }
        case Self.speedTest:
            tunnel.accept(id) { channel in
                try channel.syncOptions?.setOption(.allowRemoteHalfClosure, value: true)
                try channel.pipeline.syncOperations.addHandler(SpeedTest())
            }
        case let port where Self.reserved.contains(port) || configuration.ownPorts.contains(port):
            tunnel.refuse(id)
        default: dial(id, port: local.port)
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
