import AsyncHTTPClient
import NIOCore
import NIOHTTP1
import Synchronization

/// One request and its answer, which a task reads as it comes.
///
/// AsyncHTTPClient's own `async` interface starts a task in the runtime's global pool for each
/// request, and that pool wakes up once a second for as long as the process lives.
final class HTTPExchange: HTTPClientResponseDelegate {
    typealias Response = Void

    /// The answer's body. To be read once.
    struct Body: AsyncSequence, AsyncIteratorProtocol {
        fileprivate let exchange: HTTPExchange
        func makeAsyncIterator() -> Body { self }
        func next() async throws -> ByteBuffer? { try await exchange.chunk() }
    }

    private struct State {
        var head: HTTPResponseHead?
        /// At most one: the next is read when this one's promise is completed.
        var chunk: (bytes: ByteBuffer, taken: EventLoopPromise<Void>)?
        var end: Result<Void, any Error>?
        /// Grows with each change of these.
        var changes = 0
        /// The reader, while it waits for a change.
        var reader: CheckedContinuation<Void, Never>?
        var isAbandoned = false
    }

    private let state = Mutex(State())

    private init() {}

    /// Sends a request. Cancelling the calling task ends the exchange.
    /// - Parameters:
    ///   - deadline: for everything, to the end of `read`.
    ///   - read: gets the answer. What it leaves of the body is not read, and the connection closed.
    /// - Throws: what `read` throws; `HTTPClientError` and what the connection fails with.
    static func perform<T>(
        _ request: HTTPClient.Request, on client: HTTPClient, deadline: NIODeadline,
        _ read: (_ head: HTTPResponseHead, _ body: Body) async throws -> T
    ) async throws -> T {
        let exchange = HTTPExchange()
        let task = client.execute(request: request, delegate: exchange, eventLoop: .indifferent, deadline: deadline)
        defer { exchange.abandon(task) }
        return try await withTaskCancellationHandler {
            try await read(exchange.head(), Body(exchange: exchange))
        } onCancel: {
            task.cancel()
        }
    }

    private func abandon(_ task: HTTPClient.Task<Void>) {
        let (ended, chunk) = state.withLock { state in
            state.isAbandoned = true
            return (state.end != nil, state.chunk.take())
        }
        if !ended { task.cancel() }
        chunk?.taken.succeed()
    }

    // MARK: The reader

    private func head() async throws -> HTTPResponseHead {
        try await first { state in
            if let head = state.head { return .success(head) }
            switch state.end {
            case .failure(let error): return .failure(error)
            case .success: return .failure(HTTPClientError.remoteConnectionClosed)
            case nil: return nil
            }
        }
    }

    private func chunk() async throws -> ByteBuffer? {
        let chunk: (bytes: ByteBuffer, taken: EventLoopPromise<Void>)? = try await first { state in
            if let chunk = state.chunk.take() { return .success(chunk) }
            return state.end.map { $0.map { nil } }
        }
        chunk?.taken.succeed()
        return chunk?.bytes
    }

    /// Waits until `find` finds something.
    private func first<T>(_ find: (inout State) -> Result<T, any Error>?) async throws -> T {
        while true {
            var found: Result<T, any Error>?
            let seen = state.withLock { state in
                found = find(&state)
                return state.changes
            }
            if let found { return try found.get() }
            await withCheckedContinuation { continuation in
                let isStale = state.withLock { state in
                    guard state.changes == seen else { return true }
                    state.reader = continuation
                    return false
                }
                if isStale { continuation.resume() }
            }
        }
    }

    // MARK: The client, on its event loop

    private func tell(_ change: (inout State) -> Void) {
        state.withLock { state in
            change(&state)
            state.changes += 1
            return state.reader.take()
        }?.resume()
    }

    func didReceiveHead(task: HTTPClient.Task<Void>, _ head: HTTPResponseHead) -> EventLoopFuture<Void> {
        tell { $0.head = head }
        return task.eventLoop.makeSucceededVoidFuture()
    }

    func didReceiveBodyPart(task: HTTPClient.Task<Void>, _ buffer: ByteBuffer) -> EventLoopFuture<Void> {
        let taken = task.eventLoop.makePromise(of: Void.self)
        var isAbandoned = false
        tell { state in
            isAbandoned = state.isAbandoned
            if !isAbandoned { state.chunk = (buffer, taken) }
        }
        if isAbandoned { taken.succeed() }
        return taken.futureResult
    }

    func didReceiveError(task: HTTPClient.Task<Void>, _ error: any Error) { tell { $0.end = .failure(error) } }

    func didFinishRequest(task: HTTPClient.Task<Void>) { tell { $0.end = .success(()) } }
}
