import IPAddresses
import NIOCore
import NetStack
import WireGuard

/// Joins WireGuard and the IP stack on one event loop: datagrams in, connections out, and back. It does no I/O of its
/// own: the ``Underlay`` sends, and the ``TunnelServices`` say what there is behind our addresses.
///
/// Unchecked, since it is touched on its event loop only, as NIO's channels are.
package final class Tunnel: @unchecked Sendable {
    /// Packets that are sent in one turn of the event loop, so that a fast writer does not keep received ones waiting.
    static let packetsPerTurn = 256

    package let loop: any EventLoop
    package private(set) var node: WireGuardNode
    var stack: NetStack
    private weak var underlay: (any Underlay)?
    private weak var services: (any TunnelServices)?
    private let clock: @Sendable () -> Duration

    private var channels: [ConnectionID: StackChannel] = [:]
    private var initializers: [ConnectionID: Opening] = [:]
    private var orphans: Orphans
    private var buffer: ByteBuffer
    private var isWorking = false
    private var isTurnScheduled = false
    private var timer: (due: Duration, task: Scheduled<Void>)?
    private(set) var isClosed = false

    private struct Opening {
        var initializer: StackChannel.Initializer
        /// Only of connections that we opened.
        var promise: EventLoopPromise<any Channel>?
    }

    /// - Parameters:
    ///   - node: with our addresses and the tunnel's MTU.
    ///   - limits: those of the stack.
    ///   - orphanLife: how long the peer may take, without any progress, to end a connection that we have closed.
    ///   - clock: one that goes on while the machine sleeps.
    package init(
        loop: any EventLoop, node: WireGuardNode, limits: NetStackLimits = .init(),
        orphanLife: Duration = .seconds(60), clock: @escaping @Sendable () -> Duration = TunnelClock.now
    ) {
        self.loop = loop
        self.node = node
        self.clock = clock
        var random = SystemRandomNumberGenerator()
        stack = NetStack(addresses: node.addresses, limits: limits, random: &random)
        orphans = Orphans(life: orphanLife)
        let count = max(node.transmissionCount, node.limits.mtu + WireGuardNode.packetOffset + 64)
        buffer = ByteBufferAllocator().buffer(capacity: count)
        buffer.writeRepeatingByte(0, count: count)
    }

    /// To be called before anything else, on the event loop.
    package func start(underlay: any Underlay, services: any TunnelServices) {
        (self.underlay, self.services) = (underlay, services)
        work()
    }

    var now: Duration { clock() }

    // MARK: Peers

    /// Changes the node's peers and does what becomes necessary.
    package func withNode<R, E: Error>(
        _ body: (inout WireGuardNode, _ now: Duration) throws(E) -> R
    ) throws(E) -> R {
        loop.assertInEventLoop()
        defer { scheduleTurn() }
        return try body(&node, now)
    }

    /// Our addresses are others from now on. Connections to the old ones are reset.
    func setAddresses(_ addresses: [IPAddress]) {
        let now = now
        let old = channels.filter { stack.endpoints($0.key).map { !addresses.contains($0.local.address) } ?? false }
        for id in old.keys {
            channels[id] = nil
            stack.abort(id, now: now)
        }
        node.addresses = addresses
        stack.addresses = addresses
        for channel in old.values { channel.fail(ChannelError.eof) }
        scheduleTurn()
    }

    /// Resets every connection with these addresses, which are a peer's, and tells it at once.
    func reset(_ addresses: [IPAddress]) {
        guard !addresses.isEmpty else { return }
        for address in addresses { stack.reset(peer: address) }
        // Within a turn its events have had their time already.
        if isWorking { submitTurn() } else { work() }
    }

    /// Figures of the stack.
    package var stackCounters: NetStackCounters { stack.counters }
    package var connectionCount: Int { stack.connectionCount }
    /// What went through the stack since the last call.
    func takeStatistics() -> FlowStatistics { stack.takeStatistics() }

    // MARK: Datagrams

    /// Takes a datagram, which is worthless afterwards. After a burst of them, call ``work()``.
    package func receive(_ datagram: UnsafeMutableRawBufferPointer, from source: Source) {
        guard !isClosed else { return }
        let now = clock()
        switch node.receive(datagram, from: source, now: now) {
        case .packet(let sender, let range):
            guard underlay?.heard(sender, from: source) ?? true else { return }
            stack.receive(UnsafeRawBufferPointer(rebasing: datagram[range]), now: now)
        case .authenticated(let sender), .dropped(_, let sender?):
            _ = underlay?.heard(sender, from: source)
        case .cookie, .dropped(_, nil): break
        }
    }

    /// Does what is due, tells what happened and sends what there is to send.
    package func work() {
        guard !isWorking, !isClosed else { return }
        isWorking = true
        let now = clock()
        if node.nextDeadline.map({ $0 <= now }) ?? false { node.advance(now: now) }
        if stack.nextDeadline.map({ $0 <= now }) ?? false { stack.advance(now: now) }
        for id in orphans.due(now: now, left: { stack.queuedBytes($0) }) { stack.abort(id, now: now) }
        dispatchEvents()
        transmit()
        isWorking = false
        setTimer()
    }

    private func dispatchEvents() {
        while let event = node.nextEvent() { underlay?.handle(event) }
        while let event = stack.nextEvent() { dispatch(event) }
    }

    private func dispatch(_ event: NetStackEvent) {
        switch event {
        case .connectionRequested(let id, let local, let remote):
            if let services { services.connectionRequested(id, local: local, remote: remote) } else { refuse(id) }
        case .established(let id): establish(id)
        case .readable(let id):
            if let channel = channels[id] {
                channel.becameReadable()
            } else if stack.readableBytes(id) > 0, orphans.remove(id) {
                // The reader is gone: as the kernel does, say so.
                stack.abort(id, now: now)
            }
        case .writable(let id): channels[id]?.becameWritable()
        case .endOfInput(let id): channels[id]?.inputEnded()
        case .closed(let id):
            _ = orphans.remove(id)
            channels.removeValue(forKey: id)?.bothEnded()
        case .failed(let id, let failure):
            _ = orphans.remove(id)
            if let opening = initializers.removeValue(forKey: id) { opening.promise?.fail(failure) }
            if let channel = channels.removeValue(forKey: id) {
                channel.fail(failure)
            } else {
                services?.requestEnded(id)
            }
        case .datagram(let local, let remote, let payload):
            services?.datagram(payload, local: local, remote: remote)
        case .flowEnded(let local, let remote): services?.flowEnded(local: local, remote: remote)
        }
    }

    /// Sends until there is nothing, or no room, or the turn is over.
    /// - Returns: whether more could be sent at once.
    @discardableResult
    private func transmit() -> Bool {
        guard let underlay else { return false }
        var left = Self.packetsPerTurn
        var isDrained = false
        buffer.withUnsafeMutableReadableBytes { buffer in
            while underlay.hasRoom, node.hasTransmissions,
                let next = node.nextTransmission(into: buffer, now: now)
            {
                underlay.send(UnsafeRawBufferPointer(rebasing: buffer[..<next.count]), to: next.destination)
            }
            let packets = UnsafeMutableRawBufferPointer(rebasing: buffer[WireGuardNode.packetOffset...])
            while left > 0, underlay.hasRoom {
                let now = clock()
                guard let packet = stack.nextPacket(into: packets, now: now) else {
                    isDrained = true
                    return
                }
                left -= 1
                guard let peer = node.peer(owning: packet.destination) else { continue }
                let sealed = node.seal(in: buffer, packetCount: packet.count, for: peer, now: now)
                if case .datagram(let count) = sealed {
                    underlay.send(UnsafeRawBufferPointer(rebasing: buffer[..<count]), to: .peer(peer))
                }
            }
        }
        underlay.flush()
        guard underlay.hasRoom, !isDrained || node.hasTransmissions else { return false }
        submitTurn()
        return true
    }

    /// Sends at once what a channel has written. Events wait for a turn of their own: a pipeline that writes is not
    /// to be called back.
    func send() {
        guard !isWorking, !isClosed else { return }
        isWorking = true
        transmit()
        isWorking = false
        scheduleTurn()
    }

    /// Works once the current call has ended; a turn that is under way does it anyway.
    func scheduleTurn() {
        if !isWorking { submitTurn() }
    }

    private func submitTurn() {
        guard !isTurnScheduled, !isClosed else { return }
        isTurnScheduled = true
        loop.execute {
            self.isTurnScheduled = false
            self.work()
        }
    }

    /// A timer that rings early costs less than one that is moved for each packet.
    private func setTimer() {
        let deadlines = [node.nextDeadline, stack.nextDeadline, orphans.nextDeadline].compactMap { $0 }
        guard let due = deadlines.min() else { return }
        if let timer, timer.due <= due { return }
        timer?.task.cancel()
        let task = loop.scheduleTask(in: TimeAmount.until(due, now: now)) {
            self.timer = nil
            self.work()
        }
        timer = (due, task)
    }

    // MARK: Connections

    /// Takes a requested connection.
    /// - Parameter initializer: sets up the channel's pipeline once the handshake is over; the channel is reset when
    ///   it throws.
    package func accept(_ id: ConnectionID, initializer: @escaping (any Channel) throws -> Void) {
        loop.assertInEventLoop()
        guard stack.accept(id, now: now) else { return }
        initializers[id] = Opening(initializer: initializer)
        scheduleTurn()
    }

    /// Answers a requested connection with RST.
    package func refuse(_ id: ConnectionID) {
        loop.assertInEventLoop()
        stack.refuse(id)
        scheduleTurn()
    }

    /// Opens a connection to a peer's address.
    /// - Throws: when there is no room for it, or no peer has the address.
    package func connect(
        to remote: Endpoint, initializer: @escaping (any Channel) throws -> Void = { _ in }
    ) -> EventLoopFuture<any Channel> {
        loop.assertInEventLoop()
        guard node.peer(owning: remote.address) != nil, let id = stack.connect(to: remote, now: now) else {
            return loop.makeFailedFuture(TunnelError.noRoute(remote))
        }
        let promise = loop.makePromise(of: (any Channel).self)
        initializers[id] = Opening(initializer: initializer, promise: promise)
        scheduleTurn()
        return promise.futureResult
    }

    private func establish(_ id: ConnectionID) {
        guard let opening = initializers.removeValue(forKey: id), let ends = stack.endpoints(id) else { return }
        let channel = StackChannel(tunnel: self, id: id, local: ends.local, remote: ends.remote)
        channels[id] = channel
        do {
            try opening.initializer(channel)
            channel.activate()
            opening.promise?.succeed(channel)
        } catch {
            channels[id] = nil
            stack.abort(id, now: now)
            channel.fail(error)
            opening.promise?.fail(error)
        }
    }

    /// A channel closed itself; what it wrote is on its way.
    func closed(_ id: ConnectionID, isAborted: Bool) {
        channels[id] = nil
        if isAborted || stack.readableBytes(id) > 0 {
            stack.abort(id, now: now)
        } else {
            stack.finish(id, now: now)
            orphans.add(id, queued: stack.queuedBytes(id), now: now)
        }
        scheduleTurn()
    }

    /// Sends a datagram to a peer, or drops it.
    package func sendDatagram(_ payload: ByteBuffer, from local: Endpoint, to remote: Endpoint) {
        stack.sendDatagram(from: local, to: remote, payload, now: now)
        scheduleTurn()
    }

    /// Tells a peer that no program listens at the port that its datagram was for.
    func sendPortUnreachable(_ payload: ByteBuffer, from local: Endpoint, to remote: Endpoint) {
        stack.portUnreachable(from: local, to: remote, payload, now: now)
        scheduleTurn()
    }

    /// Resets all connections and ends. The underlay is its owner's.
    package func close() {
        loop.assertInEventLoop()
        guard !isClosed else { return }
        let open = channels
        for id in open.keys { stack.abort(id, now: now) }
        for opening in initializers.values { opening.promise?.fail(ChannelError.eof) }
        (channels, initializers) = ([:], [:])
        isWorking = true
        while transmit() {}
        isWorking = false
        isClosed = true
        timer?.task.cancel()
        for channel in open.values { channel.fail(ChannelError.eof) }
    }
}

/// Why there is no connection.
package enum TunnelError: Error, CustomStringConvertible {
    case noRoute(Endpoint)
    case noPeer

    package var description: String {
        switch self {
        case .noRoute(let remote): "cannot connect to \(remote): no peer has this address, or there is no room"
        case .noPeer: "there is no such peer, or it has too many pings under way"
        }
    }
}
