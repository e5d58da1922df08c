import AgentCore
import AgentTestSupport
import Glibc
import Hummingbird
import Logging
import NIOCore
import NIOPosix

@testable import AgentHTTP

/// A server in this process with routes that only tests need.
final class ServerFixture {
    let directory: TemporaryDirectory
    let socket: String
    let server: HTTPServer
    let metrics = MetricsRegistry()
    let echoClosed = AsyncEvent()
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    init(limits: HTTPLimits = HTTPLimits(), _ more: (AgentRoutes) -> Void = { _ in }) async throws {
        directory = try TemporaryDirectory()
        socket = "\(directory.path)/s"
        let routes = AgentRoutes()
        let closed = echoClosed
        routes.webSocket("/echo", changes: false) { request, context in
            try WebSocketUpgrade.respond(to: request, context: context) { webSocket in
                while let message = await webSocket.next() {
                    switch message {
                    case .text(let text): try? await webSocket.send(text)
                    case .binary(let data): try? await webSocket.send(data)
                    }
                }
                closed.signal()
            }
        }
        routes.get("/plain") { _, _ in .text(ByteBuffer(string: "plain")) }
        routes.post("/body") { request, _ in
            let body = try await request.body.collect(upTo: .max)
            return .text(ByteBuffer(string: "\(body.readableBytes)"))
        }
        routes.get("/fail") { _, _ in throw CoreError(.invalid, "secret cause") }
        more(routes)
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let service = HTTPService(routes: routes, metrics: metrics, logger: logger, limits: limits)
        server = HTTPServer(group: group, metrics: metrics, limits: limits, logger: logger)
        server.start(service)
        let policy = AccessPolicy(tokenRule: .none, ownUID: geteuid())
        try await server.serve(try UnixListener.bind(path: socket), policy: policy)
    }

    /// Stops the server on its own loop: a test that blocks in a read meanwhile may hold the last
    /// cooperative thread.
    func beginStop() -> Task<Void, Never> {
        Task(executorPreference: EventLoopTaskExecutor(group.next())) { [server] in await server.stop() }
    }

    func connect() throws -> RawConnection { try RawConnection(unix: socket) }
}

/// Something that happens once and can be waited for.
final class AsyncEvent: Sendable {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation
    init() { (stream, continuation) = AsyncStream.makeStream() }
    func signal() { continuation.yield() }
    func wait() async { for await _ in stream { return } }
}
