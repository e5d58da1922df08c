import AgentCore
import AgentHTTP
import CPlatform
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore

/// list-directory and resolve-path (docs/contracts/files.md#list-directory, docs/contracts/files.md#resolve-path).
struct DirectoryRoutes: Sendable {
    let files: FilesContext

    func add(to routes: AgentRoutes) {
        routes.post("\(FilesRoutes.base)/list-directory", changes: false, list)
        routes.get("\(FilesRoutes.base)/resolve-path", resolve)
    }

    private struct ListBody: Decodable {
        var path: [String]?
        var relativity: String?
    }

    private func list(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        var query = FilesQuery(request)
        let asked = query.text("path")
        try query.check()
        let body = try await request.decodeJSON(ListBody.self)
        return try await FilesRoutes.answering {
            let path = try asked ?? directory(body)
            guard LexicalPath.isAbsolute(path) else {
                throw FilesError(.invalid, "path must be absolute: \(quoted(path))")
            }
            return .json(bytes: try await files.work.run(path) { try DirectoryListing(path).json() })
        }
    }

    private func directory(_ body: ListBody) throws(FilesError) -> String {
        let elements = (body.path ?? []).joined(separator: "/")
        switch body.relativity ?? "" {
        case "root": return LexicalPath.clean("/" + elements)
        case "home": return LexicalPath.clean(LexicalPath.join(files.home, elements))
        case let other: throw FilesError(.invalid, "unsupported relativity type \(quoted(other))")
        }
    }

    private func resolve(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        struct Answer: Encodable { var resolved_path: String }
        var query = FilesQuery(request)
        let path = query.required("path")
        try query.check()
        return try await FilesRoutes.answering {
            try requireAbsolute(path)
            return .json(Answer(resolved_path: try await files.work.run(path) { try PathResolution.resolve(path) }))
        }
    }
}

/// The entries of a directory. Blocks on the disk.
struct DirectoryListing {
    struct Entry: Equatable {
        var name: [UInt8]
        var isDirectory: Bool
    }

    let path: String
    let entries: [Entry]

    /// - Parameter path: absolute, as the client wrote it.
    init(_ path: String) throws(FilesError) {
        self.path = path
        let descriptor = withPath(path) { wa_open($0, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0) }
        if descriptor == -ENOTDIR {
            // The path may end at a file, or lead through one.
            var info = stat()
            if withPath(path, { stat($0, &info) }) == 0 {
                throw FilesError(.invalid, "path \(quoted(path)) is not a directory")
            }
        }
        guard descriptor >= 0 else {
            let error = FilesError.system(descriptor, "open", path)
            throw FilesError(error.code, "failed to open directory \(quoted(path)): \(error.message)")
        }
        let stream = try DirectoryStream(descriptor, path)
        var found: [Entry] = []
        while let name = try stream.next(path) {
            var info = stat()
            // One that cannot be looked at is left out.
            guard withName(name, { fstatat(descriptor, $0, &info, AT_SYMLINK_NOFOLLOW) }) == 0 else { continue }
            guard found.count < FilesLimits.listEntries else {
                throw FilesError(
                    .tooLarge, "directory \(quoted(path)) has more than \(FilesLimits.listEntries) entries; use glob")
            }
            found.append(Entry(name: name, isDirectory: info.st_mode & S_IFMT == S_IFDIR))
        }
        entries = found.sorted {
            $0.isDirectory != $1.isDirectory ? $0.isDirectory : $0.name.lexicographicallyPrecedes($1.name)
        }
    }

    /// Written here: a directory may have a hundred thousand entries.
    func json() -> ByteBuffer {
        var out = ByteBuffer()
        out.writeString(#"{"absolute_path":["#)
        for (index, element) in LexicalPath.elements(path).enumerated() {
            if index > 0 { out.writeString(",") }
            JSONString.write(String(element), into: &out)
        }
        out.writeString(#"],"absolute_path_string":"#)
        JSONString.write(path, into: &out)
        out.writeString(#","contents":["#)
        let directory = LexicalPath.clean(path)
        for (index, entry) in entries.enumerated() {
            if index > 0 { out.writeString(",") }
            let name = PathText.text(entry.name)
            out.writeString(#"{"absolute_path_string":"#)
            JSONString.write(LexicalPath.join(directory, name), into: &out)
            out.writeString(entry.isDirectory ? #","is_dir":true,"name":"# : #","is_dir":false,"name":"#)
            JSONString.write(name, into: &out)
            out.writeString("}")
        }
        out.writeString("]}")
        return out
    }
}
