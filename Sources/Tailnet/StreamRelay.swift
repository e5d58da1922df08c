import Glibc
import NIOCore

/// Carries bytes between two channels of one event loop, each way at the pace of its reader. The end of one way leaves
/// the other one open; a failure of either connection resets the other.
final class StreamRelay: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var other: StreamRelay?
    private var context: ChannelHandlerContext?
    private var waitsToRead = false
    /// The peer of this channel has sent everything.
    private var hasInputEnded = false
    /// We have ended our side.
    private var isOutputClosed = false
    private var hasFailed = false

    /// Puts one end of a relay into each channel; both then read.
    static func join(_ a: any Channel, _ b: any Channel) throws {
        let (first, second) = (StreamRelay(), StreamRelay())
        (first.other, second.other) = (second, first)
        try a.pipeline.syncOperations.addHandler(first)
        try b.pipeline.syncOperations.addHandler(second)
        for channel in [a, b] {
            try channel.syncOptions?.setOption(.allowRemoteHalfClosure, value: true)
            try channel.syncOptions?.setOption(.autoRead, value: true)
        }
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        other = nil
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        other?.context?.write(Self.wrapOutboundOut(Self.unwrapInboundIn(data)), promise: nil)
    }

    func channelReadComplete(context: ChannelHandlerContext) { other?.context?.flush() }

    func read(context: ChannelHandlerContext) {
        if other?.context?.channel.isWritable ?? true { context.read() } else { waitsToRead = true }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        guard context.channel.isWritable, let other, other.waitsToRead else { return }
        other.waitsToRead = false
        other.context?.read()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event as? ChannelEvent {
        case .inputClosed:
            hasInputEnded = true
            if let target = other?.context?.channel { Self.end(target, .output) }
        case .outputClosed: isOutputClosed = true
        case nil: break
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        hasFailed = true
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        guard let other, let target = other.context?.channel else { return }
        if !hasInputEnded {
            // A socket whose output is closed closes at the end of its input without another word.
            if isOutputClosed, !hasFailed { Self.end(target, .output) } else { Self.reset(target) }
        } else if !other.hasInputEnded {
            // It said all that it wanted to, and takes no more.
            Self.end(target, .all)
        }
    }

    /// Closes after what was written before.
    private static func end(_ channel: any Channel, _ mode: CloseMode) {
        channel.writeAndFlush(ByteBuffer()).whenComplete { _ in channel.close(mode: mode, promise: nil) }
    }

    /// Closes without an orderly end, which would pass for the end of the data.
    static func reset(_ channel: any Channel) {
        if let channel = channel as? StackChannel {
            channel.abort()
        } else if let socket = channel as? any SocketOptionProvider {
            socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).whenComplete { _ in channel.close(promise: nil) }
        } else {
            channel.close(promise: nil)
        }
    }
}
