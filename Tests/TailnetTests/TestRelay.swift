import AgentTestSupport
import DERP
import NIOCore
import NIOPosix
import Sodium
import Synchronization

/// A relay on a TCP socket without HTTP, with faults; and the way to it. The relay itself is ``DERPRelay``, which the
/// recorded conversations are tested against.
final class TestRelay: RelayTransport {
    /// What the relay does beside its duty.
    struct Faults: Sendable {
        /// Of a thousand packets between clients.
        var lost = 0
        /// Sends every packet twice.
        var repeats = false
        /// Holds each packet back until the next one of its direction has passed, half of the time.
        var reorders = false
        /// Reads nothing.
        var stalls = false
        /// Answers dials with a refusal of the upgrade.
        var refusesUpgrade = false
        /// Lets no client in.
        var isDown = false
        /// Of the relays at these ports; 1 ms for others.
        var latencies: [UInt16: Duration] = [:]
    }

    /// On the relay's loop only.
    private final class Core {
        var relay: DERPRelay
        var channels: [DERPRelay.ID: any Channel] = [:]
        var lastID: DERPRelay.ID = 0
        var random = SeededGenerator("relay")

        init(_ key: PrivateKey) { relay = DERPRelay(key: key, random: SystemRandomNumberGenerator()) }
    }

    private let loop: any EventLoop
    private let core: NIOLoopBound<Core>
    private let key: PrivateKey
    private let faults = Mutex(Faults())
    private let dials = Mutex<[Bool]>([])
    private let listener = Mutex<(any Channel)?>(nil)

    init(on loop: any EventLoop) async throws {
        self.loop = loop
        var random = SystemRandomNumberGenerator()
        let key = try PrivateKey(random: &random)
        self.key = key
        core = try await loop.submit { NIOLoopBound(Core(key), eventLoop: loop) }.get()
        let channel = try await ServerBootstrap(group: loop)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Side(self)) }
            }.bind(host: "127.0.0.1", port: 0).get()
        listener.withLock { $0 = channel }
    }

    var port: UInt16 { listener.withLock { UInt16(clamping: $0?.localAddress?.port ?? 0) } }
    var url: String { "http://127.0.0.1:\(port)" }
    var faulty: Faults {
        get { faults.withLock { $0 } }
        set { faults.withLock { $0 = newValue } }
    }
    /// Whether each dial so far was by WebSocket.
    var dialled: [Bool] { dials.withLock { $0 } }

    /// Cuts every connection and forgets all clients.
    func restart() async throws {
        try await loop.submit { [core, key] in
            let core = core.value
            let open = core.channels
            core.channels = [:]
            core.relay = DERPRelay(key: key, random: SystemRandomNumberGenerator())
            for channel in open.values { channel.close(promise: nil) }
        }.get()
    }

    /// Sends bytes of ours to every client.
    func inject(_ bytes: [UInt8]) async throws {
        try await loop.submit { [core] in
            for channel in core.value.channels.values {
                channel.writeAndFlush(ByteBuffer(bytes: bytes), promise: nil)
            }
        }.get()
    }

    var connections: Int {
        get async throws { try await loop.submit { [core] in core.value.channels.count }.get() }
    }

    /// From now on clients are read again.
    func resume() async throws {
        faults.withLock { $0.stalls = false }
        try await loop.submit { [core] in for channel in core.value.channels.values { channel.read() } }.get()
    }

    func close() async { try? await listener.withLock { $0 }?.close() }

    // MARK: RelayTransport

    func dial(
        _ relay: RelayURL, webSocket: Bool, on loop: any EventLoop, within limit: Duration,
        initializer: @escaping @Sendable (any Channel) throws -> Void
    ) async throws -> any Channel {
        dials.withLock { $0.append(webSocket) }
        let faults = faulty
        if faults.isDown { throw RelayDialError("\(relay) is down") }
        if faults.refusesUpgrade, !webSocket {
            throw RelayDialError("\(relay) answered Upgrade: DERP with 426", refusesUpgrade: true)
        }
        return try await ClientBootstrap(group: loop).channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try initializer(channel) }
        }.connect(host: relay.host, port: Int(relay.port)).get()
    }

    func latency(_ relay: RelayURL, on loop: any EventLoop, within limit: Duration) async throws -> Duration {
        let faults = faulty
        if faults.isDown { throw RelayDialError("\(relay) is down") }
        return faults.latencies[relay.port] ?? .milliseconds(1)
    }

    // MARK: The relay's side of a connection

    private final class Side: ChannelDuplexHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let owner: TestRelay
        private var id: DERPRelay.ID = 0
        private var input = DERPFrameReader()
        private var held: ByteBuffer?

        init(_ owner: TestRelay) { self.owner = owner }

        func channelActive(context: ChannelHandlerContext) {
            let core = owner.core.value
            core.lastID += 1
            id = core.lastID
            core.channels[id] = context.channel
            try? core.relay.connect(id, now: .zero)
            pump()
        }

        func read(context: ChannelHandlerContext) { if !owner.faulty.stalls { context.read() } }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            guard owner.core.value.channels[id] != nil else { return }
            input.append(unwrapInboundIn(data))
            do {
                while let frame = try input.next() { try take(frame, owner.faulty) }
            } catch {
                context.close(promise: nil)
            }
            pump()
        }

        private func take(_ frame: DERPFrame, _ faults: Faults) throws {
            let core = owner.core.value
            var bytes = ByteBuffer()
            frame.write(into: &bytes)
            guard case .send = frame else { return try core.relay.receive(bytes, from: id, now: .zero) }
            if Int(core.random.next() % 1_000) < faults.lost { return }
            if faults.reorders, held == nil, core.random.next() % 2 == 0 {
                held = bytes
                return
            }
            try core.relay.receive(bytes, from: id, now: .zero)
            if faults.repeats { try core.relay.receive(bytes, from: id, now: .zero) }
            if let late = held.take() { try core.relay.receive(late, from: id, now: .zero) }
        }

        func channelWritabilityChanged(context: ChannelHandlerContext) {
            owner.write(to: id)
        }

        func channelInactive(context: ChannelHandlerContext) {
            let core = owner.core.value
            if core.channels.removeValue(forKey: id) != nil { core.relay.disconnect(id) }
            pump()
        }

        private func pump() { for id in owner.core.value.relay.takeReady() { owner.write(to: id) } }
    }

    private func write(to id: DERPRelay.ID) {
        let core = core.value
        guard let channel = core.channels[id] else { return }
        var isLeft = true
        while isLeft, channel.isWritable {
            var out = ByteBuffer()
            isLeft = core.relay.write(into: &out, for: id)
            if out.readableBytes > 0 { channel.writeAndFlush(out, promise: nil) }
        }
    }
}
