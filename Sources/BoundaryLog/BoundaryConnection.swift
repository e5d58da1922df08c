import Logging
import NIOCore
import Synchronization

/// Checks the frames of all connections and puts batches into the queue.
final class BoundaryIntake: Sendable {
    private let queue: DurableQueue
    private let metrics: BoundaryMetrics
    private let tracker = Mutex(SequenceTracker())

    init(queue: DurableQueue, metrics: BoundaryMetrics) {
        self.queue = queue
        self.metrics = metrics
    }

    /// Takes in one frame.
    /// - Returns: why it was rejected; nil when it was not.
    func take(_ tag: FrameCodec.Tag, _ payload: UnsafeRawBufferPointer) -> BoundaryMetrics.Rejection? {
        let content: FrameContent
        do {
            content = try BatchScanner.scan(tag, payload)
        } catch {
            metrics.rejectedFrame(.undecodable)
            return .undecodable
        }
        switch content {
        case .batch(let parts, let summary):
            note(summary, payload)
            queue.enqueue(payload, parts, logs: summary.logs)
            return nil
        case .status(let channelFull, let batchFull):
            metrics.droppedByBoundary(channelFull: channelFull, batchFull: batchFull)
            return nil
        case .empty:
            metrics.rejectedFrame(.empty)
            return .empty
        }
    }

    /// Whether connections should be read a little later, because the disk is behind.
    var isCrowded: Bool { queue.isCrowded }

    func reject(_ reason: BoundaryMetrics.Rejection) { metrics.rejectedFrame(reason) }

    private func note(_ summary: BatchSummary, _ payload: UnsafeRawBufferPointer) {
        guard summary.sequence.first != nil, 1...BoundaryLimits.sessionBytes ~= summary.session.count else { return }
        let session = String(decoding: payload[summary.session], as: UTF8.self)
        let gaps = tracker.withLock { $0.note(session, summary.sequence) }
        metrics.foundGaps(gaps)
    }
}

/// One connection of boundary: bytes in, frames to the intake. Nothing is ever written back.
final class BoundaryConnection: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = Never

    private let intake: BoundaryIntake
    private let logger: Logger
    private var codec = FrameCodec()
    private var bad = 0
    private var reads = 0
    /// Whether a read is postponed until the disk has caught up.
    private var isReadPostponed = false
    /// How often a read may still be postponed by 2 ms; then the socket is read although the disk is behind.
    private var postponementsLeft = BoundaryLimits.pauseMilliseconds / 2

    /// An event that closes a connection once nothing more comes, at the latest after
    /// ``BoundaryLimits/drainTurns``.
    struct Drain: Sendable {}

    init(intake: BoundaryIntake, logger: Logger) {
        self.intake = intake
        self.logger = logger
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let buffer = unwrapInboundIn(data)
        reads &+= 1
        do throws(FrameCodec.Violation) {
            try buffer.withUnsafeReadableBytes { bytes throws(FrameCodec.Violation) in
                try codec.feed(bytes) { tag, payload in
                    if let reason = intake.take(tag, payload) { logRejection(reason) }
                }
            }
        } catch {
            // Bytes that arrive before the channel is closed fail in the same way; it is logged once.
            guard bad >= 0 else { return }
            bad = -1
            switch error {
            case .unknownTag: intake.reject(.unknownTag)
            case .tooLarge: intake.reject(.tooLarge)
            }
            logger.warning("closed a boundary connection", metadata: ["reason": "\(error)"])
            context.close(promise: nil)
        }
    }

    /// Called before each read of the socket.
    func read(context: ChannelHandlerContext) {
        guard intake.isCrowded else {
            postponementsLeft = BoundaryLimits.pauseMilliseconds / 2
            isReadPostponed = false
            return context.read()
        }
        isReadPostponed = postponementsLeft > 0
        guard isReadPostponed else { return context.read() }
        postponementsLeft -= 1
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        context.eventLoop.scheduleTask(in: .milliseconds(2)) {
            let (handler, context) = bound.value
            handler.read(context: context)
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard event is Drain else { return context.fireUserInboundEventTriggered(event) }
        drain(context, seen: reads, turns: BoundaryLimits.drainTurns)
    }

    private func drain(_ context: ChannelHandlerContext, seen: Int, turns: Int) {
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        context.eventLoop.scheduleTask(in: .milliseconds(10)) {
            let (handler, context) = bound.value
            if handler.isReadPostponed {
                // Nothing came because we did not read. That ends, see postponementsLeft.
                handler.drain(context, seen: seen, turns: turns)
            } else if handler.reads == seen || turns == 0 {
                context.close(promise: nil)
            } else {
                handler.drain(context, seen: handler.reads, turns: turns - 1)
            }
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if codec.pending > 0 {
            intake.reject(.truncated)
            logger.debug("a boundary connection ended inside a frame", metadata: ["bytes": "\(codec.pending)"])
        }
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        logger.debug("a boundary connection failed", metadata: ["error": "\(error)"])
        context.close(promise: nil)
    }

    /// Logs the 1st, 2nd, 4th, 8th … rejection, so that a broken writer does not fill the log.
    private func logRejection(_ reason: BoundaryMetrics.Rejection) {
        bad += 1
        guard bad & (bad - 1) == 0 else { return }
        logger.warning(
            "skipped a boundary frame",
            metadata: ["reason": "\(reason.rawValue)", "frames_of_this_connection": "\(bad)"])
    }
}
