import NIOCore

/// A session on a connection, usable from any thread.
public final class YamuxMultiplexer: Sendable {
    private let channel: any Channel
    private let handler: NIOLoopBound<YamuxHandler>
    /// What the session holds.
    public let counters: YamuxCounters
    /// Completes once the session is over, with the reason; never fails.
    public let ended: EventLoopFuture<YamuxError>

    private init(channel: any Channel, handler: YamuxHandler) {
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        counters = handler.counters
        ended = handler.ended.futureResult
    }

    /// Starts a session on a channel that carries bytes and has no handler that consumes them yet.
    /// - Parameter inboundStreamInitializer: Sets up the channel of a stream that the other side
    ///   opens, and so accepts it; a failure resets it. nil resets them all.
    public static func attach(
        to channel: any Channel, role: YamuxSession.Role, timing: YamuxHandler.Timing = .init(),
        inboundStreamInitializer: YamuxHandler.InboundStreamInitializer? = nil
    ) -> EventLoopFuture<YamuxMultiplexer> {
        channel.eventLoop.submit {
            try attachNow(to: channel, role: role, timing: timing, inboundStreamInitializer: inboundStreamInitializer)
        }
    }

    /// As ``attach(to:role:timing:inboundStreamInitializer:)``, at once; call it on the channel's loop.
    public static func attachNow(
        to channel: any Channel, role: YamuxSession.Role, timing: YamuxHandler.Timing = .init(),
        inboundStreamInitializer: YamuxHandler.InboundStreamInitializer? = nil
    ) throws -> YamuxMultiplexer {
        let handler = YamuxHandler(
            role: role, eventLoop: channel.eventLoop, timing: timing,
            inboundStreamInitializer: inboundStreamInitializer)
        do {
            try channel.pipeline.syncOperations.addHandler(handler)
        } catch {
            handler.ended.succeed(YamuxError(.transportClosed, "the transport was closed", cause: error))
            throw error
        }
        return YamuxMultiplexer(channel: channel, handler: handler)
    }

    /// The loop that the session and all its streams live on.
    public var eventLoop: any EventLoop { channel.eventLoop }

    /// Opens a stream, whose channel the initializer sets up, and completes with the initializer's result. Fails with a
    /// ``YamuxError``: `notAccepting` when a new session is needed.
    public func openStream<Output: Sendable>(
        _ initializer: @escaping @Sendable (any Channel) -> EventLoopFuture<Output>
    ) -> EventLoopFuture<Output> {
        let handler = handler
        guard eventLoop.inEventLoop else { return eventLoop.flatSubmit { handler.value.openStream(initializer) } }
        return handler.value.openStream(initializer)
    }

    /// Opens a stream and waits for it; see ``openStream(_:)-swift.method``.
    public func openStream<Output: Sendable>(
        _ initializer: @escaping @Sendable (any Channel) -> EventLoopFuture<Output>
    ) async throws -> Output {
        let opened: EventLoopFuture<Output> = openStream(initializer)
        return try await opened.get()
    }

    /// Opens a stream that has no handlers yet.
    public func openStream() -> EventLoopFuture<any Channel> {
        openStream { channel in channel.eventLoop.makeSucceededFuture(channel) }
    }

    /// Sends GoAway, waits until no stream is open any more but no longer than `time`, and closes the transport.
    /// Completes when that is closed.
    public func close(draining time: TimeAmount = .zero) -> EventLoopFuture<Void> {
        let handler = handler
        eventLoop.execute { handler.value.close(draining: time) }
        return channel.closeFuture
    }

    /// See ``close(draining:)-swift.method``.
    public func close(draining time: TimeAmount = .zero) async {
        let closed: EventLoopFuture<Void> = close(draining: time)
        try? await closed.get()
    }
}
