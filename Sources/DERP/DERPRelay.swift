import DequeModule
import NIOCore
import Sodium

/// A relay for the control plane simulator: it greets clients and passes packets between them
/// (docs/contracts/derp.md#frames). The driver names its connections, hands in what it read, and sends what
/// ``write(into:for:upTo:)`` gives for each connection of ``takeReady()``.
package struct DERPRelay: Sendable {
    package typealias ID = UInt64

    package struct Counters: Hashable, Sendable {
        package var routed: UInt64 = 0
        /// The oldest packets of clients' full queues.
        package var droppedQueueFull: UInt64 = 0
        package var droppedNotHere: UInt64 = 0
        package var droppedTooLong: UInt64 = 0
        package var unansweredPings: UInt64 = 0
    }

    struct Client {
        var reader = DERPFrameReader()
        var key: PublicKey?
        var isHome = false
        var control = ByteBuffer()
        var queue: Deque<(PublicKey, ByteBuffer)> = []
        /// Keys of clients with which this one exchanged packets; they are told when it goes.
        var partners: Set<PublicKey> = []
        var keepAliveAt: Duration
    }

    /// What clients are told about how much they may send; nil for no limit.
    package struct RateLimit: Hashable, Sendable {
        package var bytesPerSecond: Int
        package var burst: Int

        package init(bytesPerSecond: Int, burst: Int) {
            self.bytesPerSecond = bytesPerSecond
            self.burst = burst
        }
    }

    private let key: PrivateKey
    private let rateLimit: RateLimit?
    private var random: any RandomNumberGenerator & Sendable
    private var clients: [ID: Client] = [:]
    /// The connections of each key, the one that gets its packets last.
    private var connections: [PublicKey: [ID]] = [:]
    private var ready: Set<ID> = []
    package private(set) var counters = Counters()

    package init(key: PrivateKey, rateLimit: RateLimit? = nil, random: any RandomNumberGenerator & Sendable) {
        self.key = key
        self.rateLimit = rateLimit
        self.random = random
    }

    package var connectionCount: Int { clients.count }
    /// The client that has marked this relay as its home.
    package func isHome(of peer: PublicKey) -> Bool { active(peer).flatMap { clients[$0]?.isHome } ?? false }
    package func isConnected(_ peer: PublicKey) -> Bool { active(peer) != nil }

    private func active(_ peer: PublicKey) -> ID? { connections[peer]?.last }

    /// A connection was made; its HTTP part is over.
    package mutating func connect(_ id: ID, now: Duration) throws(DERPError) {
        guard clients.count < DERPLimits.relayClients else { throw .tooManyClients }
        clients[id] = Client(keepAliveAt: now + DERPLimits.keepAlive)
        tell(id, .serverKey(key.publicKey))
    }

    /// Takes bytes of a client. When it throws, close the connection and call ``disconnect(_:)``.
    package mutating func receive(_ bytes: ByteBuffer, from id: ID, now: Duration) throws(DERPError) {
        clients[id]?.reader.append(bytes)
        while let frame = try clients[id]?.reader.next() { try take(frame, from: id) }
    }

    private mutating func take(_ frame: DERPFrame, from id: ID) throws(DERPError) {
        guard let source = clients[id]?.key else { return try greet(id, frame) }
        switch frame {
        case .send(let destination, let packet): route(packet, from: source, id, to: destination)
        case .notePreferred(let isHome): clients[id]?.isHome = isHome
        case .ping(let data):
            guard mayAnswer(id) else {
                counters.unansweredPings &+= 1
                return
            }
            tell(id, .pong(data))
        default: break
        }
    }

    /// Whether a client takes what it is told: one that doesn't gets no more answers.
    private func mayAnswer(_ id: ID) -> Bool {
        clients[id].map { $0.control.readableBytes < DERPLimits.controlBytes } ?? false
    }

    private mutating func greet(_ id: ID, _ frame: DERPFrame) throws(DERPError) {
        guard case .clientInfo(let peer, let nonce, let sealed) = frame else {
            throw .badClientInfo("is not its first frame")
        }
        guard sealed.count <= DERPLimits.infoBytes else { throw .badClientInfo("is too long") }
        guard let box = Box(key, peer), box.open(sealed, nonce: nonce) != nil else {
            throw .badClientInfo("is not authentic")
        }
        var json = #"{"version":2}"#
        if let rateLimit {
            json =
                #"{"version":2,"TokenBucketBytesPerSecond":\#(rateLimit.bytesPerSecond),"#
                + #""TokenBucketBytesBurst":\#(rateLimit.burst)}"#
        }
        let answer = makeNonce(&random)
        guard let info = box.seal(Array(json.utf8), nonce: answer) else { throw .badClientInfo("has a bad key") }
        clients[id]?.key = peer
        connections[peer, default: []].append(id)
        tell(id, .serverInfo(nonce: answer, box: info))
    }

    private mutating func route(_ packet: ByteBuffer, from source: PublicKey, _ id: ID, to destination: PublicKey) {
        guard packet.readableBytes <= DERPLimits.packetBytes else {
            counters.droppedTooLong &+= 1
            return
        }
        guard let target = active(destination) else {
            counters.droppedNotHere &+= 1
            // Only a packet of disco is answered, by its magic (tailnet_derp.json).
            if packet.readableBytesView.starts(with: [0x54, 0x53, 0xf0, 0x9f, 0x92, 0xac]), mayAnswer(id) {
                tell(id, .peerGone(destination, .notHere))
            }
            return
        }
        counters.routed &+= 1
        clients[id]?.partners.insert(destination)
        clients[target]?.partners.insert(source)
        clients[target]?.queue.append((source, packet))
        if let count = clients[target]?.queue.count, count > DERPLimits.queuedPackets {
            clients[target]?.queue.removeFirst()
            counters.droppedQueueFull &+= 1
        }
        ready.insert(target)
    }

    /// A connection has ended. The clients that exchanged packets with its key are told, unless it has another one.
    package mutating func disconnect(_ id: ID) {
        ready.remove(id)
        guard let client = clients.removeValue(forKey: id), let key = client.key else { return }
        connections[key]?.removeAll { $0 == id }
        guard connections[key]?.isEmpty ?? true else { return }
        connections[key] = nil
        for partner in client.partners {
            guard let other = active(partner) else { continue }
            clients[other]?.partners.remove(key)
            if mayAnswer(other) { tell(other, .peerGone(key, .disconnected)) }
        }
    }

    /// Sends a frame to a client: health, restarting, or what a test wants.
    package mutating func tell(_ id: ID, _ frame: DERPFrame) {
        guard clients[id] != nil else { return }
        clients[id]?.control.writeFrame(frame)
        ready.insert(id)
    }

    /// The connections for which there is something to send since the last call.
    package mutating func takeReady() -> [ID] {
        defer { ready = [] }
        return ready.sorted()
    }

    /// Appends frames until the buffer has `limit` bytes or more. Returns whether something is left.
    @discardableResult
    package mutating func write(into out: inout ByteBuffer, for id: ID, upTo limit: Int = 65_536) -> Bool {
        guard var client = clients.removeValue(forKey: id) else { return false }
        out.writeBuffer(&client.control)
        client.control.clear()
        while out.readableBytes < limit, let (source, packet) = client.queue.popFirst() {
            out.writePacket(0x05, source, packet)
        }
        clients[id] = client
        return !client.queue.isEmpty
    }

    package var nextDeadline: Duration? { clients.values.map(\.keepAliveAt).min() }

    package mutating func advance(now: Duration) {
        for (id, client) in clients where client.keepAliveAt <= now {
            clients[id]?.keepAliveAt = now + DERPLimits.keepAlive
            // One that takes nothing gets no more of them.
            if client.key != nil, mayAnswer(id) { tell(id, .keepAlive) }
        }
    }
}

extension ByteBuffer {
    mutating func writeFrame(_ frame: DERPFrame) { frame.write(into: &self) }
}
