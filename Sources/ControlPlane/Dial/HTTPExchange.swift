import AgentCore
import AsyncHTTPClient
import NIOCore
import NIOHTTP1

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

    private typealias Chunk = (bytes: ByteBuffer, taken: EventLoopPromise<Void>)

    private struct State: Sendable {
        var head: HTTPResponseHead?
        /// At most one: the next is read when this one's promise is completed.
        var chunk: Chunk?
        var end: Result<Void, any Error>?
        var isAbandoned = false
    }

    private let state = Watched(State())

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
        let (ended, chunk) = state.update { state in
            state.isAbandoned = true
            return (state.end != nil, state.chunk.take())
        }
        if !ended { task.cancel() }
        chunk?.taken.succeed()
    }

    // MARK: The reader

    private func head() async throws -> HTTPResponseHead {
        try await state.takeIgnoringCancellation { state -> Result<HTTPResponseHead, any Error>? in
            if let head = state.head { return .success(head) }
            switch state.end {
            case .failure(let error): return .failure(error)
            case .success: return .failure(HTTPClientError.remoteConnectionClosed)
            case nil: return nil
            }
        }.get()
    }

    private func chunk() async throws -> ByteBuffer? {
        let chunk = try await state.takeIgnoringCancellation { state -> Result<Chunk?, any Error>? in
            if let chunk = state.chunk.take() { return .success(chunk) }
            return state.end.map { $0.map { nil } }
        }.get()
        chunk?.taken.succeed()
        return chunk?.bytes
    }

    // MARK: The client, on its event loop

    func didReceiveHead(task: HTTPClient.Task<Void>, _ head: HTTPResponseHead) -> EventLoopFuture<Void> {
        state.update { $0.head = head }
        return task.eventLoop.makeSucceededVoidFuture()
    }

    func didReceiveBodyPart(task: HTTPClient.Task<Void>, _ buffer: ByteBuffer) -> EventLoopFuture<Void> {
        let taken = task.eventLoop.makePromise(of: Void.self)
        var isAbandoned = false
        state.update { state in
            isAbandoned = state.isAbandoned
            if !isAbandoned { state.chunk = (buffer, taken) }
        }
        if isAbandoned { taken.succeed() }
        return taken.futureResult
    }

    func didReceiveError(task: HTTPClient.Task<Void>, _ error: any Error) { state.update { $0.end = .failure(error) } }

    func didFinishRequest(task: HTTPClient.Task<Void>) { state.update { $0.end = .success(()) } }
}
