import Glibc
import IPAddresses
import NIOCore
import NIOPosix

/// Carries UDP flows of peers to this machine's loopback address, each from a socket of its own: from the port that the
/// peer uses where it is free. The stack bounds the flows and ends idle ones.
final class UDPForwards {
    /// Datagrams of a flow that wait for its socket; further ones are dropped.
    static let waiting = 16

    private struct Flow: Hashable {
        var local: Endpoint
        var remote: Endpoint
    }

    private enum State {
        case opening([ByteBuffer])
        /// With the datagram that was sent last, until there is an answer.
        case open(any Channel, unanswered: ByteBuffer?)
    }

    private let tunnel: Tunnel
    private var flows: [Flow: State] = [:]

    init(tunnel: Tunnel) { self.tunnel = tunnel }

    var count: Int { flows.count }

    func datagram(_ payload: ByteBuffer, local: Endpoint, remote: Endpoint) {
        let flow = Flow(local: local, remote: remote)
        switch flows[flow] {
        case .open(let channel, _):
            flows[flow] = .open(channel, unanswered: payload)
            channel.writeAndFlush(payload, promise: nil)
        case .opening(var waiting):
            guard waiting.count < Self.waiting else { return }
            waiting.append(payload)
            flows[flow] = .opening(waiting)
        case nil:
            flows[flow] = .opening([payload])
            open(flow)
        }
    }

    func flowEnded(local: Endpoint, remote: Endpoint) {
        guard case .open(let channel, _) = flows.removeValue(forKey: Flow(local: local, remote: remote)) else { return }
        channel.close(promise: nil)
    }

    func close() {
        let open = flows.values
        flows = [:]
        for case .open(let channel, _) in open { channel.close(promise: nil) }
    }

    private func open(_ flow: Flow) {
        let (loop, forwards) = (tunnel.loop, NIOLoopBound(self, eventLoop: tunnel.loop))
        let bootstrap = DatagramBootstrap(group: loop)
            // NIO's default cuts longer ones.
            .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 65_536))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        UDPForwardReader(
                            received: { forwards.value.received($0, flow, channel) },
                            refused: { forwards.value.refused(flow, channel) }))
                }
            }
        let target = SocketAddress(Endpoint(IPAddress(v4: 0x7f00_0001), flow.local.port))
        bootstrap.bind(host: "127.0.0.1", port: Int(flow.remote.port)).assumeIsolated()
            .flatMapError { _ in bootstrap.bind(host: "127.0.0.1", port: 0) }
            .flatMap { channel in channel.connect(to: target).map { channel } }
            .whenComplete { result in forwards.value.opened(flow, try? result.get()) }
    }

    private func opened(_ flow: Flow, _ channel: (any Channel)?) {
        guard case .opening(let waiting) = flows[flow] else {
            channel?.close(promise: nil)
            return
        }
        guard let channel else {
            flows[flow] = nil
            return
        }
        flows[flow] = .open(channel, unanswered: waiting.last)
        let forwards = NIOLoopBound(self, eventLoop: tunnel.loop)
        // NIO closes it when no program listens; the next datagram tries again.
        channel.closeFuture.whenComplete { _ in forwards.value.closed(flow, channel) }
        for payload in waiting { channel.write(payload, promise: nil) }
        channel.flush()
    }

    private func received(_ payload: ByteBuffer, _ flow: Flow, _ channel: any Channel) {
        if case .open(let current, _?) = flows[flow], current === channel {
            flows[flow] = .open(channel, unanswered: nil)
        }
        tunnel.sendDatagram(payload, from: flow.local, to: flow.remote)
    }

    /// No program listens at the port: the peer hears that, too.
    private func refused(_ flow: Flow, _ channel: any Channel) {
        guard case .open(let current, let payload?) = flows[flow], current === channel else { return }
        flows[flow] = .open(channel, unanswered: nil)
        tunnel.sendPortUnreachable(payload, from: flow.local, to: flow.remote)
    }

    private func closed(_ flow: Flow, _ channel: any Channel) {
        if case .open(let current, _) = flows[flow], current === channel { flows[flow] = nil }
    }
}

private final class UDPForwardReader: ChannelInboundHandler {
    typealias InboundIn = AddressedEnvelope<ByteBuffer>

    private let received: (ByteBuffer) -> Void
    private let refused: () -> Void

    init(received: @escaping (ByteBuffer) -> Void, refused: @escaping () -> Void) {
        (self.received, self.refused) = (received, refused)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // Of the room for the longest datagram only what came is kept.
        received(ByteBuffer(bytes: Self.unwrapInboundIn(data).data.readableBytesView))
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if (error as? IOError)?.errnoCode == ECONNREFUSED { refused() }
        context.close(promise: nil)
    }
}
