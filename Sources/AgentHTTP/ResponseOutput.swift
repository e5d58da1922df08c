import HTTPTypes
import Hummingbird
import NIOCore
import NIOHTTP1

/// The sending side of one HTTP connection: writes parts, waits when the peer reads too slowly, and closes the
/// connection when it does not read at all. Confined to the connection's event loop.
final class ResponseOutput {
    var context: ChannelHandlerContext?
    /// How long the buffers may stay full.
    private let stallTimeout: TimeAmount
    private(set) var bytes = 0
    private var streaming = false
    private var waiter: CheckedContinuation<Void, any Error>?
    private var afterDrain: (() -> Void)?
    private var stall: Scheduled<Void>?

    init(stallTimeout: TimeAmount) { self.stallTimeout = stallTimeout }

    func begin(_ head: HTTPResponseHead, streaming: Bool) {
        self.streaming = streaming
        bytes = 0
        guard let context else { return }
        write(.head(head), context)
        if streaming { context.flush() }
    }

    /// - Returns: whether more may be written at once.
    func write(_ buffer: ByteBuffer) throws -> Bool {
        guard let context, context.channel.isActive else { throw ChannelError.ioOnClosedChannel }
        bytes += buffer.readableBytes
        write(.body(.byteBuffer(buffer)), context)
        if streaming || !context.channel.isWritable { context.flush() }
        return context.channel.isWritable
    }

    func finish() throws {
        guard let context, context.channel.isActive else { throw ChannelError.ioOnClosedChannel }
        write(.end(nil), context)
        context.flush()
    }

    func wait(_ continuation: CheckedContinuation<Void, any Error>) {
        guard let context, context.channel.isActive else {
            return continuation.resume(throwing: ChannelError.ioOnClosedChannel)
        }
        if context.channel.isWritable { return continuation.resume() }
        waiter = continuation
        startStallTimer(context)
    }

    /// Whether the client has yet to read before more is written.
    var isStalled: Bool { waiter != nil || afterDrain != nil }

    /// Runs the closure once what was written fits the channel's buffers.
    func whenWritable(_ body: @escaping () -> Void) {
        guard let context, context.channel.isActive, !context.channel.isWritable else { return body() }
        afterDrain = body
        startStallTimer(context)
    }

    func becameWritable() {
        stall?.cancel()
        stall = nil
        if let waiter {
            self.waiter = nil
            waiter.resume()
        }
        if let afterDrain {
            self.afterDrain = nil
            afterDrain()
        }
    }

    func fail(_ error: any Error) {
        stall?.cancel()
        stall = nil
        afterDrain = nil
        waiter?.resume(throwing: error)
        waiter = nil
    }

    private func write(_ part: HTTPServerResponsePart, _ context: ChannelHandlerContext) {
        context.write(NIOAny(part), promise: nil)
    }

    private func startStallTimer(_ context: ChannelHandlerContext) {
        stall?.cancel()
        stall = context.eventLoop.assumeIsolated().scheduleTask(in: stallTimeout) { [weak self] in
            self?.context?.close(promise: nil)
        }
    }
}

/// The task that writes one answer. Runs on the connection's event loop, which its executor
/// guarantees and `NIOLoopBound` checks.
struct ResponseWriterTask: Sendable {
    let handler: NIOLoopBound<HTTPConnectionHandler>

    func write(_ response: Response, _ exchange: HTTPService.Exchange, upgrade: UpgradeSlot.Upgrade?) async {
        if response.status == .switchingProtocols, let upgrade {
            return await switchProtocol(response, exchange, upgrade)
        }
        handler.value.begin(response, streaming: response.body.contentLength == nil)
        await writeBody(response, exchange)
    }

    func writeBody(_ response: Response, _ exchange: HTTPService.Exchange) async {
        do {
            if handler.value.isHead {
                try handler.value.output.finish()
            } else {
                try await response.body.write(ChannelBodyWriter(handler: handler))
            }
            handler.value.service.record(exchange, bytes: handler.value.output.bytes)
            handler.value.responseFinished()
        } catch {
            handler.value.service.record(exchange, bytes: handler.value.output.bytes)
            handler.value.logger.debug(
                "response was cut off", metadata: ["path": "\(exchange.path)", "error": "\(error)"])
            handler.value.responseFailed()
        }
    }

    private func switchProtocol(
        _ response: Response, _ exchange: HTTPService.Exchange, _ upgrade: UpgradeSlot.Upgrade
    ) async {
        handler.value.begin(response, streaming: true)
        let service = handler.value.service
        do {
            try handler.value.output.finish()
            switch upgrade {
            case .messages(let maximumMessage, let run):
                let webSocket = try WebSocketHandler.start(
                    replacing: handler.value, limits: service.limits, maximumMessage: maximumMessage,
                    queues: service.outputQueues)
                await run(webSocket)
                await webSocket.close(.normal)
            case .bytes(let install):
                let channel = try WebSocketBytes.start(replacing: handler.value, limits: service.limits, install)
                try? await channel.closeFuture.get()
            }
        } catch {
            service.record(exchange, bytes: 0)
            return handler.value.responseFailed()
        }
        service.record(exchange, bytes: 0)
    }
}

private struct ChannelBodyWriter: ResponseBodyWriter, Sendable {
    let handler: NIOLoopBound<HTTPConnectionHandler>

    mutating func write(_ buffer: ByteBuffer) async throws {
        // In slices, so that a slow reader's progress is noticed before everything is sent.
        var rest = buffer
        repeat {
            let slice = rest.readSlice(length: min(rest.readableBytes, 64 << 10)) ?? ByteBuffer()
            if try handler.value.output.write(slice) { continue }
            let queue = handler.value.outputQueue
            queue.add([buffer])
            defer { queue.clear() }
            try await withCheckedThrowingContinuation { handler.value.output.wait($0) }
        } while rest.readableBytes > 0
    }

    consuming func finish(_ trailingHeaders: HTTPFields?) async throws {
        try handler.value.output.finish()
    }
}
