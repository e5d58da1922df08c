import AgentCore
import AgentProto
import DERP
import Disco
import IPAddresses
import Logging
import NIOCore
import NetStack
import Sodium
import Synchronization
import WireGuard

/// A node of the tailnet in user space: it hears of peers from the control plane, reaches them by relays and direct
/// paths, and serves them over WireGuard (docs/contracts/tailnet.md). The rules are the machines'; this joins them on
/// one event loop.
///
/// Unchecked, since it is touched on its event loop only, as NIO's channels are; ``summary`` may be read anywhere.
package final class TailnetNode: Underlay, @unchecked Sendable {
    package struct Configuration: Sendable {
        package var addresses: TailnetAddresses
        /// Ours, where embedded relays are. nil leaves them as the map has them.
        package var controlPlane: ControlPlaneAddress?
        package var alwaysWebSocket = false
        package var isDirectEnabled = true
        /// UDP port of direct paths; 0, or one that is in use, lets the kernel choose.
        package var port: UInt16 = 0
        package var limits = NetStackLimits()

        package init(addresses: TailnetAddresses, controlPlane: ControlPlaneAddress?) {
            (self.addresses, self.controlPlane) = (addresses, controlPlane)
        }
    }

    /// What is known of a peer besides what WireGuard and disco know.
    struct Peer {
        var peer: TailnetPeer
        var wireGuard: PeerID
    }

    package let tunnel: Tunnel
    package let key: PublicKey
    package let loop: any EventLoop
    let executor: EventLoopTaskExecutor
    let relays: Relays
    let direct: DirectSockets
    let logger: Logger
    let clock: @Sendable () -> Duration
    var coordinator: Coordinator
    var disco: DiscoNode
    var configuration: Configuration
    /// As it came, before embedded relays were rewritten.
    private var announcedMap = DERPMap()
    var peers: [PublicKey: Peer] = [:]
    var keys: [PeerID: PublicKey] = [:]
    /// Sends requests on the stream of coordination, while there is one.
    var sendRequest: ((Coder_Tailnet_V2_CoordinateRequest) -> Void)?
    var pings: [UInt64: EventLoopPromise<PingResult>] = [:]
    /// Packets that were dropped before any machine saw them, by cause.
    var drops: [Drop: UInt64] = [:]
    private var ports: TunnelPorts?
    private var scratch: UnsafeMutableRawBufferPointer
    private var timer: (due: Duration, task: Scheduled<Void>)?
    private var coordinationDeadline: Duration?
    private var isWorking = false
    private var isPublishing = false
    private(set) var isClosed = false
    private let published = Mutex(Summary())

    enum Drop: String, CaseIterable {
        case unknownRelayPeer = "unknown peer at a relay"
        case unboundAddress = "unknown UDP address"
        case otherDatagram = "neither WireGuard nor disco nor STUN"
        case wrongAddress = "a peer's packet from an address of another"
        case noPeer = "no such peer"
    }

    /// To be called anywhere; ``start(_:)`` begins.
    /// - Throws: when there is no cryptography.
    package init(
        _ configuration: Configuration, transport: any RelayTransport, machine: Machine, on loop: any EventLoop,
        logger: Logger, clock: @escaping @Sendable () -> Duration = TunnelClock.now
    ) throws {
        var random = SystemRandomNumberGenerator()
        let (key, discoKey) = (try PrivateKey(random: &random), try PrivateKey(random: &random))
        (self.configuration, self.loop, self.logger, self.clock) = (configuration, loop, logger, clock)
        self.key = key.publicKey
        executor = EventLoopTaskExecutor(loop)
        tunnel = Tunnel(
            loop: loop,
            node: WireGuardNode(key: key, addresses: configuration.addresses.all, wall: TunnelClock.wall),
            limits: configuration.limits, clock: clock)
        relays = Relays(
            loop: loop, executor: executor, key: key, alwaysWebSocket: configuration.alwaysWebSocket,
            transport: transport, clock: clock, logger: logger)
        direct = DirectSockets(
            port: configuration.port, loop: loop, executor: executor, machine: machine, logger: logger)
        coordinator = Coordinator(
            addresses: configuration.addresses, key: key.publicKey, disco: discoKey.publicKey
        ) { TunnelClock.timestamp() }
        disco = DiscoNode(
            key: discoKey, nodeKey: key.publicKey, isDirectEnabled: configuration.isDirectEnabled,
            random: SystemRandomNumberGenerator())
        scratch = .allocate(byteCount: DERPLimits.packetBytes, alignment: 16)
    }

    deinit { scratch.deallocate() }

    /// Begins to serve and, once there is a map, to connect.
    /// - Parameter services: what there is at our addresses; nothing for a node that only connects.
    package func start(_ services: TunnelPorts.Configuration) {
        loop.assertInEventLoop()
        let ports = TunnelPorts(tunnel: tunnel, configuration: services)
        self.ports = ports
        relays.start(
            .init(
                packet: { [weak self] in self?.received(from: $1, via: $0, $2) },
                burstEnded: { [weak self] in self?.burstEnded() }, changed: { [weak self] in self?.relaysChanged() }))
        direct.start(
            .init(
                datagram: { [weak self] in self?.received($0, from: $1) },
                burstEnded: { [weak self] in self?.burstEnded() },
                local: { [weak self] in self?.setLocal($0, v4: $1, v6: $2) },
                stunServers: { [weak self] in self?.setSTUNServers($0) }))
        direct.setWanted(configuration.isDirectEnabled)
        tunnel.start(underlay: self, services: ports)
    }

    /// Resets all connections and closes everything.
    package func close() {
        loop.assertInEventLoop()
        guard !isClosed else { return }
        tunnel.close()
        isClosed = true
        ports?.close()
        relays.close()
        direct.close()
        timer?.task.cancel()
        sendRequest = nil
        for ping in pings.values { ping.fail(ChannelError.eof) }
        pings = [:]
    }

    // MARK: What the control plane says of us

    /// Takes what a manifest, or the stream of maps, says.
    package func update(_ change: (inout Configuration) -> Void, map: DERPMap? = nil) {
        loop.assertInEventLoop()
        guard !isClosed else { return }
        let old = configuration
        change(&configuration)
        let now = clock()
        if configuration.addresses != old.addresses {
            tunnel.setAddresses(configuration.addresses.all)
            coordinator.setAddresses(configuration.addresses, now: now)
        }
        if configuration.isDirectEnabled != old.isDirectEnabled {
            disco.setDirect(configuration.isDirectEnabled, now: now)
            direct.setWanted(configuration.isDirectEnabled)
        }
        relays.setAlwaysWebSocket(configuration.alwaysWebSocket)
        if let map { announcedMap = map }
        if map != nil || configuration.controlPlane != old.controlPlane {
            let usable = configuration.controlPlane.map { announcedMap.rewritingEmbeddedRelays(to: $0) } ?? announcedMap
            direct.setServers(usable.stunServers)
            relays.setMap(usable)
        }
        coordinate()
        work()
    }

    // MARK: Work

    /// Does what is due and what the machines want done.
    func work() {
        guard !isWorking, !isClosed else { return }
        isWorking = true
        let now = clock()
        if disco.nextDeadline.map({ $0 <= now }) ?? false { disco.advance(now: now) }
        if relays.nextDeadline.map({ $0 <= now }) ?? false { relays.work(now) }
        if coordinationDeadline.map({ $0 <= now }) ?? false {
            coordinator.advance(now: now) { [self] in handshake(of: $0, now: now) }
            coordinate()
        }
        performDisco()
        direct.flush()
        relays.flush()
        isWorking = false
        setTimer()
    }

    private func burstEnded() {
        tunnel.work()
        work()
    }

    /// Once the current call has ended.
    func scheduleWork() { loop.assumeIsolated().execute { self.work() } }

    private func performDisco() {
        while let action = disco.nextAction() {
            switch action {
            case .sendUDP(let packet, let endpoint): packet.withUnsafeBytes { direct.send($0, to: endpoint) }
            case .sendRelay(let packet, let peer, let region):
                relays.send(
                    ByteBuffer(bytes: packet), to: peer, preferred: peers[peer]?.peer.home ?? 0, region: region)
            case .endpointsChanged(let endpoints):
                coordinator.setEndpoints(endpoints, now: clock())
                coordinate()
            case .pathChanged(let peer, let endpoint):
                logger.debug(
                    "the direct path to a peer changed",
                    metadata: ["peer": "\(peer)", "path": "\(endpoint.map { "\($0)" } ?? "none")"])
            case .pinged(let number, let latency, let via):
                pings.removeValue(forKey: number)?.succeed(PingResult(latency: latency, endpoint: via))
            }
        }
    }

    /// Performs what the coordinator wants.
    func coordinate() {
        while let action = coordinator.nextAction() {
            switch action {
            case .send(let request): sendRequest?(request)
            case .add(let peer): add(peer)
            case .change(let peer): change(peer)
            case .remove(let peer): remove(peer)
            case .log(let text, let isWarning): logger.log(level: isWarning ? .warning : .debug, "\(text)")
            }
        }
        coordinationDeadline = coordinator.nextDeadline
        publishSoon()
    }

    /// A timer that rings early costs less than one that is moved for each packet.
    private func setTimer() {
        guard let due = [disco.nextDeadline, relays.nextDeadline, coordinationDeadline].compactMap({ $0 }).min() else {
            return
        }
        if let timer, timer.due <= due { return }
        timer?.task.cancel()
        let task = loop.assumeIsolated().scheduleTask(in: TimeAmount.until(due, now: clock())) { [weak self] in
            self?.timer = nil
            self?.burstEnded()
        }
        timer = (due, task)
    }

    // MARK: In

    private func received(from peer: PublicKey, via region: Int, _ packet: ByteBuffer) {
        guard peers[peer] != nil else { return count(.unknownRelayPeer) }
        relays.heard(peer, from: region)
        packet.withUnsafeReadableBytes { bytes in
            switch DatagramKind(bytes) {
            case .disco: disco.receive(Array(bytes), from: .relay(region: region, peer: peer), now: clock())
            case .wireGuard:
                let copy = UnsafeMutableRawBufferPointer(rebasing: scratch[..<bytes.count])
                copy.copyMemory(from: bytes)
                tunnel.receive(copy, from: Source(peer))
            case .stun, .other: count(.otherDatagram)
            }
        }
    }

    private func received(_ datagram: UnsafeMutableRawBufferPointer, from endpoint: Endpoint) {
        switch DatagramKind(UnsafeRawBufferPointer(datagram)) {
        case .wireGuard:
            guard disco.peer(at: endpoint) != nil else { return count(.unboundAddress) }
            tunnel.receive(datagram, from: Source(endpoint))
        case .disco: disco.receive(Array(datagram), from: .udp(endpoint), now: clock())
        case .stun: disco.receiveSTUN(Array(datagram), now: clock())
        case .other: count(.otherDatagram)
        }
    }

    func count(_ drop: Drop) { drops[drop, default: 0] &+= 1 }

    // MARK: Underlay

    package var hasRoom: Bool { direct.hasRoom }

    package func send(_ datagram: UnsafeRawBufferPointer, to destination: Transmission.Destination) {
        switch destination {
        case .source(let source):
            if let endpoint = source.endpoint { return direct.send(datagram, to: endpoint) }
            guard let key = source.withBytes({ PublicKey($0) }) else { return }
            relay(datagram, to: key)
        case .peer(let id):
            guard let key = keys[id] else { return count(.noPeer) }
            switch disco.route(key, now: clock()) {
            case .udp(let endpoint): direct.send(datagram, to: endpoint)
            case .both(let endpoint):
                direct.send(datagram, to: endpoint)
                relay(datagram, to: key)
            case .relay, .none: relay(datagram, to: key)
            }
        }
    }

    private func relay(_ datagram: UnsafeRawBufferPointer, to key: PublicKey) {
        relays.send(ByteBuffer(bytes: datagram), to: key, preferred: peers[key]?.peer.home ?? 0)
    }

    package func flush() {
        if isWorking { return }
        // What sending has made necessary: pings of new paths.
        work()
    }

    package func heard(_ sender: Authentic, from source: Source) -> Bool {
        guard let key = keys[sender.peer] else { return false }
        if let endpoint = source.endpoint, disco.peer(at: endpoint) != key {
            count(.wrongAddress)
            return false
        }
        disco.received(from: key, now: clock())
        direct.refreshSoon()
        return true
    }

    package func handle(_ event: WireGuardNode.Event) {}

    // MARK: What is seen by others

    /// What may be read anywhere.
    package var summary: Summary {
        // The next look sees what is true by then.
        loop.execute { self.publishSoon() }
        return published.withLock { $0 }
    }

    /// After all that this turn of the event loop brings: peers may come by the thousand.
    private func publishSoon() {
        guard !isPublishing, !isClosed else { return }
        isPublishing = true
        loop.execute {
            self.isPublishing = false
            guard !self.isClosed else { return }
            let summary = self.makeSummary()
            self.published.withLock { $0 = summary }
        }
    }

    private func relaysChanged() {
        let now = clock()
        coordinator.setRelays(
            home: relays.home, latencies: relays.latencies(now: now), forcedWebSocket: relays.links.forcedWebSocket,
            now: now)
        coordinator.setRelayUp(relays.isHomeUp)
        coordinate()
        setTimer()
    }

    private func setLocal(_ interfaces: [IPAddress], v4: UInt16?, v6: UInt16?) {
        ports?.ownUDPPort = v4
        disco.setLocal(interfaces, v4: v4, v6: v6)
        work()
    }

    private func setSTUNServers(_ servers: [Endpoint]) {
        disco.setSTUNServers(servers, now: clock())
        work()
    }
}
