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

    /// Returns when the connection has ended, on either side, with the reason for a log.
    func ended() async -> String

    /// Closes in order (GoAway 0, WebSocket 1000) and returns when the transport is closed.
    func close() async
}
