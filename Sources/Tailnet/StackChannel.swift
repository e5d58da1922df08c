import DequeModule
import IPAddresses
import NIOCore
import NetStack
import Synchronization

/// The channel of one TCP connection of the stack. Reads and writes `ByteBuffer`s.
///
/// - Received bytes wait in the stack until the pipeline reads, which is what opens the peer's window.
/// - A write's promise completes when the stack has taken its bytes. `isWritable` follows those it has not.
/// - `close(mode: .output)` sends FIN after everything that was written. The peer's FIN closes the channel or, with the
///   option `allowRemoteHalfClosure`, fires `ChannelEvent.inputClosed`.
/// - `close()` resets the connection when bytes would be lost: received ones that were not read, or written ones that
///   the stack has not taken. Otherwise what was written is delivered, and then FIN.
///
/// Unchecked, since the mutable state is touched on the event loop only, as NIO does with its own channels; the two
/// flags that others may read are atomics.
package final class StackChannel: Channel, ChannelCore, @unchecked Sendable {
    package typealias Initializer = (any Channel) throws -> Void

    private enum State { case initializing, active, closed }

    /// Bytes that the stack has not taken yet, above and below which `isWritable` changes.
    static let highWaterMark = 64 << 10
    static let lowWaterMark = 32 << 10
    /// Bytes that one read hands over.
    static let readBytes = 256 << 10

    package let allocator = ByteBufferAllocator()
    package let eventLoop: any EventLoop
    package let parent: (any Channel)? = nil
    package let localAddress: SocketAddress?
    package let remoteAddress: SocketAddress?
    private let closePromise: EventLoopPromise<Void>
    // A pipeline needs its channel, so it is made last in the initializer; never nil afterwards.
    private var madePipeline: ChannelPipeline!
    private let activeFlag = Atomic<Bool>(false)
    private let writableFlag = Atomic<Bool>(true)

    private let tunnel: Tunnel
    private let id: ConnectionID
    private var state = State.initializing
    private var autoRead = true
    private var allowsRemoteHalfClosure = false
    private var readWanted = false
    private var isDelivering = false
    private var hasInputEnded = false
    private var isEndDelivered = false
    /// The stack knows the connection no more.
    private var isGone = false
    private var unflushed: Deque<(data: ByteBuffer, promise: EventLoopPromise<Void>?)> = []
    /// Flushed and not taken by the stack.
    private var unsent: Deque<(data: ByteBuffer, promise: EventLoopPromise<Void>?)> = []
    private var queuedBytes = 0
    private var isOutputClosing = false
    private var isOutputClosed = false
    private var outputClosePromise: EventLoopPromise<Void>?

    init(tunnel: Tunnel, id: ConnectionID, local: Endpoint, remote: Endpoint) {
        (self.tunnel, self.id, eventLoop) = (tunnel, id, tunnel.loop)
        (localAddress, remoteAddress) = (SocketAddress(local), SocketAddress(remote))
        closePromise = tunnel.loop.makePromise()
        madePipeline = ChannelPipeline(channel: self)
    }

    package var pipeline: ChannelPipeline { madePipeline }
    package var closeFuture: EventLoopFuture<Void> { closePromise.futureResult }
    package var isActive: Bool { activeFlag.load(ordering: .acquiring) }
    package var isWritable: Bool { writableFlag.load(ordering: .acquiring) }
    package var _channelCore: any ChannelCore { self }

    /// Closes with RST, whatever has not been delivered.
    package func abort() {
        guard state != .closed else { return }
        if !isGone {
            isGone = true
            tunnel.closed(id, isAborted: true)
        }
        tearDown(ChannelError.eof)
    }

    // MARK: From the tunnel

    func activate() {
        guard state == .initializing else { return }
        state = .active
        activeFlag.store(true, ordering: .releasing)
        pipeline.fireChannelActive()
        drain()
        if autoRead || readWanted, state == .active { pipeline.read() }
    }

    func becameReadable() {
        if readWanted { deliver() }
    }

    func becameWritable() { drain() }

    func inputEnded() {
        hasInputEnded = true
        deliver()
    }

    /// Both sides have ended, and everything was read.
    func bothEnded() {
        isGone = true
        hasInputEnded = true
        if isEndDelivered { tearDown(ChannelError.eof) } else { deliver() }
    }

    func fail(_ error: any Error) {
        isGone = true
        guard state != .closed else { return }
        if state == .active, error is ConnectionFailure { pipeline.fireErrorCaught(error) }
        tearDown(error)
    }

    /// Hands received bytes over for as long as the pipeline reads.
    private func deliver() {
        guard !isDelivering, state == .active else { return }
        isDelivering = true
        defer { isDelivering = false }
        while readWanted, state == .active, !isGone,
            let data = tunnel.stack.read(id, limit: Self.readBytes, now: tunnel.now)
        {
            readWanted = false
            // The window that has become free is told.
            tunnel.scheduleTurn()
            pipeline.fireChannelRead(data)
            guard state == .active else { return }
            pipeline.fireChannelReadComplete()
            if autoRead, state == .active { pipeline.read() }
        }
        guard readWanted, hasInputEnded, !isEndDelivered, state == .active else { return }
        guard isGone || tunnel.stack.readableBytes(id) == 0 else { return }
        isEndDelivered = true
        if allowsRemoteHalfClosure, !isGone {
            pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        } else if allowsRemoteHalfClosure {
            pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
            tearDown(ChannelError.eof)
        } else {
            close0(error: ChannelError.eof, mode: .all, promise: nil)
        }
    }

    // MARK: Writing

    /// Gives the stack what it takes.
    private func drain() {
        guard state == .active, !isGone else { return }
        var done: [EventLoopPromise<Void>] = []
        while var first = unsent.popFirst() {
            queuedBytes -= tunnel.stack.write(id, &first.data, now: tunnel.now)
            guard first.data.readableBytes == 0 else {
                unsent.prepend(first)
                break
            }
            if let promise = first.promise { done.append(promise) }
        }
        let endsOutput = isOutputClosing && !isOutputClosed && unsent.isEmpty
        if endsOutput {
            isOutputClosed = true
            tunnel.stack.finish(id, now: tunnel.now)
        }
        tunnel.send()
        for promise in done { promise.succeed() }
        updateWritability()
        guard endsOutput, state == .active else { return }
        outputClosePromise?.succeed()
        outputClosePromise = nil
        pipeline.fireUserInboundEventTriggered(ChannelEvent.outputClosed)
    }

    private func updateWritability() {
        guard state != .closed else { return }
        let was = writableFlag.load(ordering: .relaxed)
        let now = queuedBytes <= (was ? Self.highWaterMark : Self.lowWaterMark)
        guard was != now else { return }
        writableFlag.store(now, ordering: .releasing)
        pipeline.fireChannelWritabilityChanged()
    }

    private func tearDown(_ error: any Error) {
        guard state != .closed else { return }
        let wasActive = state == .active
        state = .closed
        activeFlag.store(false, ordering: .releasing)
        var promises = unsent.compactMap(\.promise) + unflushed.compactMap(\.promise)
        if let outputClosePromise { promises.append(outputClosePromise) }
        (unsent, unflushed, outputClosePromise, queuedBytes) = ([], [], nil, 0)
        for promise in promises { promise.fail(error) }
        if wasActive { pipeline.fireChannelInactive() }
        // Once the calls from which this was called have ended.
        eventLoop.execute {
            self.removeHandlers(pipeline: self.pipeline)
            self.closePromise.succeed()
        }
    }

    // MARK: From the pipeline

    package func write0(_ data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard let buffer = tryUnwrapData(data, as: ByteBuffer.self) else {
            promise?.fail(ChannelError.operationUnsupported)
            return
        }
        guard state != .closed else {
            promise?.fail(ChannelError.ioOnClosedChannel)
            return
        }
        guard !isOutputClosing else {
            promise?.fail(ChannelError.outputClosed)
            return
        }
        queuedBytes += buffer.readableBytes
        unflushed.append((buffer, promise))
        updateWritability()
    }

    package func flush0() {
        guard !unflushed.isEmpty else { return }
        unsent += unflushed
        unflushed = []
        drain()
    }

    package func read0() {
        guard state != .closed else { return }
        readWanted = true
        deliver()
    }

    package func close0(error: any Error, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard state != .closed else {
            promise?.fail(ChannelError.alreadyClosed)
            return
        }
        switch mode {
        case .all:
            if !isGone {
                isGone = true
                tunnel.closed(id, isAborted: state == .initializing || !unsent.isEmpty)
            }
            tearDown(error)
            promise?.succeed()
        case .output:
            guard !isOutputClosing else {
                promise?.fail(ChannelError.outputClosed)
                return
            }
            isOutputClosing = true
            outputClosePromise = promise
            unsent += unflushed
            unflushed = []
            drain()
        case .input:
            promise?.fail(ChannelError.operationUnsupported)
        }
    }

    package func triggerUserOutboundEvent0(_ event: Any, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }

    package func localAddress0() throws -> SocketAddress {
        guard let localAddress else { throw ChannelError.unknownLocalAddress }
        return localAddress
    }

    package func remoteAddress0() throws -> SocketAddress {
        guard let remoteAddress else { throw ChannelError.operationUnsupported }
        return remoteAddress
    }

    package func register0(promise: EventLoopPromise<Void>?) { promise?.fail(ChannelError.operationUnsupported) }
    package func bind0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }
    package func connect0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }
    package func channelRead0(_ data: NIOAny) {}
    package func errorCaught0(error: any Error) {}
}

// MARK: Options

extension StackChannel {
    private struct SynchronousOptions: NIOSynchronousChannelOptions {
        let channel: StackChannel

        func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) throws {
            switch (option, value) {
            case (is ChannelOptions.Types.AutoReadOption, let value as Bool):
                let old = channel.autoRead
                channel.autoRead = value
                if value, !old, channel.state == .active { channel.pipeline.read() }
            case (is ChannelOptions.Types.AllowRemoteHalfClosureOption, let value as Bool):
                channel.allowsRemoteHalfClosure = value
            default: throw ChannelError.operationUnsupported
            }
        }

        func getOption<Option: ChannelOption>(_ option: Option) throws -> Option.Value {
            let value: any Sendable
            switch option {
            case is ChannelOptions.Types.BufferedWritableBytesOption: value = channel.queuedBytes
            case is ChannelOptions.Types.AutoReadOption: value = channel.autoRead
            case is ChannelOptions.Types.AllowRemoteHalfClosureOption: value = channel.allowsRemoteHalfClosure
            default: throw ChannelError.operationUnsupported
            }
            guard let value = value as? Option.Value else { throw ChannelError.operationUnsupported }
            return value
        }
    }

    package var syncOptions: (any NIOSynchronousChannelOptions)? { SynchronousOptions(channel: self) }

    package func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> EventLoopFuture<Void> {
        guard eventLoop.inEventLoop else {
            return eventLoop.flatSubmit { self.setOption(option, value: value) }
        }
        return eventLoop.makeCompletedFuture { try SynchronousOptions(channel: self).setOption(option, value: value) }
    }

    package func getOption<Option: ChannelOption>(_ option: Option) -> EventLoopFuture<Option.Value> {
        guard eventLoop.inEventLoop else { return eventLoop.flatSubmit { self.getOption(option) } }
        return eventLoop.makeCompletedFuture { try SynchronousOptions(channel: self).getOption(option) }
    }
}
