import ControlPlaneAPI
import DRPC
import NIOCore
import SwiftProtobuf
import Synchronization
import Yamux

/// A connection to the control plane: each call has a yamux stream of its own, which is closed
/// with FIN afterwards (spec: dRPC and yamux, On top).
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
        let client: RPCClient
        do {
            client = try await session.openStream { RPCClient.attach(to: $0) }
        } catch {
            throw Self.callError(error)
        }
        do {
            // Cancelling the task closes the stream, and nothing else.
            let response = try await client.unary(method, request)
            client.closeSoon()
            return response
        } catch {
            client.closeSoon()
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
        case is DRPCError, is CancellationError: error
        default: DRPCError(.closed, "the connection to the control plane was lost", cause: error)
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
