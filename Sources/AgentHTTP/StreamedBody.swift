import Hummingbird
import NIOCore
import NIOHTTP1
import Synchronization

/// The body of a request whose route runs while it arrives: what has come is kept until the route takes it, and beyond
/// ``HTTPLimits/streamedBytes`` the connection reads no further.
final class StreamedBody: AsyncSequence, Sendable {
    typealias Element = ByteBuffer

    private struct State {
        var arrived = ByteBuffer()
        /// nil while more may come.
        var end: Result<Void, any Error>?
        var waiter: CheckedContinuation<ByteBuffer?, any Error>?
        /// The route has asked for bytes.
        var isWanted = false
    }

    private let state = Mutex(State())
    /// Called, on the connection's event loop, when the route asks for bytes that have yet to come.
    private let onDemand: @Sendable () -> Void

    init(onDemand: @escaping @Sendable () -> Void) { self.onDemand = onDemand }

    /// Whether the connection should read on.
    var wantsMore: Bool {
        state.withLock { $0.end == nil && $0.isWanted && $0.arrived.readableBytes < HTTPLimits.streamedBytes }
    }

    func append(_ bytes: ByteBuffer) {
        let waiter = state.withLock { state -> CheckedContinuation<ByteBuffer?, any Error>? in
            guard state.end == nil else { return nil }
            if let waiter = state.waiter {
                state.waiter = nil
                return waiter
            }
            if state.arrived.readableBytes == 0 {
                state.arrived = bytes
            } else {
                state.arrived.writeImmutableBuffer(bytes)
            }
            return nil
        }
        waiter?.resume(returning: bytes)
    }

    /// No more bytes come. What has arrived is still handed out after the end, not after an error.
    func end(_ result: Result<Void, any Error>) {
        let waiter = state.withLock { state -> CheckedContinuation<ByteBuffer?, any Error>? in
            guard state.end == nil else { return nil }
            state.end = result
            if case .failure = result { state.arrived = ByteBuffer() }
            defer { state.waiter = nil }
            return state.waiter
        }
        waiter?.resume(with: result.map { nil })
    }

    struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let body: StreamedBody

        mutating func next() async throws -> ByteBuffer? { try await body.next() }
    }

    func makeAsyncIterator() -> AsyncIterator { AsyncIterator(body: self) }

    /// All bytes that have arrived since, or the next that do; nil at the end.
    private func next() async throws -> ByteBuffer? {
        try await withCheckedThrowingContinuation { continuation in
            let (bytes, end, wasFull) = state.withLock { state -> (ByteBuffer?, Result<Void, any Error>?, Bool) in
                state.isWanted = true
                if state.arrived.readableBytes > 0 {
                    defer { state.arrived = ByteBuffer() }
                    return (state.arrived, nil, state.end == nil)
                }
                if state.end == nil { state.waiter = continuation }
                return (nil, state.end, state.end == nil)
            }
            if let bytes {
                continuation.resume(returning: bytes)
            } else if let end {
                continuation.resume(with: end.map { nil })
            }
            if wasFull { onDemand() }
        }
    }
}

// The connection's side of it.
extension HTTPConnectionHandler {
    /// Runs the route, which takes the body as it comes.
    func stream(_ sendContinue: Bool) {
        guard let loop = context?.eventLoop else { return }
        continueIsDue = sendContinue
        let handler = NIOLoopBound(self, eventLoop: loop)
        let body = StreamedBody { loop.execute { handler.value.bodyWanted() } }
        streamed = body
        dispatch(RequestBody(asyncSequence: body))
    }

    func bodyWanted() {
        guard state.phase == .streaming, let streamed else { return }
        if continueIsDue { writeContinue() }
        watchBody(streamed)
        readIfWanted()
    }

    /// The client has time for the next bytes while they are waited for, not while the route is busy.
    func watchBody(_ body: StreamedBody) {
        if body.wantsMore { start(.body) } else { timer.stop() }
    }

    func writeContinue() {
        continueIsDue = false
        let head = HTTPResponseHead(version: .http1_1, status: .continue)
        context?.writeAndFlush(wrapOutboundOut(.head(head)), promise: nil)
    }
}
