import AgentCore
import AgentHTTP
import HTTPTypes
import Hummingbird

/// The file routes below /api/v0 (docs/contracts/files.md#routes).
public struct FilesRoutes: Sendable {
    static let base = "/api/v0"

    let files: FilesContext

    public init(_ files: FilesContext) { self.files = files }

    public func add(to routes: AgentRoutes) {
        ReadRoutes(files: files).add(to: routes)
        WriteRoute(files: files).add(to: routes)
        EditRoute(files: files).add(to: routes)
        DirectoryRoutes(files: files).add(to: routes)
        EntryRoutes(files: files).add(to: routes)
        SearchRoutes(work: files.work).add(to: routes)
        ArchiveRoutes(files: files).add(to: routes)
        BundleRoutes(files: files).add(to: routes)
        WatchRoutes(files: files).add(to: routes)
    }

    /// Turns failures of the file service into answers.
    static func answering<T: Sendable>(_ body: () async throws -> T) async throws -> T {
        do {
            return try await body()
        } catch let error as FilesError {
            throw HTTPProblem(error)
        }
    }
}

extension HTTPProblem {
    init(_ error: FilesError) {
        var headers: HTTPFields = [:]
        if let etag = error.etag { headers[.eTag] = etag }
        self.init(HTTPResponse.Status(code: error.code.status), error.message, headers: headers)
    }
}
