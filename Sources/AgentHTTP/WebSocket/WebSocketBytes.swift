import NIOCore
import NIOHTTP1
import WebSockets

/// Turns an HTTP connection into a WebSocket that carries a byte stream.
enum WebSocketBytes {
    /// Swaps the HTTP handlers of a connection, whose 101 is written, for a byte stream and the route's
    /// own handlers.
    static func start(
        replacing http: HTTPConnectionHandler, limits: HTTPLimits, _ install: (any Channel) throws -> Void
    ) throws -> any Channel {
        guard let context = http.context else { throw ChannelError.ioOnClosedChannel }
        let channel = context.channel
        let pipeline = context.pipeline.syncOperations
        let encoder = try pipeline.context(handlerType: HTTPResponseEncoder.self)
        let decoder = try pipeline.context(handlerType: ByteToMessageHandler<HTTPRequestDecoder>.self)
        http.upgraded { code in channel.triggerUserOutboundEvent(WebSocketClose(code), promise: nil) }
        let times = WebSocketTimes(
            pingInterval: limits.webSocketPingInterval, pongTimeout: limits.webSocketPongTimeout)
        try pipeline.addHandler(WebSocketByteStream(role: .server, times: times))
        pipeline.removeHandler(context: context, promise: nil)
        pipeline.removeHandler(context: encoder, promise: nil)
        do {
            // After they are removed: it may write, even close, before it returns.
            try install(channel)
        } catch {
            channel.close(promise: nil)
            throw error
        }
        // Last, since it passes on the bytes that came after the request.
        pipeline.removeHandler(context: decoder, promise: nil)
        http.endUpgradedIfInputEnded(channel)
        return channel
    }
}
