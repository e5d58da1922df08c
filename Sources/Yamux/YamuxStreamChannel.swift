import DequeModule
import NIOCore
import Synchronization

/// The channel of one stream. Reads and writes `ByteBuffer`s.
///
/// - Received bytes wait here until the pipeline reads, and only then the peer gets window for more.
/// - `isWritable` follows the stream's window, the bytes that wait to be sent, and the transport.
/// - A write's promise completes when its bytes are handed to the transport.
/// - `close(mode: .output)` sends FIN after everything that was written. The other side's FIN closes the channel
///   or, with the option `allowRemoteHalfClosure`, fires `ChannelEvent.inputClosed`.
/// - `close()` sends what was flushed as far as the window allows, then FIN. It resets the stream instead when bytes
///   would be lost: received ones that were not read, or flushed ones without window.
///
/// Unchecked, since the mutable state is touched on the event loop only, as NIO does with its own
/// channels; the two flags that others may read are atomics.
final class YamuxStreamChannel: Channel, ChannelCore, @unchecked Sendable {
    private enum State { case initializing, active, closed }

    let allocator: ByteBufferAllocator
    let eventLoop: any EventLoop
    let parent: (any Channel)?
    let localAddress: SocketAddress?
    let remoteAddress: SocketAddress?
    private let closePromise: EventLoopPromise<Void>
    // A pipeline needs its channel, so it is made last in the initializer; never nil afterwards.
    private var madePipeline: ChannelPipeline!
    private let activeFlag = Atomic<Bool>(false)
    private let writableFlag = Atomic<Bool>(true)

    private var handler: YamuxHandler?
    private(set) var id: UInt32?
    private var state = State.initializing
    private var autoRead = true
    private var allowRemoteHalfClosure = false
    private var readWanted = false
    private var isTouched = false
    private var inbound = ByteBuffer()
    private var inputEnded = false
    private var endDelivered = false
    private var unflushed: Deque<(data: ByteBuffer, promise: EventLoopPromise<Void>?)> = []
    /// Flushed and not sent: the bytes left of each write, and its promise.
    private var unsent: Deque<(left: Int, promise: EventLoopPromise<Void>?)> = []
    private var queuedBytes = 0
    private var isOverMark = false
    private var finWanted = false
    private var outputClosePromises: [EventLoopPromise<Void>] = []

    init(handler: YamuxHandler, parent: any Channel, id: UInt32? = nil) {
        self.handler = handler
        self.id = id
        self.parent = parent
        allocator = parent.allocator
        eventLoop = parent.eventLoop
        localAddress = parent.localAddress
        remoteAddress = parent.remoteAddress
        closePromise = parent.eventLoop.makePromise()
        madePipeline = ChannelPipeline(channel: self)
    }

    var pipeline: ChannelPipeline { madePipeline }
    var closeFuture: EventLoopFuture<Void> { closePromise.futureResult }
    var isActive: Bool { activeFlag.load(ordering: .acquiring) }
    var isWritable: Bool { writableFlag.load(ordering: .acquiring) }
    var isClosed: Bool { state == .closed }
    var _channelCore: any ChannelCore { self }

    // MARK: From the session

    func activate(_ id: UInt32) {
        guard state == .initializing else { return }
        self.id = id
        state = .active
        activeFlag.store(true, ordering: .releasing)
        pipeline.fireChannelActive()
        flushToSession()
        if finWanted { handler?.finishOutput(id) }
        updateWritability()
        if autoRead || readWanted, state == .active { pipeline.read() }
    }

    func receive(_ data: ByteBuffer) {
        guard state != .closed else { return }
        if state == .active, readWanted, inbound.readableBytes == 0 { return deliver(data) }
        // A copy: the slice would keep a whole read of the transport alive.
        inbound.writeImmutableBuffer(data)
        handler?.counters.addBuffered(data.readableBytes)
    }

    func receiveEnd() {
        inputEnded = true
        deliverEnd()
    }

    private func deliver(_ data: ByteBuffer) {
        guard let id, let handler else { return }
        handler.consumed(data.readableBytes, id)
        if !isTouched, handler.isInRead {
            isTouched = true
            handler.touch(self)
        }
        pipeline.fireChannelRead(data)
    }

    /// The end of a read in which this stream got bytes.
    func readComplete() {
        isTouched = false
        guard state == .active else { return }
        readWanted = false
        pipeline.fireChannelReadComplete()
        if autoRead, state == .active, !readWanted { pipeline.read() }
    }

    private func deliverEnd() {
        guard inputEnded, !endDelivered, state == .active, readWanted, inbound.readableBytes == 0 else { return }
        endDelivered = true
        // The pipeline learns that the bytes before are complete.
        if isTouched { pipeline.fireChannelReadComplete() }
        guard state == .active else { return }
        if allowRemoteHalfClosure {
            pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        } else {
            close0(error: ChannelError.eof, mode: .all, promise: nil)
        }
    }

    func sent(_ count: Int) {
        var count = count
        queuedBytes -= count
        handler?.counters.addQueued(-count)
        var done: [EventLoopPromise<Void>] = []
        while let first = unsent.first, first.left <= count {
            count -= first.left
            unsent.removeFirst()
            if let promise = first.promise { done.append(promise) }
        }
        if count > 0, !unsent.isEmpty { unsent[0].left -= count }
        for promise in done { promise.succeed() }
        updateWritability()
    }

    func outputEnded() {
        guard state == .active else { return }
        for promise in outputClosePromises { promise.succeed() }
        outputClosePromises = []
        pipeline.fireUserInboundEventTriggered(ChannelEvent.outputClosed)
    }

    func updateWritability() {
        guard let handler, let id, state == .active else { return }
        if queuedBytes > YamuxLimits.writeHighWaterMark {
            isOverMark = true
        } else if queuedBytes < YamuxLimits.writeLowWaterMark {
            isOverMark = false
        }
        let now = !isOverMark && handler.transportIsWritable && handler.session.sendWindow(of: id) > 0
        guard writableFlag.exchange(now, ordering: .acquiringAndReleasing) != now else { return }
        pipeline.fireChannelWritabilityChanged()
    }

    /// The stream or the session failed: nothing is sent to the other side.
    func fail(_ error: any Error) {
        guard state != .closed else { return }
        tearDown(error, isFailure: true)
    }

    private func tearDown(_ error: any Error, isFailure: Bool) {
        let wasActive = state == .active
        state = .closed
        activeFlag.store(false, ordering: .releasing)
        let promises =
            unsent.compactMap(\.promise) + unflushed.compactMap(\.promise) + outputClosePromises
        (unsent, unflushed, outputClosePromises) = ([], [], [])
        handler?.counters.addQueued(-queuedBytes)
        handler?.counters.addBuffered(-inbound.readableBytes)
        queuedBytes = 0
        inbound = ByteBuffer()
        if let id { handler?.gone(id) }
        handler = nil
        for promise in promises { promise.fail(error) }
        // The error of a failed initializer is not fired into its own pipeline.
        if isFailure, error is YamuxError { pipeline.fireErrorCaught(error) }
        if wasActive { pipeline.fireChannelInactive() }
        eventLoop.assumeIsolated().execute {
            self.removeHandlers(pipeline: self.pipeline)
            self.closePromise.succeed()
        }
    }

    // MARK: From the pipeline

    func write0(_ data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard let buffer = tryUnwrapData(data, as: ByteBuffer.self) else {
            promise?.fail(ChannelError.operationUnsupported)
            return
        }
        guard state != .closed else {
            promise?.fail(ChannelError.ioOnClosedChannel)
            return
        }
        guard !finWanted else {
            promise?.fail(ChannelError.outputClosed)
            return
        }
        queuedBytes += buffer.readableBytes
        handler?.counters.addQueued(buffer.readableBytes)
        unflushed.append((buffer, promise))
        updateWritability()
    }

    func flush0() {
        flushToSession()
        handler?.advance()
    }

    private func flushToSession() {
        guard let handler, let id, state == .active else { return }
        while let (data, promise) = unflushed.popFirst() {
            if data.readableBytes == 0, unsent.isEmpty {
                promise?.succeed()
            } else {
                unsent.append((data.readableBytes, promise))
                handler.write(data, id)
            }
        }
    }

    func read0() {
        guard state != .closed else { return }
        readWanted = true
        guard state == .active else { return }
        if inbound.readableBytes > 0 {
            let data = inbound
            inbound = ByteBuffer()
            handler?.counters.addBuffered(-data.readableBytes)
            let waitsForTransport = handler?.isInRead == true
            deliver(data)
            if !waitsForTransport { readComplete() }
            handler?.advance()
        }
        deliverEnd()
    }

    func close0(error: any Error, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard state != .closed else {
            promise?.fail(ChannelError.alreadyClosed)
            return
        }
        switch mode {
        case .all:
            if let id, state == .active, handler?.close(id) == true {
                // The session took it all.
                let promises = unsent.compactMap(\.promise)
                unsent = []
                for promise in promises { promise.succeed() }
            } else if let id {
                handler?.reset(id)
            }
            handler?.advance()
            if state != .closed { tearDown(error, isFailure: false) }
            promise?.succeed()
        case .output:
            guard !finWanted else {
                promise?.fail(ChannelError.outputClosed)
                return
            }
            finWanted = true
            if let promise { outputClosePromises.append(promise) }
            flushToSession()
            if state == .active, let id { handler?.finishOutput(id) }
            handler?.advance()
        case .input:
            promise?.fail(ChannelError.operationUnsupported)
        }
    }

    func triggerUserOutboundEvent0(_ event: Any, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }

    func localAddress0() throws -> SocketAddress {
        guard let localAddress else { throw ChannelError.unknownLocalAddress }
        return localAddress
    }

    func remoteAddress0() throws -> SocketAddress {
        guard let remoteAddress else { throw ChannelError.operationUnsupported }
        return remoteAddress
    }

    func register0(promise: EventLoopPromise<Void>?) { promise?.fail(ChannelError.operationUnsupported) }
    func bind0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }
    func connect0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }
    func channelRead0(_ data: NIOAny) {}
    func errorCaught0(error: any Error) {}
}

// MARK: Options

extension YamuxStreamChannel {
    private struct SynchronousOptions: NIOSynchronousChannelOptions {
        let channel: YamuxStreamChannel

        func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) throws {
            switch (option, value) {
            case (is ChannelOptions.Types.AutoReadOption, let value as Bool):
                let old = channel.autoRead
                channel.autoRead = value
                if value, !old, channel.state == .active { channel.pipeline.read() }
            case (is ChannelOptions.Types.AllowRemoteHalfClosureOption, let value as Bool):
                channel.allowRemoteHalfClosure = value
            default: throw ChannelError.operationUnsupported
            }
        }

        func getOption<Option: ChannelOption>(_ option: Option) throws -> Option.Value {
            let value: Bool
            switch option {
            case is ChannelOptions.Types.AutoReadOption: value = channel.autoRead
            case is ChannelOptions.Types.AllowRemoteHalfClosureOption: value = channel.allowRemoteHalfClosure
            default: throw ChannelError.operationUnsupported
            }
            guard let value = value as? Option.Value else { throw ChannelError.operationUnsupported }
            return value
        }
    }

    var syncOptions: (any NIOSynchronousChannelOptions)? { SynchronousOptions(channel: self) }

    func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> EventLoopFuture<Void> {
        guard eventLoop.inEventLoop else {
            return eventLoop.flatSubmit { self.setOption(option, value: value) }
        }
        return eventLoop.makeCompletedFuture { try SynchronousOptions(channel: self).setOption(option, value: value) }
    }

    func getOption<Option: ChannelOption>(_ option: Option) -> EventLoopFuture<Option.Value> {
        guard eventLoop.inEventLoop else { return eventLoop.flatSubmit { self.getOption(option) } }
        return eventLoop.makeCompletedFuture { try SynchronousOptions(channel: self).getOption(option) }
    }
}
