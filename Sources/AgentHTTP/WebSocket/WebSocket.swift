import AgentCore
import HTTPTypes
import Hummingbird
import NIOConcurrencyHelpers
import NIOCore
import NIOWebSocket
import WebSockets

/// One open WebSocket, for the route that asked for it.
///
/// Handles pings, pongs, close frames, fragmentation and the size limit (docs/contracts/http-api.md#websockets). One
/// task may read, any number may send.
public final class WebSocket: Sendable {
    private let handler: NIOLoopBound<WebSocketHandler>
    private let loop: any EventLoop
    private let closed: Promise<Void>

    /// On the loop.
    init(handler: NIOLoopBound<WebSocketHandler>, loop: any EventLoop) {
        self.handler = handler
        self.loop = loop
        closed = handler.value.closed
    }

    /// The next whole message; nil once the peer, the connection or a shutdown ended it, or when
    /// the calling task is cancelled. Not reading stops the peer after a few messages.
    public func next() async -> WebSocketMessage? {
        // The cancellation may come before or after the loop gets the call.
        let cancelled = NIOLockedValueBox(false)
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                onLoop { $0.next(continuation) { cancelled.withLockedValue { $0 } } }
            }
        } onCancel: {
            cancelled.withLockedValue { $0 = true }
            onLoop { $0.cancelNext() }
        }
    }

    /// Returns when the connection is closed, or the calling task is cancelled.
    public func waitUntilClosed() async { try? await closed.valueUnlessCancelled() }

    /// Sends a text message; returns when the connection can take more.
    public func send(_ text: String) async throws { try await send(.text, [ByteBuffer(string: text)]) }

    /// Sends a text message of several parts, without copying them; returns when the connection can take more.
    public func send(text parts: [ByteBuffer]) async throws { try await send(.text, parts) }

    /// Sends a binary message; returns when the connection can take more.
    public func send(_ data: ByteBuffer) async throws { try await send(.binary, [data]) }

    /// Closes after everything that was sent before. A reason that does not fit into a close frame is cut.
    public func close(_ code: WebSocketCloseCode, reason: String = "") async {
        onLoop { $0.close(code, reason: reason) }
    }

    private func send(_ opcode: WebSocketFrameHeader.Opcode, _ parts: [ByteBuffer]) async throws {
        try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
            onLoop { handler in
                do {
                    if try handler.send(opcode, parts) {
                        continuation.resume()
                    } else {
                        handler.waitWritable(continuation)
                    }
                } catch {
                    continuation.resume(throwing: error)
                }
            }
        }
    }

    private func onLoop(_ body: @escaping @Sendable (WebSocketHandler) -> Void) {
        if loop.inEventLoop { body(handler.value) } else { loop.execute { body(self.handler.value) } }
    }
}

/// The opening handshake (RFC 6455 section 4.2), as a route's answer.
public enum WebSocketUpgrade {
    private static let key = HTTPField.Name("Sec-WebSocket-Key")
    private static let version = HTTPField.Name("Sec-WebSocket-Version")
    private static let accept = HTTPField.Name("Sec-WebSocket-Accept")

    private static let subprotocol = HTTPField.Name("Sec-WebSocket-Protocol")

    /// Answers 101 and runs the closure with the open WebSocket; when it returns, the WebSocket is
    /// closed with 1000. Middleware and errors of the route stay ordinary HTTP until then.
    /// - Parameter maximumMessage: bytes of one inbound message; nil is unlimited.
    /// - Throws: ``HTTPProblem`` 426 when the request asks for no WebSocket, 400 for a bad handshake.
    public static func respond(
        to request: Request, context: AgentRequestContext,
        maximumMessage: Int? = HTTPLimits.webSocketMessageBytes,
        _ run: @escaping @Sendable (WebSocket) async -> Void
    ) throws -> Response {
        let key = try check(request)
        context.upgrade.set(.messages(maximumMessage: maximumMessage, run: run))
        return try switching(key)
    }

    /// As above, for a stream of bytes in binary messages whose boundaries have no meaning: no message is held as a
    /// whole, so none has a limit.
    /// - Parameters:
    ///   - protocols: supported subprotocols; the first of them that the client offers is echoed.
    ///   - install: adds handlers that read and write `ByteBuffer`s, on the channel's event loop. The
    ///     channel reads nothing by itself. ``WebSocketClosing`` as an outbound event closes it with a code.
    public static func respondWithBytes(
        to request: Request, context: AgentRequestContext, protocols: [String] = [],
        install: @escaping @Sendable (any Channel) throws -> Void
    ) throws -> Response {
        let key = try check(request)
        context.upgrade.set(.bytes(install: install))
        var response = try switching(key)
        if let name = subprotocol {
            var offered: Set<String> = []
            for value in request.headers[values: name] {
                for offer in value.split(separator: ",") { offered.insert(String(offer).filter { $0 != " " }) }
            }
            if let chosen = protocols.first(where: { offered.contains($0) }) { response.headers[name] = chosen }
        }
        return response
    }

    /// Checks the opening handshake, for a route that has work to do before it answers.
    /// - Returns: the client's key.
    @discardableResult
    public static func check(_ request: Request) throws -> String {
        guard let keyName = key, let versionName = version else {
            throw HTTPProblem(.internalServerError, "Internal server error.")
        }
        guard isRequested(by: request.head) else {
            throw HTTPProblem(
                .upgradeRequired, "This route needs a WebSocket.", headers: [.upgrade: "websocket"])
        }
        guard request.headers[versionName] == "13" else {
            throw HTTPProblem(
                .upgradeRequired, "Only WebSocket version 13 is spoken.", headers: [versionName: "13"])
        }
        guard let key = request.headers[keyName], key.utf8.count == 24, key.hasSuffix("==") else {
            throw HTTPProblem(.badRequest, "Sec-WebSocket-Key must be 16 bytes in base64.")
        }
        return key
    }

    /// Whether a request asks for a WebSocket at all.
    static func isRequested(by head: HTTPRequest) -> Bool {
        guard head.method == .get, head.headerFields[.upgrade]?.lowercased() == "websocket" else { return false }
        let tokens = head.headerFields[values: .connection].flatMap { $0.lowercased().split(separator: ",") }
        return tokens.contains { $0.filter { $0 != " " } == "upgrade" }
    }

    private static func switching(_ key: String) throws -> Response {
        guard let acceptName = accept else { throw HTTPProblem(.internalServerError, "Internal server error.") }
        return Response(
            status: .switchingProtocols,
            headers: [.upgrade: "websocket", .connection: "upgrade", acceptName: WebSocketHandshake.acceptValue(key)])
    }
}

/// An outbound event for the channel of ``WebSocketUpgrade/respondWithBytes(to:context:protocols:install:)``.
public typealias WebSocketClosing = WebSocketClose
