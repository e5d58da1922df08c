import DequeModule
import NIOCore
import Synchronization

/// Between the event loop and the code of one streaming call: messages that wait for their reader,
/// and whether the connection takes more.
///
/// One task reads at a time and any number may wait to write.
final class MessagePipe: Sendable {
    private struct State {
        var queue: Deque<ByteBuffer> = []
        var queuedBytes = 0
        /// Set once: no more messages come; with an error when the call failed.
        var inputEnd: Result<Void, DRPCError>?
        var reader: CheckedContinuation<ByteBuffer?, any Error>?
        /// Set once: nothing can be written any more.
        var outputEnd: DRPCError?
        var writable = true
        var writers: [UInt64: CheckedContinuation<Void, any Error>] = [:]
        var nextWriter: UInt64 = 0

        var isFull: Bool {
            queue.count >= DRPCLimits.queuedMessages || queuedBytes >= DRPCLimits.queuedMessageBytes
        }
    }

    private let state = Mutex(State())
    /// Called, from any thread, when a full queue has room again.
    private let hasRoom: @Sendable () -> Void
    private let loop: any EventLoop
    private let sentInARow = Atomic<Int>(0)

    init(loop: any EventLoop, hasRoom: @escaping @Sendable () -> Void) {
        self.loop = loop
        self.hasRoom = hasRoom
    }

    /// Whether the connection should not be read until ``hasRoom`` was called.
    var isFull: Bool { state.withLock { $0.isFull } }

    /// Adds a message that came.
    func push(_ data: ByteBuffer) {
        let reader = state.withLock { state -> CheckedContinuation<ByteBuffer?, any Error>? in
            guard state.inputEnd == nil else { return nil }
            if let reader = state.reader.take() { return reader }
            // A copy of its own: a slice would keep the whole read buffer alive while it waits.
            state.queue.append(ByteBuffer(bytes: data.readableBytesView))
            state.queuedBytes += data.readableBytes
            return nil
        }
        reader?.resume(returning: data)
    }

    /// Ends the input: with an error the reader gets it after what it has not read yet is dropped.
    func endInput(_ error: DRPCError? = nil) {
        let reader = state.withLock { state -> CheckedContinuation<ByteBuffer?, any Error>? in
            guard state.inputEnd == nil else { return nil }
            if let error {
                state.inputEnd = .failure(error)
                state.queue.removeAll()
                state.queuedBytes = 0
            } else {
                state.inputEnd = .success(())
            }
            return state.reader.take()
        }
        if let error { reader?.resume(throwing: error) } else { reader?.resume(returning: nil) }
    }

    /// Ends both directions.
    func end(_ error: DRPCError) {
        endInput(error)
        endOutput(error)
    }

    /// Makes everything that waits to write fail, now and later.
    func endOutput(_ error: DRPCError) {
        let writers = state.withLock { state in
            if state.outputEnd == nil { state.outputEnd = error }
            defer { state.writers.removeAll() }
            return state.writers
        }
        for (_, writer) in writers { writer.resume(throwing: error) }
    }

    /// Sets whether the connection is writable.
    func setWritable(_ writable: Bool) {
        let writers = state.withLock { state -> [UInt64: CheckedContinuation<Void, any Error>] in
            state.writable = writable
            guard writable else { return [:] }
            defer { state.writers.removeAll() }
            return state.writers
        }
        for (_, writer) in writers { writer.resume() }
    }

    /// The next message, or nil at the end. Waits for it; cancelling the task ends the wait.
    func next() async throws -> ByteBuffer? {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                read(continuation)
            }
        } onCancel: {
            state.withLock { $0.reader.take() }?.resume(throwing: CancellationError())
        }
    }

    private enum Read {
        case wait
        case done(Result<ByteBuffer?, any Error>, room: Bool)
    }

    private func read(_ continuation: CheckedContinuation<ByteBuffer?, any Error>) {
        let read = state.withLock { state -> Read in
            let wasFull = state.isFull
            if let data = state.queue.popFirst() {
                state.queuedBytes -= data.readableBytes
                return .done(.success(data), room: wasFull && !state.isFull)
            }
            if let end = state.inputEnd { return .done(end.map { nil }.mapError { $0 }, room: false) }
            // Checked under the lock: an earlier cancellation found no reader to resume.
            if Task.isCancelled { return .done(.failure(CancellationError()), room: false) }
            guard state.reader == nil else {
                return .done(.failure(DRPCError(.limit, "a task reads this stream already")), room: false)
            }
            state.reader = continuation
            return .wait
        }
        guard case .done(let result, let room) = read else { return }
        continuation.resume(with: result)
        if room { hasRoom() }
    }

    /// Waits until the connection takes more bytes.
    func waitWritable() async throws {
        try await giveWay()
        let id = state.withLock { state -> UInt64 in
            state.nextWriter += 1
            return state.nextWriter
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result = state.withLock { state -> Result<Void, any Error>? in
                    if let error = state.outputEnd { return .failure(error) }
                    if Task.isCancelled { return .failure(CancellationError()) }
                    if state.writable { return .success(()) }
                    state.writers[id] = continuation
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            state.withLock { $0.writers.removeValue(forKey: id) }?.resume(throwing: CancellationError())
        }
    }

    /// Lets the event loop poll its sockets after some messages. It runs tasks for as long as there are any, so that a
    /// sender on the loop whose peer reads as fast as it writes would keep it from reading. Only a timer that is not due
    /// yet makes it poll.
    private func giveWay() async throws {
        guard loop.inEventLoop else { return }
        let (_, count) = sentInARow.wrappingAdd(1, ordering: .relaxed)
        guard count >= DRPCLimits.messagesInARow else { return }
        sentInARow.store(0, ordering: .relaxed)
        try await loop.scheduleTask(in: .microseconds(50)) {}.futureResult.get()
    }
}
