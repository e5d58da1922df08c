import ControlPlaneAPI
import DRPC
import SwiftProtobuf

/// A connection whose calls of one answer all have a deadline: what the routines get.
struct BoundedConnection: AgentConnection {
    let connection: any AgentConnection
    let runtime: LinkRuntime

    var apiVersion: APIVersion { connection.apiVersion }

    func call<Request: Message, Response: Message>(
        _ method: Method<Request, Response>, _ request: Request
    ) async throws -> Response {
        let connection = connection
        let name = method.name.split(separator: "/").last.map(String.init) ?? method.name
        return try await runtime.within(LinkLimits.call, name) { try await connection.call(method, request) }
    }

    func bidirectional<Request: Message, Response: Message, Result>(
        _ method: Method<Request, Response>,
        _ body: (RequestWriter<Request>, ResponseStream<Response>) async throws -> Result
    ) async throws -> Result { try await connection.bidirectional(method, body) }

    func serverStream<Request: Message, Response: Message, Result>(
        _ method: Method<Request, Response>, _ request: Request,
        _ body: (ResponseStream<Response>) async throws -> Result
    ) async throws -> Result { try await connection.serverStream(method, request, body) }

    func ended() async -> String { await connection.ended() }
    func close() async { await connection.close() }
}
