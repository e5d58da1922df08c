import AgentCore
import AgentHTTP
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore

/// edit-files (docs/contracts/files.md#edit-files).
struct EditRoute: Sendable {
    let files: FilesContext

    func add(to routes: AgentRoutes) {
        routes.post("\(FilesRoutes.base)/edit-files", bodyLimit: FilesLimits.editBodyBytes, edit)
    }

    private func edit(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        try FilesQuery.refuseAny(request)
        let body = try await request.decodeJSON(EditRequest.self)
        return try await FilesRoutes.answering {
            guard !body.files.isEmpty else { throw FilesError(.invalid, "must specify at least one file") }
            let targets = try await files.work.run(body.files[0].path) { try EditTarget.merged(body.files) }
            let real = targets.compactMap { try? $0.real.get() }
            let answers = try await files.locks.holding(real) { try await edit(targets, body, context) }
            let answersFiles =
                body.include_diff || body.include_etag || targets.contains { $0.ifMatch != nil }
                || answers.contains { !($0.how?.isUsual ?? true) }
            return .json(EditAnswer(files: answersFiles ? answers : nil))
        }
    }

    private func edit(
        _ targets: [EditTarget], _ body: EditRequest, _ context: AgentRequestContext
    ) async throws -> [EditAnswer.File] {
        let work = files.work
        let size = try await work.run(targets.first?.path ?? "/") { EditTarget.size(of: targets) }
        guard size <= FilesLimits.editBytes else {
            throw FilesError(
                .tooLarge, "the files have \(size) bytes; at most \(FilesLimits.editBytes) are edited at once")
        }
        // The old and the new content, and the diff.
        return try await work.holding(3 * size) {
            var edited: [EditedFile] = []
            var failures: [FilesError] = []
            for target in targets {
                do {
                    let source = try await work.run(target.path) { try EditSource(target) }
                    let file = try await work.compute { try EditedFile(source, withDiff: body.include_diff) }
                    try await work.run(file.path) { try file.requireWritable() }
                    edited.append(file)
                } catch let error as FilesError {
                    failures.append(error)
                }
            }
            if let failure = FilesError.joined(failures) { throw failure }
            var answers: [EditAnswer.File] = []
            for file in edited {
                var answer = file.answer
                if !body.dry_run {
                    let (info, files) = (file.info, files)
                    let written = try await work.run(file.path) { try file.write(files) } ?? WrittenFile(info: info)
                    if let chat = context.chat { files.paths.add(paths: file.sent, for: chat) }
                    answer.etag = EntityTag.of(written.info)
                    answer.how = WrittenHow(written)
                }
                if !(body.include_etag || targets.contains { $0.ifMatch != nil }) { answer.etag = nil }
                answers.append(answer)
            }
            return answers
        }
    }
}

/// The body of edit-files. Keys that are missing or null are empty, as the reference has it.
struct EditRequest: Decodable, Sendable {
    struct File: Decodable, Sendable {
        var path: String
        var edits: [Edit]
        var ifMatch: String?

        private enum Key: String, CodingKey { case path, edits, if_match }

        init(from decoder: any Decoder) throws {
            let values = try decoder.container(keyedBy: Key.self)
            path = try values.decodeIfPresent(String.self, forKey: .path) ?? ""
            edits = try values.decodeIfPresent([Edit].self, forKey: .edits) ?? []
            ifMatch = try values.decodeIfPresent(String.self, forKey: .if_match)
        }
    }

    struct Edit: Decodable, Sendable {
        var search: String?
        var replace: String?
        var replace_all: Bool?
        var insert_line: WholeNumber?
        var text: String?
    }

    var files: [File]
    var include_diff: Bool
    var include_etag: Bool
    var dry_run: Bool

    private enum Key: String, CodingKey { case files, include_diff, include_etag, dry_run }

    init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        files = try values.decodeIfPresent([File].self, forKey: .files) ?? []
        include_diff = try values.decodeIfPresent(Bool.self, forKey: .include_diff) ?? false
        include_etag = try values.decodeIfPresent(Bool.self, forKey: .include_etag) ?? false
        dry_run = try values.decodeIfPresent(Bool.self, forKey: .dry_run) ?? false
    }
}

struct EditAnswer: Encodable {
    struct File: Encodable, Sendable {
        var path: String
        var diff: String?
        var edits: [EditMatch]?
        var etag: String?
        var how: WrittenHow?

        private enum Key: String, CodingKey { case path, diff, edits, etag }

        func encode(to encoder: any Encoder) throws {
            var values = encoder.container(keyedBy: Key.self)
            try values.encode(path, forKey: .path)
            try values.encodeIfPresent(diff, forKey: .diff)
            try values.encodeIfPresent(edits, forKey: .edits)
            try values.encodeIfPresent(etag, forKey: .etag)
            try how?.encode(to: encoder)
        }
    }

    var files: [File]?
}

/// One file to edit, with the edits of all entries that name it.
struct EditTarget: Sendable {
    /// As the first entry has it.
    var path: String
    /// As every entry has it, for the path store.
    var sent: [String]
    var edits: [EditRequest.Edit]
    var ifMatch: String?
    /// Where it really is, or why that cannot be told.
    var real: Result<String, FilesError>

    /// Merges entries with the same clean path, in order. Blocks on the disk.
    /// - Throws: ``FilesError`` for two paths to one real file.
    static func merged(_ entries: [EditRequest.File]) throws(FilesError) -> [EditTarget] {
        var targets: [EditTarget] = []
        var indices: [[UInt8]: Int] = [:]
        var names: [[UInt8]: String] = [:]
        for entry in entries {
            let key = PathText.bytes(LexicalPath.isAbsolute(entry.path) ? LexicalPath.clean(entry.path) : entry.path)
            if let index = indices[key] {
                targets[index].edits += entry.edits
                targets[index].sent.append(entry.path)
                targets[index].ifMatch = targets[index].ifMatch ?? entry.ifMatch
                continue
            }
            let real = Result { () throws(FilesError) in try Self.resolve(entry) }
            if let path = try? real.get(), let other = names.updateValue(entry.path, forKey: PathText.bytes(path)) {
                throw FilesError(
                    .invalid,
                    "duplicate file path \(quoted(entry.path)) aliases \(quoted(other)) (same real file): "
                        + "combine edits into a single entry's \"edits\" list")
            }
            indices[key] = targets.count
            targets.append(
                EditTarget(
                    path: entry.path, sent: [entry.path], edits: entry.edits, ifMatch: entry.ifMatch, real: real))
        }
        return targets
    }

    private static func resolve(_ entry: EditRequest.File) throws(FilesError) -> String {
        guard !entry.path.isEmpty else { throw FilesError(.invalid, "\"path\" is required") }
        try requireAbsolute(entry.path)
        guard !entry.edits.isEmpty else { throw FilesError(.invalid, "must specify at least one edit") }
        return try PathResolution.resolveTarget(entry.path)
    }

    /// Bytes of all files together. Blocks on the disk.
    static func size(of targets: [EditTarget]) -> Int {
        targets.reduce(0) { sum, target in
            var info = stat()
            guard let path = try? target.real.get(), withPath(path, { stat($0, &info) }) == 0 else { return sum }
            return sum + (info.st_mode & S_IFMT == S_IFREG ? max(0, Int(info.st_size)) : 0)
        }
    }
}

/// A file that is to be edited. Blocks on the disk.
struct EditSource: Sendable {
    let target: EditTarget
    let path: String
    let info: stat
    let content: [UInt8]

    init(_ target: EditTarget) throws(FilesError) {
        self.target = target
        path = try target.real.get()
        let file = try RegularFile(path)
        info = file.info
        if let tags = target.ifMatch { try WriteCondition(match: tags).check(info, target.path) }
        content = try file.readAll(path, limit: FilesLimits.editBytes)
    }
}

/// A file's content with its edits applied.
struct EditedFile: Sendable {
    let path: String
    let sent: [String]
    /// The file that was read.
    let info: stat
    let answer: EditAnswer.File
    private let bytes: [UInt8]
    private let isChanged: Bool

    init(_ source: EditSource, withDiff: Bool) throws(FilesError) {
        let (target, content) = (source.target, source.content)
        (path, info, sent) = (source.path, source.info, target.sent)
        do throws(EditFailure) {
            let outcome = try EditEngine.apply(
                try target.edits.map { e throws(EditFailure) in try FileEdit(e) }, to: content)
            bytes = outcome.bytes
            isChanged = bytes != content
            let diff =
                withDiff ? UnifiedDiff.text(old: content, new: bytes, oldName: target.path, newName: target.path) : nil
            // Bytes that are no UTF-8 cannot be said in JSON.
            let text = diff.map { String(decoding: $0, as: UTF8.self) }
            answer = .init(path: target.path, diff: text, edits: withDiff ? outcome.matches : nil)
        } catch {
            throw FilesError(error.isTooLarge ? .tooLarge : .invalid, "edit \(path): \(error.text)")
        }
    }

    /// Before a file of the request is written. Blocks on the disk.
    func requireWritable() throws(FilesError) {
        if isChanged { try RegularFile.requireNotReadOnly(info, path) }
    }

    /// Puts the new content in the file's place.
    /// - Returns: what the file is now; nil when there was nothing to change.
    func write(_ files: FilesContext) throws(FilesError) -> WrittenFile? {
        guard isChanged else { return nil }
        let replacement = try FileReplacement(path, files)
        do throws(FilesError) {
            try replacement.write(ByteBuffer(bytes: bytes))
            // The locks keep out this daemon's own requests; another program asks for none.
            return try replacement.commit(WriteCondition(match: EntityTag.of(info)), mode: nil)
        } catch {
            replacement.discard()
            guard error.code == .changed else { throw error }
            throw FilesError(
                .conflict,
                "edit \(path): another program changed the file meanwhile; nothing was written to it, try again")
        }
    }
}

extension FileEdit {
    init(_ edit: EditRequest.Edit) throws(EditFailure) {
        guard let line = edit.insert_line else {
            self.init(.replace(search: edit.search ?? "", replace: edit.replace ?? "", all: edit.replace_all ?? false))
            return
        }
        guard edit.search == nil, edit.replace == nil else {
            throw EditFailure(text: "an edit has either insert_line and text, or search and replace, not both")
        }
        self.init(.insert(afterLine: line.value, text: edit.text ?? ""))
    }
}

extension FilesError {
    /// All texts, and the highest status.
    static func joined(_ failures: [FilesError]) -> FilesError? {
        guard let highest = failures.max(by: { $0.code.status < $1.code.status }) else { return nil }
        return FilesError(
            highest.code, failures.map(\.message).joined(separator: "\n"), etag: failures.lazy.compactMap(\.etag).first)
    }
}
