import FoundationEssentials
import NIOCore

/// The server of a speed test (docs/contracts/tailnet.md#speed-test): the client sends one line of JSON, and then one
/// side sends for the time that it says.
package final class SpeedTest: ChannelInboundHandler {
    package typealias InboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    static let version = 2
    /// Bytes of the longest request.
    static let requestBytes = 4_096
    static let longest = TimeAmount.seconds(30)
    /// An upload may take so many times what was asked for.
    static let uploadFactor: Int64 = 4
    private static let chunkBytes = 128 << 10

    private struct Request: Decodable {
        var version: Int
        /// Nanoseconds.
        var time: Int64
        /// 0 downloads, 1 uploads.
        var direction: Int
    }

    private enum State {
        case waiting(ByteBuffer)
        case downloading(ByteBuffer, until: NIODeadline)
        case uploading
        case ended
    }

    private var state = State.waiting(ByteBuffer())
    private var timer: Scheduled<Void>?

    /// Serves a connection; to be called on its event loop.
    package static func serve(_ channel: any Channel) throws {
        try channel.syncOptions?.setOption(.allowRemoteHalfClosure, value: true)
        try channel.pipeline.syncOperations.addHandler(SpeedTest())
    }

    package func channelActive(context: ChannelHandlerContext) {
        let channel = context.channel
        timer = context.eventLoop.scheduleTask(in: Self.longest) { channel.close(promise: nil) }
    }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .waiting(var request) = state else { return }
        request.writeImmutableBuffer(Self.unwrapInboundIn(data))
        state = .waiting(request)
        guard let end = request.readableBytesView.firstIndex(of: UInt8(ascii: "}")) else {
            if request.readableBytes > Self.requestBytes { refuse(context, "the request is too long") }
            return
        }
        let bytes = Data(request.readableBytesView[...end])
        guard let request = try? JSONDecoder().decode(Request.self, from: bytes) else {
            return refuse(context, "the request is not a speed test's")
        }
        begin(request, context)
    }

    private func begin(_ request: Request, _ context: ChannelHandlerContext) {
        guard request.version == Self.version else {
            return refuse(context, "version \(request.version) is not supported; this is version \(Self.version)")
        }
        guard request.time > 0, request.direction == 0 || request.direction == 1 else {
            return refuse(context, "time must be positive, and direction 0 or 1")
        }
        let time = min(TimeAmount.nanoseconds(request.time), Self.longest)
        context.writeAndFlush(Self.wrapOutboundOut(ByteBuffer(string: "{}\n")), promise: nil)
        timer?.cancel()
        if request.direction == 0 {
            var chunk = context.channel.allocator.buffer(capacity: Self.chunkBytes)
            var random = SystemRandomNumberGenerator()
            while chunk.readableBytes < Self.chunkBytes { chunk.writeInteger(random.next()) }
            let deadline = context.eventLoop.now + time
            state = .downloading(chunk, until: deadline)
            // For a client that does not read.
            let channel = context.channel
            timer = context.eventLoop.scheduleTask(in: time + Self.longest) { channel.close(promise: nil) }
            send(context)
        } else {
            state = .uploading
            let channel = context.channel
            timer = context.eventLoop.scheduleTask(in: time * Self.uploadFactor) { channel.close(promise: nil) }
        }
    }

    private func send(_ context: ChannelHandlerContext) {
        guard case .downloading(let chunk, let deadline) = state else { return }
        while context.channel.isWritable {
            guard context.eventLoop.now < deadline else {
                state = .ended
                context.close(mode: .output, promise: nil)
                return
            }
            context.writeAndFlush(Self.wrapOutboundOut(chunk), promise: nil)
        }
    }

    private func refuse(_ context: ChannelHandlerContext, _ text: String) {
        state = .ended
        let channel = context.channel
        context.writeAndFlush(Self.wrapOutboundOut(ByteBuffer(string: "{\"error\":\"\(text)\"}\n"))).whenComplete { _ in
            channel.close(promise: nil)
        }
    }

    package func channelWritabilityChanged(context: ChannelHandlerContext) { send(context) }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case ChannelEvent.inputClosed? = event as? ChannelEvent else { return }
        // A client that downloads may have ended its side; one that uploads is done.
        if case .downloading = state { return }
        context.close(promise: nil)
    }

    package func channelInactive(context: ChannelHandlerContext) { timer?.cancel() }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
