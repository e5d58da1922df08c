import AgentCore
import AgentHTTP
import Glibc
import HTTPTypes
import Hummingbird

/// file-info, move, delete, make-directory and set-mode (docs/contracts/files.md#entries).
struct EntryRoutes: Sendable {
    let files: FilesContext

    func add(to routes: AgentRoutes) {
        routes.get("\(FilesRoutes.base)/file-info", info)
        routes.post("\(FilesRoutes.base)/move", move)
        routes.post("\(FilesRoutes.base)/delete", delete)
        routes.post("\(FilesRoutes.base)/make-directory", makeDirectory)
        routes.post("\(FilesRoutes.base)/set-mode", setMode)
    }

    private struct Message: Encodable { var message: String }

    private func info(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        var query = FilesQuery(request)
        let path = query.required("path")
        try query.check()
        return try await FilesRoutes.answering {
            try requireAbsolute(path)
            return .json(try await files.work.run(path) { try FileInfo(path) })
        }
    }

    private func move(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        struct Body: Decodable {
            var from: String
            var to: String
            var overwrite: Bool?
        }
        try FilesQuery.refuseAny(request)
        let body = try await request.decodeJSON(Body.self)
        return try await changing([body.from, body.to], context) {
            try FileMove.run(body.from, body.to, overwrites: body.overwrite ?? false, files)
            return "Moved \(quoted(body.from)) to \(quoted(body.to))"
        }
    }

    private func delete(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        struct Body: Decodable {
            var path: String
            var recursive: Bool?
        }
        try FilesQuery.refuseAny(request)
        let body = try await request.decodeJSON(Body.self)
        let path = LexicalPath.clean(body.path)
        return try await FilesRoutes.answering {
            try requireAbsolute(body.path)
            let real = try await files.work.run(path) { try PathResolution.resolveEntry(path) }
            try await files.locks.holding([real]) {
                let deletion = try await files.work.run(path) {
                    try FileDeletion(path, home: files.home, isRecursive: body.recursive ?? false)
                }
                // In pieces, so that a large tree does not keep a thread for long.
                while try await files.work.run(path, { try deletion.advance() }) {}
            }
            if let chat = context.chat { files.paths.add(paths: [body.path], for: chat) }
            return .json(Message(message: "Deleted \(quoted(body.path))"))
        }
    }

    private func makeDirectory(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        struct Body: Decodable {
            var path: String
            var parents: Bool?
            var mode: String?
        }
        try FilesQuery.refuseAny(request)
        let body = try await request.decodeJSON(Body.self)
        let mode = try body.mode.map { try Self.mode($0) }
        return try await changing([body.path], context) {
            let path = LexicalPath.clean(body.path)
            // A link that leads nowhere is in the way, too.
            var info = stat()
            let isThere = withPath(path, { lstat($0, &info) }) == 0
            let isDirectory = withPath(path, { stat($0, &info) }) == 0 && info.st_mode & S_IFMT == S_IFDIR
            if isThere, !isDirectory { throw FilesError.system(EEXIST, "mkdir", path) }
            if body.parents ?? true {
                try Directories.make(path, mode: mode ?? 0o755, mask: files.fileMask)
            } else {
                try Directories.makeOne(path, mode: (mode ?? 0o755) & ~files.fileMask, isNew: true)
            }
            return "Made directory \(quoted(body.path))"
        }
    }

    private func setMode(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        struct Body: Decodable {
            var path: String
            var mode: String
        }
        try FilesQuery.refuseAny(request)
        let body = try await request.decodeJSON(Body.self)
        let mode = try Self.mode(body.mode)
        return try await changing([body.path], context, follows: true) {
            let result = withPath(body.path) { chmod($0, mode) }
            guard result == 0 else { throw FilesError.system(result, "chmod", body.path) }
            return "Set mode \(FileMode.text(mode)) on \(quoted(body.path))"
        }
    }

    private static func mode(_ text: String) throws -> mode_t {
        if let mode = FileMode.parse(text) { return mode }
        throw HTTPProblem.invalid("mode", "must be an octal mode such as \"0644\", not \"\(text)\"")
    }

    /// Runs what changes the paths, under their locks, and tells the chat's path store.
    /// - Parameters:
    ///   - follows: the last component may be a link to what is changed.
    ///   - body: blocks on the disk; the message of the answer.
    private func changing(
        _ paths: [String], _ context: AgentRequestContext, follows: Bool = false,
        _ body: @escaping @Sendable () throws -> String
    ) async throws -> Response {
        try await FilesRoutes.answering {
            for path in paths { try requireAbsolute(path) }
            let real = try await files.work.run(paths.first ?? "/") {
                try paths.map { follows ? try PathResolution.resolve($0) : try PathResolution.resolveEntry($0) }
            }
            let message = try await files.locks.holding(real) {
                try await files.work.run(paths.first ?? "/", body)
            }
            if let chat = context.chat { files.paths.add(paths: paths, for: chat) }
            return .json(Message(message: message))
        }
    }
}
