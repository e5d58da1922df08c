import ControlPlaneAPI
import DRPC
import NIOCore
import SwiftProtobuf
import Synchronization
import Yamux

/// A connection to the control plane: each call has a yamux stream of its own, which is closed
/// with FIN afterwards (docs/contracts/yamux.md#calls).
final class YamuxConnection: AgentConnection {
    let apiVersion: APIVersion
    private let session: YamuxMultiplexer

    init(_ session: YamuxMultiplexer, _ apiVersion: APIVersion) {
        self.session = session
        self.apiVersion = apiVersion
    }

    func call<Request: Message, Response: Message>(
        _ method: Method<Request, Response>, _ request: Request
    ) async throws -> Response {
        try await onStream { try await $0.unary(method, request) }
    }

    func bidirectional<Request: Message, Response: Message, Result>(
        _ method: Method<Request, Response>,
        _ body: (RequestWriter<Request>, ResponseStream<Response>) async throws -> Result
    ) async throws -> Result {
        try await onStream { try await $0.withBidirectional(method, body) }
    }

    func serverStream<Request: Message, Response: Message, Result>(
        _ method: Method<Request, Response>, _ request: Request,
        _ body: (ResponseStream<Response>) async throws -> Result
    ) async throws -> Result {
        try await onStream { try await $0.withServerStream(method, request, body) }
    }

    /// Makes one call on a stream of its own. Cancelling the task closes the stream, and nothing else.
    private func onStream<Result>(_ call: (RPCClient) async throws -> Result) async throws -> Result {
        let client: RPCClient
        do {
            client = try await session.openStream { RPCClient.attach(to: $0) }
        } catch {
            throw Self.callError(error)
        }
        defer { client.closeSoon() }
        do {
            return try await call(client)
        } catch {
            throw Self.callError(error)
        }
    }

    func ended() async -> String {
        (try? await session.ended.get())?.description ?? "the session is over"
    }

    func close() async { await session.close() }

    /// The error for the caller: an rpc's as it is, everything below as a lost connection.
    private static func callError(_ error: any Error) -> any Error {
        switch error {
        case is YamuxError, is ChannelError, is IOError:
            DRPCError(.closed, "the connection to the control plane was lost", cause: error)
        default: error
        }
    }
}

extension WebSocketDialler: Dialler {
    package func dial() async throws -> any AgentConnection {
        let session = Mutex<YamuxMultiplexer?>(nil)
        let (channel, version) = try await connectTransport { channel in
            let attached = try YamuxMultiplexer.attachNow(to: channel, role: .client)
            session.withLock { $0 = attached }
        }
        guard let session = session.withLock({ $0 }) else {
            channel.close(promise: nil)
            throw ControlPlaneError(.unreachable, "the connection ended while it was set up")
        }
        return YamuxConnection(session, version)
    }
}
