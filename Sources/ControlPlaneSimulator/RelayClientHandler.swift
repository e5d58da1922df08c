import DERP
import NIOCore

/// One connection to the ``SimulatorRelay``, whose HTTP part is over: bytes of DERP in both directions.
final class RelayClientHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = Never
    typealias OutboundOut = ByteBuffer

    /// A handler from other loops.
    struct Link: Sendable {
        let isWebSocket: Bool
        fileprivate let loop: any EventLoop
        fileprivate let handler: NIOLoopBound<RelayClientHandler>

        func onLoop(_ body: @escaping @Sendable (RelayClientHandler) -> Void) {
            if loop.inEventLoop {
                body(handler.value)
            } else {
                loop.execute { body(handler.value) }
            }
        }
    }

    private let relay: SimulatorRelay
    private let isWebSocket: Bool
    private var context: ChannelHandlerContext?
    private var id: UInt64?
    private var isPumping = false
    private var wantsRead = false
    /// Something waits, and the client takes nothing; takes the deadline back.
    private var cancelDeadline: (@Sendable () -> Void)?

    init(relay: SimulatorRelay, isWebSocket: Bool) {
        self.relay = relay
        self.isWebSocket = isWebSocket
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { leave() }

    /// The 101 is written, and nothing but this handler writes any more.
    func start() {
        guard let context else { return }
        let loop = context.eventLoop
        do {
            id = try relay.connect(
                Link(isWebSocket: isWebSocket, loop: loop, handler: NIOLoopBound(self, eventLoop: loop)))
        } catch {
            context.close(promise: nil)
        }
        // The relay has found no handler with an id yet.
        pump()
    }

    private func leave() {
        cancelDeadline.take()?()
        context = nil
        if let id = id.take() { relay.disconnect(id) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        leave()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard let id else { return }
        do {
            try relay.receive(unwrapInboundIn(data), from: id)
        } catch {
            // What it sent is no DERP, or not its own.
            leave()
            context.close(promise: nil)
        }
    }

    func read(context: ChannelHandlerContext) {
        if relay.isStalled { wantsRead = true } else { context.read() }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable {
            cancelDeadline.take()?()
            pump()
        }
        context.fireChannelWritabilityChanged()
    }

    /// The relay is stalled no longer.
    func resume() {
        guard let context else { return }
        pump()
        if wantsRead, !relay.isStalled {
            wantsRead = false
            context.read()
        }
    }

    /// Writes what the relay has for the client, as far as its socket takes it.
    func pump() {
        guard let context, let id, !isPumping else { return }
        isPumping = true
        defer { isPumping = false }
        while context.channel.isWritable {
            let (bytes, more) = relay.output(for: id)
            guard bytes.readableBytes > 0 else { break }
            context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
            if !more { break }
        }
        if !context.channel.isWritable, cancelDeadline == nil { expectRead(context) }
    }

    /// Cuts the client unless it takes something in time.
    private func expectRead(_ context: ChannelHandlerContext) {
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        let loop = context.eventLoop
        cancelDeadline = relay.clock.after(relay.slowReader) {
            loop.execute {
                guard let context = bound.value.context, !context.channel.isWritable else { return }
                bound.value.relay.wasSlow()
                SimulatorServer.cut(context.channel)
            }
        }
    }

    /// Ends the connection without a goodbye, but for the frame.
    func cut(saying frame: DERPFrame?) {
        guard let context else { return }
        id = nil
        guard let frame, context.channel.isWritable else { return SimulatorServer.cut(context.channel) }
        var bytes = ByteBuffer()
        frame.write(into: &bytes)
        let channel = context.channel
        context.writeAndFlush(wrapOutboundOut(bytes)).whenComplete { _ in SimulatorServer.cut(channel) }
    }
}

@available(*, unavailable)
extension RelayClientHandler: Sendable {}
