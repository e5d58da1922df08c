import DequeModule
import NIOCore
import Synchronization

/// What a client sends when its caller cancels a call.
public enum CancelStyle: Sendable {
    /// Closes the connection, as existing clients do: nothing more is usable on it.
    case closeTransport
    /// Sends a Cancel packet; the connection stays usable.
    case cancelPacket
}

/// Identifies one call on the event loop, from its start until it is over.
final class CallToken: Sendable {
    private let flag = Atomic<Bool>(false)
    /// Set when the caller cancelled, perhaps before the loop got the call.
    var isCancelled: Bool { flag.load(ordering: .acquiring) }
    func cancel() { flag.store(true, ordering: .releasing) }
}

/// Drives a ``ClientConnection`` on any NIO channel that carries bytes. Calls run one after the
/// other; those that wait are bounded by ``DRPCLimits/queuedCalls``.
final class RPCClientHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = Never
    typealias OutboundOut = ByteBuffer

    /// Where a call's outcome goes.
    enum Delivery {
        case single(CheckedContinuation<ByteBuffer, any Error>)
        case stream(MessagePipe, opened: CheckedContinuation<Void, any Error>)
    }

    struct Call {
        let token: CallToken
        let rpc: String
        let kind: MethodKind
        let metadata: [String: String]
        /// The only request, sent along with the Invoke; nil where the client streams.
        let request: ByteBuffer?
        let delivery: Delivery
    }

    private struct Current {
        let token: CallToken
        let stream: UInt64
        let kind: MethodKind
        let single: CheckedContinuation<ByteBuffer, any Error>?
        let pipe: MessagePipe?
    }

    private var machine = ClientConnection()
    private var reader = PacketReader()
    private var queue: Deque<Call> = []
    private var current: Current?
    private var out = ByteBuffer()
    private var context: ChannelHandlerContext?
    private var failure: DRPCError?
    private var isProcessing = false
    private var readWanted = false
    private let cancelStyle: CancelStyle

    init(cancelStyle: CancelStyle) { self.cancelStyle = cancelStyle }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) {
        fail(DRPCError(.closed, "the connection's handler was removed"))
        self.context = nil
    }

    func channelInactive(context: ChannelHandlerContext) {
        fail(DRPCError(.closed, "the server closed the connection"))
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        close(DRPCError(.closed, "the connection failed", cause: error))
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard failure == nil else { return }
        reader.append(unwrapInboundIn(data))
        process()
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        reader.compact()
        context.fireChannelReadComplete()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        current?.pipe?.setWritable(context.channel.isWritable)
        context.fireChannelWritabilityChanged()
    }

    func read(context: ChannelHandlerContext) {
        if mayProceed { context.read() } else { readWanted = true }
    }

    /// Starts a call or puts it in line.
    func start(_ call: Call) {
        if let failure { return refuse(call, failure) }
        if call.token.isCancelled { return refuse(call, CancellationError()) }
        if current == nil, !machine.isBusy { return begin(call) }
        guard queue.count < DRPCLimits.queuedCalls else {
            return refuse(call, DRPCError(.limit, "\(DRPCLimits.queuedCalls) calls wait on this connection already"))
        }
        queue.append(call)
    }

    /// Ends a call that its caller no longer wants. Does nothing when it is over.
    func giveUp(_ token: CallToken) {
        if let index = queue.firstIndex(where: { $0.token === token }) {
            return refuse(queue.remove(at: index), CancellationError())
        }
        guard let running = current, running.token === token else { return }
        switch cancelStyle {
        case .closeTransport:
            close(DRPCError(.closed, "the connection was closed to cancel a call"))
        case .cancelPacket:
            machine.cancel(stream: running.stream, into: &out)
            submit()
            end(running, .failure(DRPCError(.cancelled, "the call was cancelled")))
        }
    }

    /// Sends a message of a streaming call.
    func send(_ data: ByteBuffer, _ token: CallToken) throws {
        guard let running = current, running.token === token else {
            throw failure ?? DRPCError(.cancelled, "the call is over")
        }
        try machine.send(data, stream: running.stream, into: &out)
        submit()
    }

    /// Ends the sending side of a streaming call.
    func closeSend(_ token: CallToken) {
        guard let running = current, running.token === token else { return }
        machine.closeSend(stream: running.stream, into: &out)
        submit()
        if !machine.isBusy { end(running, nil) }
    }

    /// Fails whatever runs or waits, and closes the channel.
    func close(_ error: DRPCError) {
        submit()
        fail(error)
        context?.close(promise: nil)
    }

    /// Handles waiting packets, then reads on, once a stream's reader has caught up.
    func resume() {
        guard mayProceed else { return }
        process()
        if readWanted, mayProceed {
            readWanted = false
            context?.read()
        }
    }

    private var mayProceed: Bool { failure == nil && current?.pipe?.isFull != true }

    private func process() {
        guard !isProcessing else { return }
        isProcessing = true
        defer { isProcessing = false }
        do throws(DRPCError) {
            while mayProceed, let packet = try reader.next() {
                if let event = try machine.receive(packet, into: &out) { handle(event) }
            }
        } catch {
            close(error)
        }
    }

    private func handle(_ event: ClientConnection.Event) {
        guard let running = current else { return }
        switch event {
        case .message(let data):
            running.pipe?.push(data)
        case .reply(let data):
            // The reply first: a write to a peer that is gone would fail the call.
            end(running, .success(data))
            // The Close that the machine appended is sent with the next call: the server has ended this one, unless we
            // were still sending.
            if running.kind != .unary { submit() }
        case .end:
            running.pipe?.endInput()
            if !machine.isBusy { end(running, nil) }
        case .failed(let error):
            end(running, .failure(error))
        }
    }

    private func begin(_ call: Call) {
        if let failure { return refuse(call, failure) }
        let stream: UInt64
        do throws(DRPCError) {
            var bytes = out
            stream = try machine.open(rpc: call.rpc, kind: call.kind, metadata: call.metadata, into: &bytes)
            if let request = call.request {
                try machine.send(request, stream: stream, into: &bytes)
                machine.closeSend(stream: stream, into: &bytes)
            }
            out = bytes
        } catch {
            // Nothing of the call was sent; the machine drops it, too.
            var discarded = ByteBuffer()
            machine.cancel(stream: machine.currentStream, into: &discarded)
            refuse(call, error)
            return next()
        }
        // Set before the bytes are sent: when the peer is gone, the channel closes within the write and fails the
        // current call.
        switch call.delivery {
        case .single(let continuation):
            current = Current(
                token: call.token, stream: stream, kind: call.kind, single: continuation, pipe: nil)
            submit()
        case .stream(let pipe, let opened):
            pipe.setWritable(context?.channel.isWritable ?? true)
            current = Current(token: call.token, stream: stream, kind: call.kind, single: nil, pipe: pipe)
            submit()
            if let failure { opened.resume(throwing: failure) } else { opened.resume() }
        }
    }

    /// Ends the running call. Does nothing when a write closed the channel, and with it the call.
    private func end(_ running: Current, _ result: Result<ByteBuffer, DRPCError>?) {
        guard current?.token === running.token else { return }
        current = nil
        switch result {
        case .success(let data)?:
            running.single?.resume(returning: data)
            running.pipe?.push(data)
            running.pipe?.endInput()
        case .failure(let error)?:
            running.single?.resume(throwing: error)
            running.pipe?.endInput(error)
        case nil:
            running.pipe?.endInput()
        }
        running.pipe?.endOutput(DRPCError(.cancelled, "the call is over"))
        next()
        // Reading may have stopped because this call's reader was slow.
        resume()
    }

    private func next() {
        if current == nil, let call = queue.popFirst() { begin(call) }
    }

    private func refuse(_ call: Call, _ error: any Error) {
        switch call.delivery {
        case .single(let continuation): continuation.resume(throwing: error)
        case .stream(_, let opened): opened.resume(throwing: error)
        }
    }

    private func fail(_ error: DRPCError) {
        guard failure == nil else { return }
        failure = error
        reader = PacketReader()
        let waiting = queue
        queue = []
        if let running = current.take() {
            running.single?.resume(throwing: error)
            running.pipe?.end(error)
        }
        for call in waiting { refuse(call, error) }
    }

    private func submit() {
        guard let context, out.readableBytes > 0, failure == nil else { return }
        let bytes = out
        out = ByteBuffer()
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
    }
}
