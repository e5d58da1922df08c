import AgentCore
import Glibc
import NIOCore
import NIOPosix
import SwiftProtobuf

/// A client on one connection. Calls made at the same time run one after the other.
///
/// Cancelling the task of a call cancels the call according to the client's ``CancelStyle``; with the default the
/// connection is closed, as existing clients do.
public final class RPCClient: Sendable {
    private let channel: any Channel
    private let handler: NIOLoopBound<RPCClientHandler>

    private init(channel: any Channel, handler: NIOLoopBound<RPCClientHandler>) {
        self.channel = channel
        self.handler = handler
    }

    /// Makes a client of a channel that carries bytes and has no handler that consumes them yet.
    public static func attach(
        to channel: any Channel, cancelStyle: CancelStyle = .closeTransport
    ) -> EventLoopFuture<RPCClient> {
        channel.eventLoop.submit {
            let handler = RPCClientHandler(cancelStyle: cancelStyle)
            try channel.pipeline.syncOperations.addHandler(handler)
            return RPCClient(channel: channel, handler: NIOLoopBound(handler, eventLoop: channel.eventLoop))
        }
    }

    /// Connects to a server's unix socket, which this user or root must serve: in a shared directory another user
    /// may have put theirs in its place.
    public static func connect(
        unixPath: String, group: any EventLoopGroup, timeout: TimeAmount = .seconds(10),
        cancelStyle: CancelStyle = .closeTransport
    ) async throws -> RPCClient {
        let deadline = NIODeadline.now() + timeout
        var pause = TimeAmount.milliseconds(2)
        while true {
            do {
                return try await connectOnce(unixPath, group, timeout, cancelStyle)
            } catch let error as IOError where error.errnoCode == EAGAIN && NIODeadline.now() + pause < deadline {
                // The socket's backlog is full.
                try await group.any().scheduleTask(in: pause) {}.futureResult.get()
                try Task.checkCancellation()
                pause = min(pause * 2, .milliseconds(100))
            } catch let error as IOError {
                throw DRPCError(.closed, "cannot connect to \(unixPath): \(errnoText(error.errnoCode))", cause: error)
            } catch let error as DRPCError {
                throw error
            } catch {
                throw DRPCError(.closed, "cannot connect to \(unixPath)", cause: error)
            }
        }
    }

    private static func connectOnce(
        _ unixPath: String, _ group: any EventLoopGroup, _ timeout: TimeAmount, _ cancelStyle: CancelStyle
    ) async throws -> RPCClient {
        let loop = group.any()
        let client = loop.makePromise(of: RPCClient.self)
        do {
            let channel = try await ClientBootstrap(group: loop)
                .connectTimeout(timeout)
                // A reply is one read; a second one would only cost a system call.
                .channelOption(.maxMessagesPerRead, value: 1)
                .channelInitializer { channel in
                    let attached = attach(to: channel, cancelStyle: cancelStyle)
                    attached.cascade(to: client)
                    return attached.map { _ in }
                }
                .connect(unixDomainSocketPath: unixPath).get()
            let server = try? await PeerCredentials.of(channel).get()
            // When the server has closed already, the first call reports it.
            if channel.isActive, server?.mayUse(socketOf: geteuid()) != true {
                channel.close(promise: nil)
                throw DRPCError(.closed, PeerCredentials.refusal(of: server, at: unixPath))
            }
        } catch {
            client.fail(error)
            throw error
        }
        return try await client.futureResult.get()
    }

    /// The loop that the connection lives on.
    public var eventLoop: any EventLoop { channel.eventLoop }

    /// Completes when the connection is closed.
    public var closed: EventLoopFuture<Void> { channel.closeFuture }

    /// Closes the connection; what runs on it fails.
    public func close() async {
        onLoop { $0.close(DRPCError(.closed, "the connection was closed")) }
        try? await channel.closeFuture.get()
    }

    /// Closes the connection without waiting for its end.
    public func closeSoon() { onLoop { $0.close(DRPCError(.closed, "the connection was closed")) } }

    /// Makes a unary call.
    public func unary<Request, Response>(
        _ method: Method<Request, Response>, _ request: Request, metadata: [String: String] = [:]
    ) async throws -> Response {
        let bytes = try Coding.encode(request)
        let token = CallToken()
        let reply: ByteBuffer = try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let call = RPCClientHandler.Call(
                    token: token, rpc: method.name, kind: method.kind, metadata: metadata, request: bytes,
                    delivery: .single(continuation))
                onLoop { $0.start(call) }
            }
        } onCancel: {
            giveUp(token)
        }
        return try Coding.decode(Response.self, reply)
    }

    /// Makes a call with one request and many responses. When the body returns or throws before
    /// the last response, the call is cancelled.
    public func withServerStream<Request, Response, Result>(
        _ method: Method<Request, Response>, _ request: Request, metadata: [String: String] = [:],
        _ body: (ResponseStream<Response>) async throws -> Result
    ) async throws -> Result {
        let bytes = try Coding.encode(request)
        return try await withStream(method.name, method.kind, metadata, bytes) { stream in
            try await body(ResponseStream(stream: stream))
        }
    }

    /// Makes a call with many requests, which the body sends, and one response.
    public func withClientStream<Request, Response>(
        _ method: Method<Request, Response>, metadata: [String: String] = [:],
        _ body: (RequestWriter<Request>) async throws -> Void
    ) async throws -> Response {
        try await withStream(method.name, method.kind, metadata, nil) { stream in
            do {
                try await body(RequestWriter(stream: stream))
                try await stream.closeSend()
            } catch let error as DRPCError where error.code == .cancelled {
                // The server may answer before it has heard everything; its answer counts.
            }
            guard let reply = try await stream.receive() else { throw DRPCError.endOfStream }
            return try Coding.decode(Response.self, reply)
        }
    }

    /// Makes a call with many messages each way. When the body returns or throws before the last
    /// response, the call is cancelled.
    public func withBidirectional<Request, Response, Result>(
        _ method: Method<Request, Response>, metadata: [String: String] = [:],
        _ body: (RequestWriter<Request>, ResponseStream<Response>) async throws -> Result
    ) async throws -> Result {
        try await withStream(method.name, method.kind, metadata, nil) { stream in
            let result = try await body(RequestWriter(stream: stream), ResponseStream(stream: stream))
            // A server that only half-closed still waits for our side.
            try? await stream.closeSend()
            return result
        }
    }

    private func withStream<Result>(
        _ rpc: String, _ kind: MethodKind, _ metadata: [String: String], _ request: ByteBuffer?,
        _ body: (ClientStream) async throws -> Result
    ) async throws -> Result {
        let token = CallToken()
        let pipe = MessagePipe(loop: eventLoop, hasRoom: { [self] in onLoop { $0.resume() } })
        // Cancelling the call fails everything that waits on its pipe, so the body needs no handler.
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { opened in
                let call = RPCClientHandler.Call(
                    token: token, rpc: rpc, kind: kind, metadata: metadata, request: request,
                    delivery: .stream(pipe, opened: opened))
                onLoop { $0.start(call) }
            }
            defer { giveUp(token) }
            return try await body(ClientStream(client: self, token: token, pipe: pipe))
        } onCancel: {
            giveUp(token)
        }
    }

    fileprivate func giveUp(_ token: CallToken) {
        token.cancel()
        onLoop { $0.giveUp(token) }
    }

    fileprivate func send(_ data: ByteBuffer, _ token: CallToken) async throws {
        try await submit { try $0.send(data, token) }
    }

    fileprivate func closeSend(_ token: CallToken) async throws {
        try await submit { $0.closeSend(token) }
    }

    private func submit(_ body: @escaping @Sendable (RPCClientHandler) throws -> Void) async throws {
        let handler = handler
        if eventLoop.inEventLoop {
            try body(handler.value)
        } else {
            try await eventLoop.submit { try body(handler.value) }.get()
        }
    }

    private func onLoop(_ body: @escaping @Sendable (RPCClientHandler) -> Void) {
        let handler = handler
        if eventLoop.inEventLoop {
            body(handler.value)
        } else {
            eventLoop.execute { body(handler.value) }
        }
    }
}

/// One streaming call in bytes.
struct ClientStream: Sendable {
    let client: RPCClient
    let token: CallToken
    let pipe: MessagePipe

    func send(_ data: ByteBuffer) async throws {
        try await pipe.waitWritable()
        try await client.send(data, token)
    }

    func closeSend() async throws { try await client.closeSend(token) }

    func receive() async throws -> ByteBuffer? { try await pipe.next() }
}

/// Sends the requests of a streaming call.
public struct RequestWriter<Request: Message>: Sendable {
    let stream: ClientStream

    /// Sends one request. Waits while the server doesn't read what was sent before.
    public func send(_ request: Request) async throws { try await stream.send(Coding.encode(request)) }

    /// Says that no more requests follow.
    public func finish() async throws { try await stream.closeSend() }
}

/// The responses of a streaming call, in order. For one task at a time.
public struct ResponseStream<Response: Message>: AsyncSequence, Sendable {
    public typealias Element = Response
    let stream: ClientStream

    /// Reads from the call; all iterators of one call share its position.
    public struct AsyncIterator: AsyncIteratorProtocol {
        let stream: ClientStream
        public mutating func next() async throws -> Response? {
            try await stream.receive().map { try Coding.decode(Response.self, $0) }
        }
    }

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(stream: stream) }
}
