import AgentCore
import Glibc
import Logging
import NIOCore

/// In front of a listening socket: pauses accepting while ``HTTPLimits/connections`` are open, and
/// says once when the process is out of descriptors (NIO itself backs off for a second then, so the
/// listener never spins).
final class AcceptGate: ChannelDuplexHandler {
    typealias InboundIn = any Channel
    typealias InboundOut = any Channel
    typealias OutboundIn = any Channel

    private let pauses: CounterSeries
    private let logger: Logger
    private var context: ChannelHandlerContext?
    private var full = false
    private var readWaits = false
    private var warned = false

    init(pauses: CounterSeries, logger: Logger) {
        self.pauses = pauses
        self.logger = logger
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func read(context: ChannelHandlerContext) {
        if full { readWaits = true } else { context.read() }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if warned {
            warned = false
            logger.notice("accepting connections again")
        }
        context.fireChannelRead(data)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? IOError, [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode) {
            pauses.increment()
            if !warned {
                warned = true
                logger.warning(
                    "out of descriptors: accepting pauses until some are free",
                    metadata: ["error": "\(errnoText(error.errnoCode))"])
            }
        }
        context.fireErrorCaught(error)
    }

    func setFull(_ full: Bool) {
        self.full = full
        if !full, readWaits {
            readWaits = false
            context?.read()
        }
    }
}
