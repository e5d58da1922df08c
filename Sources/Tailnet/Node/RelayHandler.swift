import DERP
import NIOCore
import Sodium

/// Drives one ``DERPConnection`` on its channel, from the upgrade on.
final class RelayHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Bytes that the channel takes before it says that it is full: a few milliseconds of a fast line.
    static let waterMark = ChannelOptions.Types.WriteBufferWaterMark(low: 128 << 10, high: 512 << 10)
    /// Bytes that one turn gives the channel.
    private static let writeBytes = 128 << 10

    let region: Int
    private(set) var connection: DERPConnection
    private let event: (RelayHandler, DERPConnection.Event) -> Void
    private let burstEnded: () -> Void
    private let closed: (RelayHandler) -> Void
    private let clock: () -> Duration
    private var context: ChannelHandlerContext?
    /// Why the connection ended, where the relay or we had a reason.
    private(set) var problem: String?

    /// - Parameters:
    ///   - event: gets every event; after `.ended` the channel closes.
    ///   - burstEnded: the last packet of a read was handed over.
    ///   - closed: the channel is closed.
    init(
        region: Int, connection: DERPConnection, clock: @escaping () -> Duration,
        event: @escaping (RelayHandler, DERPConnection.Event) -> Void, burstEnded: @escaping () -> Void,
        closed: @escaping (RelayHandler) -> Void
    ) {
        (self.region, self.connection, self.clock) = (region, connection, clock)
        (self.event, self.burstEnded, self.closed) = (event, burstEnded, closed)
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) {
        guard self.context != nil else { return }
        self.context = nil
        closed(self)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let now = clock()
        connection.receive(unwrapInboundIn(data), now: now)
        takeEvents(now)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        burstEnded()
        write()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) { write() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if problem == nil { problem = "the connection failed: \(error)" }
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        if problem == nil { problem = "the relay ended the connection" }
        context.fireChannelInactive()
    }

    private func takeEvents(_ now: Duration) {
        while let next = connection.nextEvent(now: now) {
            if case .ended(let error) = next {
                problem = "\(error)"
                // Closing in order may take its time with a relay that says nothing.
                event(self, next)
                context?.close(promise: nil)
            } else {
                event(self, next)
            }
        }
    }

    // MARK: For the node

    /// Queues a packet, which ``write()`` sends; or drops it.
    func send(_ packet: ByteBuffer, to peer: PublicKey) { connection.send(packet, to: peer) }

    func notePreferred(_ isHome: Bool) {
        connection.notePreferred(isHome)
        write()
    }

    /// Gives the channel as much as it takes; the rest when it has room.
    func write() {
        guard let context else { return }
        while connection.hasOutput, context.channel.isWritable {
            var out = context.channel.allocator.buffer(capacity: 2_048)
            connection.write(into: &out, upTo: Self.writeBytes, now: clock())
            context.writeAndFlush(wrapOutboundOut(out), promise: nil)
        }
    }

    func advance(now: Duration) {
        connection.advance(now: now)
        takeEvents(now)
    }

    func close(_ reason: String) {
        if problem == nil { problem = reason }
        context?.close(promise: nil)
    }
}
