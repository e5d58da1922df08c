import DequeModule
import FoundationEssentials
import NIOCore
import Sodium

/// Our side of one connection to a relay, from the first byte after the HTTP upgrade (docs/contracts/derp.md#frames).
///
/// The driver hands in what it read (``receive(_:now:)``), takes events until there is none (``nextEvent(now:)``), sends
/// what ``write(into:upTo:now:)`` gives, and calls ``advance(now:)`` at ``nextDeadline``. Times are since any fixed point.
package struct DERPConnection: Sendable {
    package enum Event: Hashable, Sendable {
        /// The relay's key came and our client info is to be sent. Packets may follow it.
        case greeted(server: PublicKey)
        /// The relay has answered: it routes packets to us.
        case connected
        /// A packet of a peer: disco or WireGuard, and nothing about it is authentic yet.
        case packet(from: PublicKey, ByteBuffer)
        case peerGone(PublicKey, PeerGoneReason)
        /// What is wrong with this connection in the relay's words; nil when all is well again.
        case health(String?)
        case pong(UInt64)
        /// The relay goes away; see ``RelayLinks/restarting(_:reconnectIn:tryFor:now:)``.
        case restarting(reconnectIn: Duration, tryFor: Duration)
        /// Close the connection. Nothing comes after this.
        case ended(DERPError)
    }

    package struct Counters: Hashable, Sendable {
        package var receivedPackets: UInt64 = 0
        package var receivedBytes: UInt64 = 0
        package var sentPackets: UInt64 = 0
        package var sentBytes: UInt64 = 0
        /// Packets for which the queue was full.
        package var droppedQueueFull: UInt64 = 0
        /// Packets beyond what the relay allows us.
        package var droppedRateLimit: UInt64 = 0
        package var droppedTooLong: UInt64 = 0
        /// Packets of a peer over ``DERPLimits/packetBytes``.
        package var droppedReceivedTooLong: UInt64 = 0
        package var unansweredPings: UInt64 = 0
        /// Frames that were unknown, too short, or not for a client.
        package var skippedFrames: UInt64 = 0

        package init() {}
    }

    private enum State { case greeting, greeted, connected, ended }

    /// What a relay says about itself, as JSON in a box.
    struct ServerInfo: Codable {
        var version: Int?
        var TokenBucketBytesPerSecond: Double?
        var TokenBucketBytesBurst: Double?
    }

    static let clientInfo = Array(#"{"version":2,"CanAckPings":true}"#.utf8)

    private let key: PrivateKey
    private let nonce: [UInt8]
    private let greetBy: Duration
    private var state = State.greeting
    private var box: Box?
    private var reader = DERPFrameReader()
    private var events: Deque<Event> = []
    private var lastByte: Duration
    private var control = ByteBuffer()
    private var queue: Deque<(PublicKey, ByteBuffer)> = []
    private var bucket: TokenBucket?
    private var isHome: Bool
    private var announcedHome: Bool?
    private var counted = Counters()

    /// - Parameters:
    ///   - key: our node's.
    ///   - isHome: whether the relay is our home.
    ///   - dialled: when the driver began to dial; the greeting must end ``DERPLimits/greeting`` after it.
    ///   - random: gives the nonce of our client info.
    package init(
        key: PrivateKey, isHome: Bool, dialled: Duration, now: Duration, random: inout some RandomNumberGenerator
    ) {
        self.key = key
        self.isHome = isHome
        nonce = makeNonce(&random)
        greetBy = dialled + DERPLimits.greeting
        lastByte = now
    }

    package var counters: Counters {
        var all = counted
        all.skippedFrames &+= reader.skipped
        return all
    }

    /// Whether the relay routes packets to us.
    package var isConnected: Bool { state == .connected }
    package var queuedPackets: Int { queue.count }

    // MARK: In

    /// Takes bytes of the relay. Events are to be taken before the next call, so that at most one frame is kept.
    package mutating func receive(_ bytes: ByteBuffer, now: Duration) {
        guard state != .ended, bytes.readableBytes > 0 else { return }
        lastByte = now
        reader.append(bytes)
    }

    /// The next event; nil when there is none before more bytes come.
    package mutating func nextEvent(now: Duration) -> Event? {
        if let event = events.popFirst() { return event }
        while state != .ended {
            do throws(DERPError) {
                guard let frame = try reader.next() else { return nil }
                try take(frame, now: now)
            } catch {
                end(error)
            }
            if let event = events.popFirst() { return event }
        }
        return nil
    }

    private mutating func take(_ frame: DERPFrame, now: Duration) throws(DERPError) {
        if state == .greeting { return try greet(frame) }
        if state == .greeted {
            state = .connected
            events.append(.connected)
        }
        switch frame {
        case .received(let source, let packet):
            guard packet.readableBytes <= DERPLimits.packetBytes else {
                counted.droppedReceivedTooLong &+= 1
                return
            }
            counted.receivedPackets &+= 1
            counted.receivedBytes &+= UInt64(packet.readableBytes)
            events.append(.packet(from: source, packet))
        case .serverInfo(let nonce, let box): try take(info: box, nonce: nonce, now: now)
        case .keepAlive: break
        case .peerGone(let peer, let reason): events.append(.peerGone(peer, reason))
        case .ping(let data): answer(.pong(data))
        case .pong(let data): events.append(.pong(data))
        case .health(let text): events.append(.health(text.isEmpty ? nil : text))
        case .restarting(let reconnectIn, let tryFor):
            events.append(.restarting(reconnectIn: .milliseconds(reconnectIn), tryFor: .milliseconds(tryFor)))
        case .serverKey, .clientInfo, .send, .notePreferred: counted.skippedFrames &+= 1
        }
    }

    private mutating func greet(_ frame: DERPFrame) throws(DERPError) {
        guard case .serverKey(let server) = frame else { throw .noServerKey(type: frame.type) }
        guard let box = Box(key, server), let sealed = box.seal(Self.clientInfo, nonce: nonce) else {
            throw .badServerKey
        }
        self.box = box
        DERPFrame.clientInfo(key.publicKey, nonce: nonce, box: sealed).write(into: &control)
        state = .greeted
        events.append(.greeted(server: server))
    }

    private mutating func take(info sealed: [UInt8], nonce: [UInt8], now: Duration) throws(DERPError) {
        guard sealed.count <= DERPLimits.infoBytes else { throw .badServerInfo("is too long") }
        guard let json = box?.open(sealed, nonce: nonce) else { throw .badServerInfo("is not authentic") }
        guard let info = try? JSONDecoder().decode(ServerInfo.self, from: Data(json)) else {
            throw .badServerInfo("is no JSON object as expected")
        }
        let perSecond = info.TokenBucketBytesPerSecond ?? 0
        bucket =
            perSecond > 0
            ? TokenBucket(perSecond: perSecond, burst: info.TokenBucketBytesBurst ?? 0, now: now) : nil
    }

    private mutating func answer(_ frame: DERPFrame) {
        guard control.readableBytes < DERPLimits.controlBytes else {
            counted.unansweredPings &+= 1
            return
        }
        frame.write(into: &control)
    }

    // MARK: Out

    /// Queues a packet for a peer. False when it was dropped: it is too long, the queue is full, or the connection over.
    @discardableResult
    package mutating func send(_ packet: ByteBuffer, to peer: PublicKey) -> Bool {
        guard state != .ended else { return false }
        guard packet.readableBytes <= DERPLimits.packetBytes else {
            counted.droppedTooLong &+= 1
            return false
        }
        guard queue.count < DERPLimits.queuedPackets else {
            counted.droppedQueueFull &+= 1
            return false
        }
        queue.append((peer, packet))
        return true
    }

    /// Whether this relay is our home; told to the relay after the greeting and at each change.
    package mutating func notePreferred(_ isHome: Bool) { self.isHome = isHome }

    /// Asks the relay for a pong with this value. False when too much waits to be sent.
    package mutating func ping(_ data: UInt64) -> Bool {
        guard state == .connected, control.readableBytes < DERPLimits.controlBytes else { return false }
        DERPFrame.ping(data).write(into: &control)
        return true
    }

    /// Whether ``write(into:upTo:now:)`` would do something.
    package var hasOutput: Bool {
        switch state {
        case .greeting, .ended: false
        case .greeted, .connected: control.readableBytes > 0 || announcedHome != isHome || !queue.isEmpty
        }
    }

    /// Appends frames until the buffer has `limit` bytes or more, or nothing is left.
    package mutating func write(into out: inout ByteBuffer, upTo limit: Int = 65_536, now: Duration) {
        guard hasOutput else { return }
        if control.readableBytes > 0 {
            out.writeBuffer(&control)
            control.clear()
        }
        if announcedHome != isHome {
            announcedHome = isHome
            DERPFrame.notePreferred(isHome).write(into: &out)
        }
        while out.readableBytes < limit, let (peer, packet) = queue.popFirst() {
            let count = DERPFrame.headerCount + PublicKey.count + packet.readableBytes
            guard bucket?.take(count, now: now) ?? true else {
                counted.droppedRateLimit &+= 1
                continue
            }
            counted.sentPackets &+= 1
            counted.sentBytes &+= UInt64(packet.readableBytes)
            out.writePacket(0x04, peer, packet)
        }
    }

    // MARK: Time

    package var nextDeadline: Duration? {
        switch state {
        case .ended: nil
        case .greeting, .greeted: min(greetBy, lastByte + DERPLimits.silence)
        case .connected: lastByte + DERPLimits.silence
        }
    }

    package mutating func advance(now: Duration) {
        guard let nextDeadline, nextDeadline <= now else { return }
        end(state == .connected ? .silence : .greetingTimeout)
    }

    private mutating func end(_ error: DERPError) {
        state = .ended
        queue = []
        control = ByteBuffer()
        box = nil
        events.append(.ended(error))
    }
}

extension DERPFrame {
    var type: UInt8 {
        switch self {
        case .serverKey: 0x01
        case .clientInfo: 0x02
        case .serverInfo: 0x03
        case .send: 0x04
        case .received: 0x05
        case .keepAlive: 0x06
        case .notePreferred: 0x07
        case .peerGone: 0x08
        case .ping: 0x12
        case .pong: 0x13
        case .health: 0x14
        case .restarting: 0x15
        }
    }
}

/// A nonce for a box: 24 random bytes, which are never the same twice.
func makeNonce(_ random: inout some RandomNumberGenerator) -> [UInt8] {
    var nonce: [UInt8] = []
    for _ in 0..<3 {
        let word: UInt64 = random.next()
        withUnsafeBytes(of: word.littleEndian) { nonce.append(contentsOf: $0) }
    }
    return nonce
}
