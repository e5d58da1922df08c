import AgentTestSupport
import IPAddresses
import NIOCore
import NIOPosix
import Synchronization
import Tailnet
import Testing

/// A UDP path between two nodes that loses, delays and reorders, and that can get another address, as a NAT does.
final class Impairer: Sendable {
    struct Path: Sendable {
        /// Of a thousand datagrams.
        var lost = 0
        var delay = TimeAmount.zero
        /// Up to so much more, each datagram for itself.
        var jitter = TimeAmount.zero
    }

    private struct State {
        var path: Path
        var random: SeededGenerator
        var client: SocketAddress?
        var outer: (any Channel)?
        var carried = 0
    }

    private let state: Mutex<State>
    private let inner: any Channel
    private let server: SocketAddress
    private let loop: any EventLoop

    /// Where the client sends.
    var endpoint: Endpoint { get throws { try #require(inner.localAddress?.endpoint) } }
    /// Where the server sees it.
    var outerPort: Int? { state.withLock { $0.outer?.localAddress?.port } }
    var carried: Int { state.withLock { $0.carried } }

    init(to server: UInt16, _ path: Path = Path(), on loop: any EventLoop) async throws {
        self.loop = loop
        self.server = SocketAddress(Endpoint(IPAddress(v4: 0x7f00_0001), server))
        state = Mutex(State(path: path, random: SeededGenerator("impairer")))
        let box = Box()
        inner = try await Self.socket(on: loop) { box.value?.fromClient($0) }
        box.value = self
        try await move()
    }

    private final class Box: @unchecked Sendable {
        // Set once, before a datagram comes.
        weak var value: Impairer?
    }

    private static func socket(
        on loop: any EventLoop, _ received: @escaping @Sendable (AddressedEnvelope<ByteBuffer>) -> Void
    ) async throws -> any Channel {
        try await DatagramBootstrap(group: loop).channelOption(.socketOption(.so_rcvbuf), value: 4 << 20)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Reader(received))
                }
            }.bind(host: "127.0.0.1", port: 0).get()
    }

    /// From now on the server sees another port.
    func move() async throws {
        let new = try await Self.socket(on: loop) { [weak self] in self?.fromServer($0) }
        let old = state.withLock { state in
            defer { state.outer = new }
            return state.outer
        }
        try? await old?.close()
    }

    func change(_ path: Path) { state.withLock { $0.path = path } }

    private func fromClient(_ envelope: AddressedEnvelope<ByteBuffer>) {
        let outer = state.withLock { state in
            state.client = envelope.remoteAddress
            return state.outer
        }
        carry(envelope.data, outer, server)
    }

    private func fromServer(_ envelope: AddressedEnvelope<ByteBuffer>) {
        if let client = state.withLock({ $0.client }) { carry(envelope.data, inner, client) }
    }

    private func carry(_ data: ByteBuffer, _ channel: (any Channel)?, _ target: SocketAddress) {
        let delay: TimeAmount? = state.withLock { state in
            state.carried += 1
            if Int.random(in: 0..<1_000, using: &state.random) < state.path.lost { return nil }
            let jitter = state.path.jitter.nanoseconds
            let more = jitter > 0 ? Int64.random(in: 0...jitter, using: &state.random) : 0
            return state.path.delay + .nanoseconds(more)
        }
        guard let delay else { return }
        let send: @Sendable () -> Void = {
            channel?.writeAndFlush(AddressedEnvelope(remoteAddress: target, data: data), promise: nil)
        }
        if delay == .zero { send() } else { loop.scheduleTask(in: delay, send) }
    }

    func close() async {
        try? await inner.close()
        let outer = state.withLock { $0.outer }
        try? await outer?.close()
    }

    private final class Reader: ChannelInboundHandler {
        typealias InboundIn = AddressedEnvelope<ByteBuffer>
        private let received: @Sendable (AddressedEnvelope<ByteBuffer>) -> Void
        init(_ received: @escaping @Sendable (AddressedEnvelope<ByteBuffer>) -> Void) { self.received = received }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) { received(Self.unwrapInboundIn(data)) }
    }
}
