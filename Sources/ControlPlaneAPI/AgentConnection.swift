import DRPC
import SwiftProtobuf

/// One live connection to the control plane.
///
/// Calls run concurrently, each on a stream of its own: a hung one holds up no other.
package protocol AgentConnection: Sendable {
    /// The version that both sides speak.
    var apiVersion: APIVersion { get }

    /// Makes a unary call. Cancelling the task resets the call's stream and leaves the connection.
    /// - Throws: `DRPCError`; `.closed` when the connection is gone.
    func call<Request: Message, Response: Message>(
        _ method: Method<Request, Response>, _ request: Request
    ) async throws -> Response

    /// Makes a call with many messages each way, which ends when the body does. It may last as long as the connection.
    /// - Throws: what the body throws, and `DRPCError`; `.closed` when the connection is gone.
    func bidirectional<Request: Message, Response: Message, Result>(
        _ method: Method<Request, Response>,
        _ body: (RequestWriter<Request>, ResponseStream<Response>) async throws -> Result
    ) async throws -> Result

    /// Makes a call with one request and many responses, which ends when the body does.
    /// - Throws: what the body throws, and `DRPCError`; `.closed` when the connection is gone.
    func serverStream<Request: Message, Response: Message, Result>(
        _ method: Method<Request, Response>, _ request: Request,
        _ body: (ResponseStream<Response>) async throws -> Result
    ) async throws -> Result

    /// Returns when the connection has ended, on either side, with the reason for a log.
    func ended() async -> String

    /// Closes in order (GoAway 0, WebSocket 1000) and returns when the transport is closed.
    func close() async
}
