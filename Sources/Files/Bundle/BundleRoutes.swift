import AgentCore
import AgentHTTP
import HTTPTypes
import Hummingbird
import NIOCore

/// bundle-files (docs/contracts/files.md#bundle-files): many files as one tar archive.
struct BundleRoutes: Sendable {
    let files: FilesContext
    var limits = BundleLimits()

    private struct Body: Decodable {
        var paths: [String]?
    }

    func add(to routes: AgentRoutes) {
        routes.post("\(FilesRoutes.base)/bundle-files", changes: false) { request, _ in
            try await FilesRoutes.answering { try await bundle(request) }
        }
    }

    private func bundle(_ request: Request) async throws -> Response {
        try FilesQuery.refuseAny(request)
        var request = request
        let bytes = try await request.body.collect(upTo: HTTPLimits.defaultBodyBytes)
        guard bytes.readableBytes <= FilesLimits.bundleBodyBytes else {
            throw HTTPProblem(
                .contentTooLarge, "Request body too large.",
                detail: "The limit is \(FilesLimits.bundleBodyBytes) bytes.")
        }
        request.body = RequestBody(buffer: bytes)
        let paths = try await request.decodeJSON(Body.self).paths ?? []
        let (work, end) = (files.work, ContinuousClock.now + FilesLimits.bundleTime)
        let bundler = DiskState(
            Bundler(paths, home: files.home, environment: files.environment, limits: limits) {
                ContinuousClock.now >= end
            }, work,
            paths.first ?? "/")
        let headers: HTTPFields = [.contentType: "application/x-tar"]
        // What is short is sent with its length.
        let first = try await bundler.use { ($0.next() ?? ByteBuffer(), $0.isComplete) }
        if first.1 { return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: first.0)) }
        let body = ResponseBody { writer in
            try await work.holding(FilesLimits.chunkBytes) {
                if first.0.readableBytes > 0 { try await writer.write(first.0) }
                while let piece = try await bundler.use({ $0.next() }) {
                    if piece.readableBytes > 0 { try await writer.write(piece) }
                }
            }
            try await writer.finish(nil)
        }
        return Response(status: .ok, headers: headers, body: body)
    }
}
