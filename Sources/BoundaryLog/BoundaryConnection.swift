import Logging
import NIOCore
import Synchronization

/// What becomes of frames, for all connections.
final class BoundaryIntake: Sendable {
    private let queue: DurableQueue
    private let metrics: BoundaryMetrics
    private let tracker = Mutex(SequenceTracker())

    init(queue: DurableQueue, metrics: BoundaryMetrics) {
        self.queue = queue
        self.metrics = metrics
    }

    /// Takes in one frame.
    /// - Returns: what was wrong with it.
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

    /// Whether it is better to read a little later.
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
    /// Whether a read is put off until the disk has caught up.
    private var readWaits = false
    /// Looks left, 2 ms apart, before it is read although the disk is behind.
    private var patience = BoundaryLimits.pauseMilliseconds / 2

    /// Asks a connection to close once nothing more comes; it is closed after ``BoundaryLimits/drainTurns``
    /// whatever comes.
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
                    if let reason = intake.take(tag, payload) { tell(reason) }
                }
            }
        } catch {
            // What still comes in before the channel is closed is the same violation.
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

    /// Asked before each read of the socket.
    func read(context: ChannelHandlerContext) {
        guard intake.isCrowded else {
            patience = BoundaryLimits.pauseMilliseconds / 2
            readWaits = false
            return context.read()
        }
        readWaits = patience > 0
        guard readWaits else { return context.read() }
        patience -= 1
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
            if handler.readWaits {
                // It is we who are silent. That ends, see patience.
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

    /// Each doubling, so that a broken writer does not fill the log.
    private func tell(_ reason: BoundaryMetrics.Rejection) {
        bad += 1
        guard bad & (bad - 1) == 0 else { return }
        logger.warning(
            "skipped a boundary frame",
            metadata: ["reason": "\(reason.rawValue)", "frames_of_this_connection": "\(bad)"])
    }
}
