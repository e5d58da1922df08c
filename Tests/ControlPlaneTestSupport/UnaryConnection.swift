import ControlPlaneAPI
import DRPC
import SwiftProtobuf

/// A connection to a control plane that has no rpc with streams, as one that is older than the tailnet's API.
package protocol UnaryConnection: AgentConnection {}

extension UnaryConnection {
    package func bidirectional<Request: Message, Response: Message, Result>(
        _ method: Method<Request, Response>,
        _ body: (RequestWriter<Request>, ResponseStream<Response>) async throws -> Result
    ) async throws -> Result { throw unknown(method.name) }

    package func serverStream<Request: Message, Response: Message, Result>(
        _ method: Method<Request, Response>, _ request: Request,
        _ body: (ResponseStream<Response>) async throws -> Result
    ) async throws -> Result { throw unknown(method.name) }

    private func unknown(_ name: String) -> DRPCError {
        DRPCError(.remote(DRPCError.unimplementedCode), "no rpc \(name)")
    }
}
