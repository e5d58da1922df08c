import AgentCore
import AgentHTTP
import Hummingbird

/// Finding files and text (docs/contracts/files.md#searching).
struct SearchRoutes: Sendable {
    let work: DiskWork
    private let turns = TurnQueue(atOnce: FilesLimits.searchesAtOnce)

    init(work: DiskWork) { self.work = work }

    func add(to routes: AgentRoutes) {
        routes.post("\(FilesRoutes.base)/glob", changes: false) { request, context in
            try FilesQuery.refuseAny(request)
            let query = try GlobQuery(await request.decodeJSON(GlobQuery.Body.self))
            return try await FilesRoutes.answering { .json(try await glob(query, context.caller)) }
        }
        routes.post("\(FilesRoutes.base)/grep", changes: false) { request, context in
            try FilesQuery.refuseAny(request)
            let query = try GrepQuery(await request.decodeJSON(GrepQuery.Body.self))
            return try await FilesRoutes.answering {
                try await work.holding(FilesLimits.grepBytes) { .json(try await grep(query, context.caller)) }
            }
        }
    }

    struct GlobAnswer: Encodable, Sendable {
        var paths: [String]
        var truncated: Bool
    }

    func glob(_ query: GlobQuery, _ caller: CallerPresence) async throws -> GlobAnswer {
        try await turns.take()
        defer { turns.give() }
        let (walk, search) = try await work.run(query.root) {
            let ignoreFiles = query.gitignore ? IgnoreFiles() : nil
            guard let root = try TreeRoot(query.root, pattern: query.pattern, ignoreFiles: ignoreFiles) else {
                throw FilesError(.invalid, "path \(quoted(query.root)) is not a directory")
            }
            let search = GlobSearch(limit: query.limit, prefix: root.prefix)
            return (TreeWalk(root, pattern: query.pattern, ignoreFiles: ignoreFiles, visitor: search), search)
        }
        try await TreeSearch.run(walk, query.root, work, caller)
        let (paths, truncated) = search.result()
        return GlobAnswer(
            paths: paths.map { Self.path($0, below: query.root) }, truncated: truncated || walk.isIncomplete)
    }

    struct GrepAnswer: Encodable, Sendable {
        struct Match: Encodable, Sendable, Equatable {
            var path: String
            var line: Int
            var column: Int
            var text: String
            var before: [String]?
            var after: [String]?
        }

        var matches: [Match]
        var truncated: Bool
    }

    func grep(_ query: GrepQuery, _ caller: CallerPresence) async throws -> GrepAnswer {
        try await turns.take()
        defer { turns.give() }
        let (walk, search) = try await work.run(query.root, computing: true) { () throws -> (TreeWalk?, GrepSearch) in
            let ignoreFiles = query.gitignore ? IgnoreFiles() : nil
            if let root = try TreeRoot(query.root, pattern: query.glob, ignoreFiles: ignoreFiles) {
                let search = GrepSearch(query.search, limit: query.limit, prefix: root.prefix)
                return (TreeWalk(root, pattern: query.glob, ignoreFiles: ignoreFiles, visitor: search), search)
            }
            let search = GrepSearch(query.search, limit: query.limit, prefix: 0)
            if query.glob?.matches(PathText.bytes(LexicalPath.name(query.root))) != false {
                let file = try RegularFile(query.root)
                var buffer = ScratchBuffer()
                let end = ContinuousClock.now + .milliseconds(FilesLimits.searchPieceMilliseconds)
                let visit = withExtendedLifetime(file) { search.search(file.number, &buffer, until: end) { [] } }
                if case .unfinished(let rest) = visit { return (TreeWalk(rest, visitor: search), search) }
            }
            return (nil, search)
        }
        if let walk { try await TreeSearch.run(walk, query.root, work, caller) }
        let (found, truncated) = search.result()
        let matches = found.map { found in
            GrepAnswer.Match(
                path: Self.path(found.path, below: query.root), line: found.match.line, column: found.match.column,
                text: found.match.text, before: found.match.before, after: found.match.after)
        }
        return GrepAnswer(matches: matches, truncated: truncated || walk?.isIncomplete == true)
    }

    /// The text of an absolute path.
    private static func path(_ path: [UInt8], below root: String) -> String {
        path.isEmpty ? root : LexicalPath.join(root, PathText.text(path))
    }
}
