import AgentCore
import Glibc
import Logging
import NIOCore

/// In front of a listening socket: pauses accepting while ``HTTPLimits/maximumConnections`` are open and all of them
/// busy, and while the process is out of descriptors: until a silent client has made room, or for a second at a time.
///
/// NIO's own back-off is not enough: after a failed accept the listener stays registered, so a
/// waiting connection wakes the loop for ever. Switching `autoRead` off takes it out of the set.
final class AcceptGate: ChannelDuplexHandler {
    typealias InboundIn = any Channel
    typealias InboundOut = any Channel
    typealias OutboundIn = any Channel

    private static let pause = TimeAmount.seconds(1)
    /// While the connection that makes room is closed.
    private static let shortPause = TimeAmount.milliseconds(20)
    /// One warning for a shortage, however connections come and go during it.
    private static let warningInterval = TimeAmount.seconds(60)

    private let pauses: CounterSeries
    private let logger: Logger
    /// Closes a connection without a request; returns whether there is one.
    private let makeRoom: () -> Bool
    private var context: ChannelHandlerContext?
    private var full = false
    private var readWaits = false
    private var paused = false
    private var warnedAt: NIODeadline?

    init(pauses: CounterSeries, logger: Logger, makeRoom: @escaping () -> Bool) {
        self.pauses = pauses
        self.logger = logger
        self.makeRoom = makeRoom
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func read(context: ChannelHandlerContext) {
        if full || paused { readWaits = true } else { context.read() }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? IOError, [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode) {
            pause(context)
            let now = context.eventLoop.now
            if warnedAt.map({ now - $0 >= Self.warningInterval }) ?? true {
                warnedAt = now
                logger.warning(
                    "out of descriptors: accepting pauses until some are free",
                    metadata: ["error": "\(errnoText(error.errnoCode))"])
            }
        }
        context.fireErrorCaught(error)
    }

    private func pause(_ context: ChannelHandlerContext) {
        guard !paused else { return }
        paused = true
        pauses.increment()
        listen()
        context.eventLoop.assumeIsolated().scheduleTask(in: makeRoom() ? Self.shortPause : Self.pause) { [weak self] in
            guard let self else { return }
            self.paused = false
            self.listen()
            self.resume()
        }
    }

    func setFull(_ full: Bool) {
        guard self.full != full else { return }
        self.full = full
        listen()
        resume()
    }

    /// Not reading on is not enough: a read is under way since the last connection, and would accept one more.
    private func listen() {
        try? context?.channel.syncOptions?.setOption(.autoRead, value: !full && !paused)
    }

    private func resume() {
        guard !full, !paused, readWaits else { return }
        readWaits = false
        context?.read()
    }
}
