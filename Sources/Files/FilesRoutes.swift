import AgentCore
import AgentHTTP
import HTTPTypes
import Hummingbird

/// The file routes below /api/v0 (spec: files API).
public struct FilesRoutes: Sendable {
    static let base = "/api/v0"

    let work: DiskWork
    let paths: any PathStore

    /// - Parameters:
    ///   - work: where the disk is touched.
    ///   - paths: told what chats have written.
    public init(work: DiskWork, paths: any PathStore) {
        (self.work, self.paths) = (work, paths)
    }

    public func add(to routes: AgentRoutes) {
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
