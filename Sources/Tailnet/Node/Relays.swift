import AgentCore
import DERP
import DequeModule
import Logging
import NIOCore
import Sodium

/// Our connections to relays: which there are, which one is home, and what goes over them. The rules are those of
/// ``RelayLinks``, ``HomeChooser`` and ``RelayRoutes``; this dials, measures and carries. On its event loop only.
final class Relays {
    struct Handlers {
        /// A packet that this region's relay says is from this peer.
        var packet: (_ region: Int, PublicKey, ByteBuffer) -> Void
        /// The last packet of a burst was handed over.
        var burstEnded: () -> Void
        /// Home, its state, latencies or forced WebSockets are others.
        var changed: () -> Void
    }

    private struct Dial {
        var number: UInt64
        var task: Task<Void, Never>?
    }

    private let loop: any EventLoop
    private let executor: EventLoopTaskExecutor
    private let key: PrivateKey
    private let transport: any RelayTransport
    private let clock: @Sendable () -> Duration
    private let logger: Logger
    private var handlers: Handlers?
    private var random = SystemRandomNumberGenerator()

    private(set) var map = DERPMap()
    private(set) var links: RelayLinks
    private var chooser = HomeChooser()
    private var routes = RelayRoutes()
    private var dials: [Int: Dial] = [:]
    private var channels: [Int: RelayHandler] = [:]
    private var lastDial: UInt64 = 0
    /// Packets that wait for a connection; at ``DERPLimits/queuedPackets`` a further one is dropped.
    private var waiting: [Int: Deque<(PublicKey, ByteBuffer)>] = [:]
    /// Those with packets to be written.
    private var unwritten: Set<Int> = []
    /// What is wrong with a region's relay, in its words or ours.
    private(set) var problems: [Int: String] = [:]
    private(set) var opened: [Int: Duration] = [:]
    /// Packets for which there was no relay, or no room while it was dialled.
    private(set) var drops: UInt64 = 0
    private var ended = DERPConnection.Counters()
    private var isPerforming = false

    init(
        loop: any EventLoop, executor: EventLoopTaskExecutor, key: PrivateKey, alwaysWebSocket: Bool,
        transport: any RelayTransport, clock: @escaping @Sendable () -> Duration, logger: Logger
    ) {
        (self.loop, self.executor, self.key, self.transport) = (loop, executor, key, transport)
        (self.clock, self.logger) = (clock, logger)
        links = RelayLinks(alwaysWebSocket: alwaysWebSocket, random: SystemRandomNumberGenerator())
    }

    func start(_ handlers: Handlers) { self.handlers = handlers }

    // MARK: What there is

    /// The region of our home relay; 0 while there is none.
    var home: Int { links.home ?? 0 }
    var isHomeUp: Bool { links.home.map { links.isOpen($0) } ?? false }

    /// By `REGION-v4` or `REGION-v6`, as nodes tell them.
    func latencies(now: Duration) -> [String: Duration] {
        let byRegion = chooser.latencies(now: now).map { region, latency in
            let isV6 = map.regions[region]?.relay?.host.contains(":") ?? false
            return ("\(region)-\(isV6 ? "v6" : "v4")", latency)
        }
        return Dictionary(byRegion, uniquingKeysWith: min)
    }

    /// Of all connections, those that have ended among them.
    var counters: DERPConnection.Counters { channels.values.reduce(into: ended) { $0.add($1.connection.counters) } }

    func queued(_ region: Int) -> Int { channels[region]?.connection.queuedPackets ?? 0 }

    // MARK: Events

    func setMap(_ map: DERPMap) {
        let now = clock()
        guard map != self.map else { return }
        self.map = map
        let known = Set(map.regions.keys)
        problems = problems.filter { known.contains($0.key) }
        waiting = waiting.filter { known.contains($0.key) }
        chooser.update(map, now: now)
        links.update(map, now: now)
        work(now)
        handlers?.changed()
    }

    /// From now on relays are dialled so; those that are connected stay.
    func setAlwaysWebSocket(_ isForced: Bool) { links.alwaysWebSocket = isForced }

    /// Sends a packet to a peer by the relay that is right for it, or drops it: IP may.
    /// - Parameters:
    ///   - preferred: the region of the peer's home; 0 where it isn't known.
    ///   - region: the one to use instead, if it is open.
    func send(_ packet: ByteBuffer, to peer: PublicKey, preferred: Int, region: Int? = nil) {
        let now = clock()
        if let region, links.isOpen(region) { return write(packet, to: peer, region, now) }
        switch routes.route(peer, preferred: preferred, links: links) {
        case .send(let region): write(packet, to: peer, region, now)
        case .dial(let region):
            links.wanted(region, now: now)
            perform(now)
            if let channel = channels[region], !links.isClosing(region) {
                // Its greeting is under way.
                channel.send(packet, to: peer)
                unwritten.insert(region)
            } else if map.regions[region] != nil, waiting[region]?.count ?? 0 < DERPLimits.queuedPackets {
                waiting[region, default: []].append((peer, packet))
            } else {
                drops &+= 1
            }
        case .none: drops &+= 1
        }
    }

    private func write(_ packet: ByteBuffer, to peer: PublicKey, _ region: Int, _ now: Duration) {
        guard let channel = channels[region] else { return }
        links.wrote(region, now: now)
        channel.send(packet, to: peer)
        unwritten.insert(region)
    }

    /// Writes what ``send(_:to:preferred:region:)`` has queued.
    func flush() {
        guard !unwritten.isEmpty else { return }
        let regions = unwritten
        unwritten = []
        for region in regions { channels[region]?.write() }
    }

    /// A packet of a peer that we know came by this relay.
    func heard(_ peer: PublicKey, from region: Int) { routes.heard(peer, from: region, now: clock()) }

    func forget(_ peer: PublicKey) { routes.forget(peer) }

    // MARK: Time

    var nextDeadline: Duration? {
        let connections = channels.values.compactMap(\.connection.nextDeadline).min()
        return [links.nextDeadline, chooser.nextDeadline, connections].compactMap { $0 }.min()
    }

    /// Does what is due.
    func work(_ now: Duration) {
        for channel in channels.values where channel.connection.nextDeadline.map({ $0 <= now }) ?? false {
            channel.advance(now: now)
        }
        links.advance(now: now)
        if let round = chooser.advance(now: now) { measure(round) }
        let isOther = chooser.home != links.home
        links.setHome(chooser.home, now: now)
        perform(now)
        if isOther { handlers?.changed() }
    }

    private func perform(_ now: Duration) {
        guard !isPerforming else { return }
        isPerforming = true
        defer { isPerforming = false }
        while true {
            let actions = links.takeActions()
            if actions.isEmpty { return }
            for action in actions {
                switch action {
                case .dial(let region, let relay, let webSocket): dial(region, relay, webSocket, now)
                case .close(let region): close(region, "it is not needed any more")
                case .notePreferred(let region, let isHome): channels[region]?.notePreferred(isHome)
                }
            }
        }
    }

    // MARK: Connections

    private func dial(_ region: Int, _ relay: RelayURL, _ webSocket: Bool, _ now: Duration) {
        lastDial += 1
        let (number, loop, transport) = (lastDial, loop, transport)
        let relays = NIOLoopBound(self, eventLoop: loop)
        dials[region] = Dial(number: number)
        let dialled = now
        dials[region]?.task = Task(executorPreference: executor) {
            let failure: RelayDialError?
            do {
                _ = try await transport.dial(relay, webSocket: webSocket, on: loop, within: DERPLimits.greeting) {
                    try relays.value.attach($0, region, number, dialled: dialled)
                }
                failure = nil
            } catch {
                failure = error as? RelayDialError ?? RelayDialError("\(relay): \(error)")
            }
            loop.execute { if let failure { relays.value.failed(region, number, failure) } }
        }
    }

    /// The upgrade is done: from now on the channel's end is the connection's.
    private func attach(_ channel: any Channel, _ region: Int, _ number: UInt64, dialled: Duration) throws {
        guard let dial = dials[region], dial.number == number else { throw ChannelError.eof }
        let now = clock()
        var connection = DERPConnection(
            key: key, isHome: links.home == region, dialled: dialled, now: now, random: &random)
        for (peer, packet) in waiting.removeValue(forKey: region) ?? [] { connection.send(packet, to: peer) }
        let handler = RelayHandler(
            region: region, connection: connection, clock: clock,
            event: { [weak self] in self?.handle($1, of: $0) },
            burstEnded: { [weak self] in self?.handlers?.burstEnded() },
            closed: { [weak self] in self?.closed($0) })
        _ = channel.setOption(.writeBufferWaterMark, value: RelayHandler.waterMark)
        try channel.pipeline.syncOperations.addHandler(handler)
        dials[region] = nil
        channels[region] = handler
    }

    private func failed(_ region: Int, _ number: UInt64, _ error: RelayDialError) {
        guard dials[region]?.number == number else { return }
        dials[region] = nil
        if error.refusesUpgrade { links.refusedUpgrade(region, reason: "\(error)") }
        lost(region, "\(error)")
    }

    private func closed(_ handler: RelayHandler) {
        guard channels[handler.region] === handler else { return }
        channels[handler.region] = nil
        opened[handler.region] = nil
        ended.add(handler.connection.counters)
        routes.closed(handler.region)
        lost(handler.region, handler.problem ?? "the connection ended")
    }

    private func lost(_ region: Int, _ reason: String) {
        let now = clock()
        let wasHome = links.home == region
        let counts = links.closed(region, now: now)
        if counts {
            drops &+= UInt64(waiting.removeValue(forKey: region)?.count ?? 0)
            chooser.relayFailed(now: now)
            if map.regions[region] != nil {
                if problems[region] != reason {
                    logger.log(
                        level: wasHome ? .warning : .info, "the connection to a relay was lost, or could not be made",
                        metadata: ["region": "\(region)", "reason": "\(reason)"])
                }
                problems[region] = reason
            }
        }
        work(now)
        handlers?.changed()
    }

    private func close(_ region: Int, _ reason: String) {
        if let channel = channels[region] { return channel.close(reason) }
        // The task may have ended already; then its failure is ignored.
        guard let dial = dials.removeValue(forKey: region) else { return }
        dial.task?.cancel()
        lost(region, reason)
    }

    private func handle(_ event: DERPConnection.Event, of handler: RelayHandler) {
        let region = handler.region
        switch event {
        case .greeted: unwritten.insert(region)
        case .connected:
            let now = clock()
            links.opened(region, now: now)
            opened[region] = now
            problems[region] = nil
            // It may have become home, or cease to be, while it was dialled.
            handler.notePreferred(links.home == region)
            logger.debug("connected to a relay", metadata: ["region": "\(region)"])
            work(now)
            handlers?.changed()
        case .packet(let peer, let packet): handlers?.packet(region, peer, packet)
        case .peerGone(let peer, _): routes.gone(peer, from: region)
        case .health(let text):
            problems[region] = text
            if let text {
                logger.warning("relay reports a problem", metadata: ["region": "\(region)", "says": "\(text)"])
            }
            handlers?.changed()
        case .restarting(let reconnectIn, let tryFor):
            links.restarting(region, reconnectIn: reconnectIn, tryFor: tryFor, now: clock())
        case .ended:
            links.failing(region)
            handlers?.changed()
        case .pong: break
        }
    }

    // MARK: Home

    private func measure(_ round: HomeChooser.Round) {
        let (loop, transport) = (loop, transport)
        let relays = NIOLoopBound(self, eventLoop: loop)
        for region in round.regions {
            guard let relay = map.regions[region]?.relay else { continue }
            Task(executorPreference: executor) {
                let result: Result<Duration, any Error>
                do {
                    result = .success(try await transport.latency(relay, on: loop, within: DERPLimits.measureFor))
                } catch {
                    result = .failure(error)
                }
                loop.execute { relays.value.measured(region, result, round.number) }
            }
        }
    }

    private func measured(_ region: Int, _ result: Result<Duration, any Error>, _ round: UInt64) {
        let now = clock()
        if case .failure(let error) = result {
            logger.debug("a relay's latency is not known", metadata: ["region": "\(region)", "error": "\(error)"])
        }
        chooser.measured(region, try? result.get(), round: round, now: now)
        work(now)
        handlers?.changed()
    }

    /// Closes everything; nothing is dialled afterwards.
    func close() {
        handlers = nil
        links = RelayLinks(alwaysWebSocket: false, random: SystemRandomNumberGenerator())
        chooser = HomeChooser()
        let (dialling, open) = (dials, channels)
        (dials, channels, waiting) = ([:], [:], [:])
        for dial in dialling.values { dial.task?.cancel() }
        for channel in open.values { channel.close("the node ends") }
    }
}

extension DERPConnection.Counters {
    fileprivate mutating func add(_ other: Self) {
        receivedPackets &+= other.receivedPackets
        receivedBytes &+= other.receivedBytes
        sentPackets &+= other.sentPackets
        sentBytes &+= other.sentBytes
        droppedQueueFull &+= other.droppedQueueFull
        droppedRateLimit &+= other.droppedRateLimit
        droppedTooLong &+= other.droppedTooLong
        droppedReceivedTooLong &+= other.droppedReceivedTooLong
        unansweredPings &+= other.unansweredPings
        skippedFrames &+= other.skippedFrames
    }
}
