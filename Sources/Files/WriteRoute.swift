import AgentCore
import AgentHTTP
import CPlatform
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore

/// write-file (docs/contracts/files.md#write-file).
struct WriteRoute: Sendable {
    let files: FilesContext

    func add(to routes: AgentRoutes) {
        routes.on(.post, "\(FilesRoutes.base)/write-file", bodyLimit: .max, streamsBody: true, write)
    }

    private struct Answer: Encodable {
        var message: String
        var etag: String
        var how: WrittenHow

        private enum Key: String, CodingKey { case message, etag }

        func encode(to encoder: any Encoder) throws {
            var values = encoder.container(keyedBy: Key.self)
            try values.encode(message, forKey: .message)
            try values.encode(etag, forKey: .etag)
            try how.encode(to: encoder)
        }
    }

    private func write(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        var query = FilesQuery(request)
        let path = query.required("path")
        let mode = query.mode("mode")
        let appends = query.flag("append", default: false)
        try query.check()
        let condition = WriteCondition(match: request.headers[.ifMatch], noneMatch: request.headers[.ifNoneMatch])
        return try await FilesRoutes.answering {
            try requireAbsolute(path)
            let real = try await files.work.run(path) { try PathResolution.resolveTarget(path) }
            let written =
                appends
                ? try await append(request.body, to: real, condition, mode)
                : try await replace(real, with: request.body, condition, mode)
            if let chat = context.chat { files.paths.add(paths: [path], for: chat) }
            return .json(
                Answer(
                    message: "Successfully wrote to \(quoted(path))", etag: EntityTag.of(written.info),
                    how: WrittenHow(written)))
        }
    }

    private func replace(
        _ path: String, with body: RequestBody, _ condition: WriteCondition, _ mode: mode_t?
    ) async throws -> WrittenFile {
        let (work, files) = (files.work, files)
        // Before the client sends the whole body in vain; what counts is the look under the lock.
        let replacement = try await work.run(path) {
            var info = stat()
            let isThere = withPath(path) { lstat($0, &info) } == 0
            try condition.check(isThere ? info : nil, path)
            return try FileReplacement(path, files)
        }
        do {
            for try await bytes in body where bytes.readableBytes > 0 {
                try await work.holding(bytes.readableBytes) {
                    try await work.run(path) { try replacement.write(bytes) }
                }
            }
            return try await files.locks.holding([path]) {
                try await work.run(path) { try replacement.commit(condition, mode: mode) }
            }
        } catch {
            // Here rather than where the last reference goes: it blocks.
            try? await work.run(path) { replacement.discard() }
            throw error
        }
    }

    /// Each piece goes to the file that has the name at that moment, so that an edit between two is not lost.
    private func append(
        _ body: RequestBody, to path: String, _ condition: WriteCondition, _ mode: mode_t?
    ) async throws -> WrittenFile {
        let (work, files) = (files.work, files)
        var condition = condition
        var info = try await files.locks.holding([path]) { [condition] in
            try await work.run(path) { try Self.append(ByteBuffer(), to: path, condition, mode, files, flushes: false) }
        }
        condition = WriteCondition()
        for try await bytes in body where bytes.readableBytes > 0 {
            info = try await files.locks.holding([path]) {
                try await work.holding(bytes.readableBytes) {
                    try await work.run(path) { try Self.append(bytes, to: path, WriteCondition(), nil, files) }
                }
            }
        }
        return WrittenFile(info: info)
    }

    private static func append(
        _ bytes: ByteBuffer, to path: String, _ condition: WriteCondition, _ mode: mode_t?, _ files: FilesContext,
        flushes: Bool = true
    ) throws(FilesError) -> stat {
        var info = stat()
        var isThere = withPath(path) { lstat($0, &info) } == 0
        if isThere {
            try RegularFile.requireWritable(info, path)
            try RegularFile.requireNotReadOnly(info, path)
        }
        try condition.check(isThere ? info : nil, path)
        if !isThere { try Directories.make(LexicalPath.parent(path), mask: files.fileMask) }
        let flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW
        var result = withPath(path) { wa_open($0, isThere ? flags : flags | O_CREAT | O_EXCL, 0o600) }
        // Made by another program in between.
        if result == -EEXIST {
            isThere = true
            result = withPath(path) { wa_open($0, flags, 0) }
        }
        guard result >= 0 else { throw FilesError.system(result, "open", path) }
        let file = OwnedDescriptor(result)
        guard fstat(file.number, &info) == 0 else { throw FilesError.system(errno, "stat", path) }
        try RegularFile.requireWritable(info, path)
        if let mode = mode ?? (isThere ? nil : 0o666 & ~files.fileMask), fchmod(file.number, mode) != 0 {
            throw FilesError.system(errno, "chmod", path)
        }
        let failure = writeAll(bytes, to: file.number)
        guard failure == 0 else { throw FilesError.system(failure, "write", path) }
        guard !flushes || fdatasync(file.number) == 0 else { throw FilesError.system(errno, "fdatasync", path) }
        guard fstat(file.number, &info) == 0 else { throw FilesError.system(errno, "stat", path) }
        return info
    }
}

/// What an answer says of how a file was written; each key is there when it is true.
struct WrittenHow: Encodable, Sendable {
    private var in_place: Bool?
    private var owner_changed: Bool?
    private var mode_changed: Bool?

    init(_ written: WrittenFile) {
        in_place = written.isInPlace ? true : nil
        owner_changed = written.losesOwner ? true : nil
        mode_changed = written.losesMode ? true : nil
    }

    var isUsual: Bool { in_place == nil && owner_changed == nil && mode_changed == nil }
}

extension FilesQuery {
    /// An octal mode up to 07777; nil when absent.
    mutating func mode(_ key: String) -> mode_t? {
        guard let text = text(key) else { return nil }
        if let mode = FileMode.parse(text) { return mode }
        problem(key, "Query param \"\(key)\" must be an octal mode such as 0644, not \"\(text)\"")
        return nil
    }
}

enum FileMode {
    static func parse(_ text: String) -> mode_t? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "7")).contains($0) }),
            let mode = mode_t(text, radix: 8), mode <= 0o7777
        else { return nil }
        return mode
    }

    /// Four octal digits.
    static func text(_ mode: mode_t) -> String {
        let digits = String(mode & 0o7777, radix: 8)
        return String(repeating: "0", count: 4 - digits.utf8.count) + digits
    }
}
