import AgentHTTP
import COpenAPI
import NIOCore

/// `GET /openapi.json`: what the HTTP API is, for programs (docs/openapi.yaml).
enum OpenAPIRoute {
    static func add(to routes: AgentRoutes) {
        routes.get("/openapi.json") { request, _ in
            _ = try Query(request, allowed: [])
            let document = UnsafeRawBufferPointer(start: wa_openapi_json(), count: wa_openapi_json_size())
            return .json(bytes: ByteBuffer(bytes: document))
        }
    }
}
