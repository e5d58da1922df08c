import NIOCore
import SwiftProtobuf

/// What a handler knows of its call besides the messages.
public struct CallContext: Sendable {
    /// The name that was invoked.
    public let rpc: String
    /// The metadata that the client sent.
    public let metadata: [String: String]
}

/// How a router runs an rpc.
public enum ServerHandler: Sendable {
    /// Runs within the read that brought the request; must not block.
    case immediate(@Sendable (ByteBuffer, CallContext) throws -> ByteBuffer)
    /// Runs as a task on the connection's event loop. Returns the response where the method has
    /// a single one.
    case task(@Sendable (ServerStream, CallContext) async throws -> ByteBuffer?)
}

/// The rpcs that a server offers, by name. Each is registered with its description, so request and
/// response types are checked by the compiler.
public struct Router: Sendable {
    var methods: [String: ServerConnection<ServerHandler>.Entry] = [:]

    public init() {}

    /// Names of all rpcs, sorted.
    public var names: [String] { methods.keys.sorted() }

    /// Registers a unary rpc whose handler needs no waiting: it runs at once, without a task.
    public mutating func immediate<Request, Response>(
        _ method: Method<Request, Response>,
        _ handler: @escaping @Sendable (Request, CallContext) throws -> Response
    ) {
        add(
            method, .unary,
            .immediate { request, context in
                try Coding.encode(handler(Coding.decode(Request.self, request), context))
            })
    }

    /// Registers a unary rpc.
    public mutating func unary<Request, Response>(
        _ method: Method<Request, Response>,
        _ handler: @escaping @Sendable (Request, CallContext) async throws -> Response
    ) {
        add(
            method, .unary,
            .task { stream, context in
                let request = try Coding.decode(Request.self, await stream.requireRequest())
                return try Coding.encode(await handler(request, context))
            })
    }

    /// Registers an rpc with one request and many responses.
    public mutating func serverStreaming<Request, Response>(
        _ method: Method<Request, Response>,
        _ handler: @escaping @Sendable (Request, ResponseWriter<Response>, CallContext) async throws -> Void
    ) {
        add(
            method, .serverStreaming,
            .task { stream, context in
                let request = try Coding.decode(Request.self, await stream.requireRequest())
                try await handler(request, ResponseWriter(stream: stream), context)
                return nil
            })
    }

    /// Registers an rpc with many requests and one response.
    public mutating func clientStreaming<Request, Response>(
        _ method: Method<Request, Response>,
        _ handler: @escaping @Sendable (RequestStream<Request>, CallContext) async throws -> Response
    ) {
        add(
            method, .clientStreaming,
            .task { stream, context in
                try Coding.encode(await handler(RequestStream(stream: stream), context))
            })
    }

    /// Registers an rpc with many requests and many responses.
    public mutating func bidirectional<Request, Response>(
        _ method: Method<Request, Response>,
        _ handler:
            @escaping @Sendable (RequestStream<Request>, ResponseWriter<Response>, CallContext) async throws ->
            Void
    ) {
        add(
            method, .bidirectional,
            .task { stream, context in
                try await handler(RequestStream(stream: stream), ResponseWriter(stream: stream), context)
                return nil
            })
    }

    private mutating func add<Request, Response>(
        _ method: Method<Request, Response>, _ kind: MethodKind, _ handler: ServerHandler
    ) {
        precondition(method.kind == kind, "\(method.name) is described as \(method.kind)")
        methods[method.name] = .init(kind: kind, handler: handler)
    }
}

/// The requests of a streaming call, in order. For one task at a time.
public struct RequestStream<Request: Message>: AsyncSequence, Sendable {
    public typealias Element = Request
    let stream: ServerStream

    /// Reads from the call; all iterators of one call share its position.
    public struct AsyncIterator: AsyncIteratorProtocol {
        let stream: ServerStream
        public mutating func next() async throws -> Request? {
            try await stream.receive().map { try Coding.decode(Request.self, $0) }
        }
    }

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(stream: stream) }
}

/// Sends the responses of a streaming call.
public struct ResponseWriter<Response: Message>: Sendable {
    let stream: ServerStream

    /// Sends one response. Waits while the client doesn't read what was sent before.
    public func send(_ response: Response) async throws {
        try await stream.send(Coding.encode(response))
    }
}
