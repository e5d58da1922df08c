import AgentCore
import NIOCore

/// Serves one connection: drives a ``ServerConnection`` on any NIO channel that carries bytes.
///
/// Reads stop while the client doesn't read our answers, while a handler has enough messages to
/// work on, and while too many cancelled handlers still run; so a connection holds a bounded
/// number of bytes whatever its client does.
public final class RPCServerHandler: ChannelDuplexHandler {
    public typealias InboundIn = ByteBuffer
    public typealias OutboundIn = Never
    public typealias OutboundOut = ByteBuffer

    /// What happened on the connection, for logs and metrics. All called on its event loop.
    public struct Observer: Sendable {
        /// A call ended: rpc name and whether it succeeded. Unknown rpcs are not reported.
        public var callEnded: @Sendable (_ rpc: String, _ succeeded: Bool) -> Void
        /// A call has its request (true) or the connection has no such call any more (false).
        public var busyChanged: @Sendable (Bool) -> Void
        /// The client broke the protocol or a bound; the connection is closed next.
        public var violated: @Sendable (DRPCError) -> Void

        public init(
            callEnded: @escaping @Sendable (String, Bool) -> Void = { _, _ in },
            busyChanged: @escaping @Sendable (Bool) -> Void = { _ in },
            violated: @escaping @Sendable (DRPCError) -> Void = { _ in }
        ) {
            self.callEnded = callEnded
            self.busyChanged = busyChanged
            self.violated = violated
        }
    }

    private struct Running {
        let stream: ServerStream
        let task: Task<Void, Never>
    }

    private var machine: ServerConnection<ServerHandler>
    private var reader = PacketReader()
    private let budget: UnfinishedBudget
    private let unsentBudget: UnsentBudget
    private let observer: Observer
    private var booked = 0
    /// Bytes of answers since the one that filled the channel; 0 while it takes more.
    private var unsent = 0
    private var unsentBooked = 0
    private var unsentTicket: UInt64?
    private var running: Running?
    private var executor: EventLoopTaskExecutor?
    private var context: ChannelHandlerContext?
    private var out = ByteBuffer()
    private var isProcessing = false
    private var isReading = false
    private var readWanted = false
    /// Other connections have their turn; ``resume()`` is scheduled.
    private var waitsForTurn = false
    private var closing = false
    private var wasBusy = false

    /// - Parameters:
    ///   - budget: shared by all connections of a server, as is `unsentBudget`.
    ///   - observer: called for events of the connection.
    public init(
        router: Router, budget: UnfinishedBudget = UnfinishedBudget(), unsentBudget: UnsentBudget = UnsentBudget(),
        observer: Observer = Observer()
    ) {
        machine = ServerConnection(methods: router.methods)
        self.budget = budget
        self.unsentBudget = unsentBudget
        self.observer = observer
    }

    public func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        executor = EventLoopTaskExecutor(context.eventLoop)
    }

    public func handlerRemoved(context: ChannelHandlerContext) { tearDown() }

    public func channelInactive(context: ChannelHandlerContext) {
        tearDown()
        context.fireChannelInactive()
    }

    public func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A reset connection and the like; no answer can reach the client.
        close()
    }

    public func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !closing else { return }
        isReading = true
        reader.append(unwrapInboundIn(data))
        process()
    }

    public func channelReadComplete(context: ChannelHandlerContext) {
        isReading = false
        reader.compact()
        book()
        flush()
        context.fireChannelReadComplete()
    }

    public func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { releaseUnsent() }
        running?.stream.pipe.setWritable(context.channel.isWritable)
        resume()
        context.fireChannelWritabilityChanged()
    }

    public func read(context: ChannelHandlerContext) {
        if mayProceed { context.read() } else { readWanted = true }
    }

    private var mayProceed: Bool {
        guard let context, !closing, !waitsForTurn else { return false }
        return machine.wantsPackets && context.channel.isWritable && running?.stream.pipe.isFull != true
    }

    /// Handles waiting packets, then reads on, if nothing prevents it any more.
    private func resume() {
        guard mayProceed, !isProcessing else { return }
        // The answers of one turn are flushed together.
        let wasReading = isReading
        isReading = true
        process()
        isReading = wasReading
        if !isReading {
            // Otherwise done at the end of a read, which may not follow.
            reader.compact()
            book()
            flush()
        }
        if readWanted, mayProceed {
            readWanted = false
            context?.read()
        }
    }

    private func process() {
        guard !isProcessing else { return }
        isProcessing = true
        defer { isProcessing = false }
        var left = DRPCLimits.packetsInARow
        do throws(DRPCError) {
            while mayProceed, let packet = try reader.next() {
                for action in try machine.receive(packet, into: &out) { perform(action) }
                submit()
                left -= 1
                if left == 0 { giveWay() }
            }
        } catch {
            observer.violated(error)
            close()
            return
        }
        noteBusy()
    }

    /// Continues at the loop's next turn: a client that sends calls faster than they are answered must not keep the loop
    /// from the other connections.
    private func giveWay() {
        guard let context, !closing else { return }
        waitsForTurn = true
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        context.eventLoop.execute {
            bound.value.waitsForTurn = false
            bound.value.resume()
        }
    }

    private func perform(_ action: ServerConnection<ServerHandler>.Action) {
        switch action {
        case .start(let stream, let rpc, .immediate(let body), let metadata, let request):
            let outcome: ServerConnection<ServerHandler>.Outcome
            do {
                outcome = .success(try body(request ?? ByteBuffer(), CallContext(rpc: rpc, metadata: metadata)))
            } catch {
                outcome = .failure(DRPCError.answer(for: error))
            }
            finish(outcome, stream: stream, rpc: rpc)
        case .start(let stream, let rpc, .task(let body), let metadata, let request):
            start(stream, CallContext(rpc: rpc, metadata: metadata), body, request)
        case .deliver(let stream, let data):
            if let running, running.stream.id == stream { running.stream.pipe.push(data) }
        case .endInput(let stream):
            if let running, running.stream.id == stream { running.stream.pipe.endInput() }
        case .cancel(let stream):
            guard let running, running.stream.id == stream else { return }
            running.stream.pipe.end(DRPCError(.cancelled, "the client cancelled the call"))
            running.task.cancel()
            self.running = nil
        }
    }

    private func start(
        _ id: UInt64, _ call: CallContext,
        _ body: @escaping @Sendable (ServerStream, CallContext) async throws -> ByteBuffer?, _ request: ByteBuffer?
    ) {
        guard let context, let executor else { return }
        let loop = context.eventLoop
        let bound = NIOLoopBound(self, eventLoop: loop)
        let stream = ServerStream(
            id: id, loop: loop,
            hasRoom: { loop.execute { bound.value.resume() } },
            write: { try bound.value.send($0, stream: id) })
        stream.pipe.setWritable(context.channel.isWritable)
        if let request {
            stream.pipe.push(request)
            stream.pipe.endInput()
        }
        let task = Task(executorPreference: executor) {
            let outcome: ServerConnection<ServerHandler>.Outcome
            do {
                outcome = .success(try await body(stream, call))
            } catch {
                outcome = .failure(DRPCError.answer(for: error))
            }
            if loop.inEventLoop {
                bound.value.finish(outcome, stream: id, rpc: call.rpc)
            } else {
                loop.execute { bound.value.finish(outcome, stream: id, rpc: call.rpc) }
            }
        }
        running = Running(stream: stream, task: task)
    }

    private func send(_ data: ByteBuffer, stream: UInt64) throws {
        try machine.send(data, stream: stream, into: &out)
        submit()
    }

    private func finish(_ outcome: ServerConnection<ServerHandler>.Outcome, stream: UInt64, rpc: String) {
        machine.finish(outcome, stream: stream, into: &out)
        if let running, running.stream.id == stream {
            // A handler that left tasks behind must not have them write into the next call.
            running.stream.pipe.end(DRPCError(.cancelled, "the call is over"))
            self.running = nil
        }
        if case .success = outcome { observer.callEnded(rpc, true) } else { observer.callEnded(rpc, false) }
        // Before the answer is sent: a client that has it counts as idle.
        noteBusy()
        submit()
        resume()
    }

    /// Writes what the machine produced; within a read the flush waits for its end.
    private func submit() {
        guard let context, out.readableBytes > 0 else { return }
        let bytes = out
        out = ByteBuffer()
        guard !closing else { return }
        context.write(wrapOutboundOut(bytes), promise: nil)
        if !context.channel.isWritable { unsent += bytes.readableBytes }
        if !isReading { flush() }
    }

    private func flush() {
        context?.flush()
        bookUnsent()
    }

    /// Books the bytes that the flush left, so that answers which the kernel takes at once cost nothing.
    private func bookUnsent() {
        guard unsent > unsentBooked, !closing, let loop = context?.eventLoop else { return }
        let more = unsent - unsentBooked
        unsentBooked = unsent
        let bound = NIOLoopBound(self, eventLoop: loop)
        unsentTicket = unsentBudget.book(more, ticket: unsentTicket) {
            loop.execute { bound.value.closeStuck() }
        }
    }

    private func releaseUnsent() {
        unsent = 0
        unsentBooked = 0
        if let ticket = unsentTicket.take() { unsentBudget.release(ticket) }
    }

    private func closeStuck() {
        // Its client may have read on since it was chosen.
        guard !closing, unsentTicket != nil else { return }
        observer.violated(DRPCError(.limit, "answers that clients do not read take too much memory"))
        close()
    }

    private func noteBusy() {
        guard machine.isServing != wasBusy else { return }
        wasBusy.toggle()
        observer.busyChanged(wasBusy)
    }

    private func book() {
        let held = closing ? 0 : reader.heldBytes + machine.heldBytes
        let fits = budget.rebook(from: booked, to: held)
        booked = held
        guard !fits else { return }
        observer.violated(DRPCError(.limit, "unfinished packets of all connections take too much memory"))
        close()
    }

    private func close() {
        guard !closing else { return }
        closing = true
        // Sends the answers to packets before the violation.
        context?.flush()
        context?.close(promise: nil)
    }

    private func tearDown() {
        closing = true
        for action in machine.connectionClosed() { perform(action) }
        reader = PacketReader()
        book()
        releaseUnsent()
        noteBusy()
        context = nil
    }
}
