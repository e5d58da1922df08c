import AgentCore
import AgentHTTP
import CPlatform
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization

/// Trees as tar archives, out and in (docs/contracts/files.md#archive).
struct ArchiveRoutes: Sendable {
    let files: FilesContext
    var limits = ArchiveLimits()

    /// Bytes that one transfer holds: a piece as it is, one compressed, and what zlib needs.
    private static let memory = 3 * FilesLimits.chunkBytes

    func add(to routes: AgentRoutes) {
        routes.get("\(FilesRoutes.base)/archive") { request, _ in
            try await FilesRoutes.answering { try await pack(request) }
        }
        routes.on(.put, "\(FilesRoutes.base)/archive", bodyLimit: FilesLimits.archiveBytes, streamsBody: true) {
            request, context in
            try await FilesRoutes.answering { try await unpack(request, context) }
        }
    }

    // MARK: - Out

    private func pack(_ request: Request) async throws -> Response {
        var query = FilesQuery(request)
        let path = query.required("path")
        let skips = query.flag("skip_unreadable", default: false)
        try query.check()
        try requireAbsolute(path)
        let (work, limits, compresses) = (
            files.work, limits, Self.acceptsGzip(request.headers[values: .acceptEncoding])
        )
        let source = try await work.run(path) { try Packer.Source(path) }
        let check = DiskState(try PackingCheck(source, limits: limits), work, path)
        while try await check.use({ try $0.step() }) {}
        if !skips { try await check.use { try $0.requireReadable() } }
        let packer = DiskState(
            try Packer(source, limits: limits, skipsUnreadable: skips, compresses: compresses), work, path)
        let body = ResponseBody { writer in
            try await work.holding(Self.memory) {
                while let piece = try await packer.use({ try $0.next() }) { try await writer.write(piece) }
            }
            try await writer.finish(nil)
        }
        var headers: HTTPFields = [.contentType: "application/x-tar", .vary: "accept-encoding"]
        if compresses { headers[.contentEncoding] = "gzip" }
        return Response(status: .ok, headers: headers, body: body)
    }

    /// Whether the client takes gzip (RFC 9110 section 12.5.3).
    static func acceptsGzip(_ values: [String]) -> Bool {
        let codings = values.joined(separator: ",").lowercased().filter { $0 != " " && $0 != "\t" }
            .split(separator: ",").map { $0.split(separator: ";") }
        let gzip = codings.first { $0.first == "gzip" || $0.first == "x-gzip" } ?? codings.first { $0.first == "*" }
        guard let gzip else { return false }
        for parameter in gzip.dropFirst() where parameter.hasPrefix("q=") { return Double(parameter.dropFirst(2)) != 0 }
        return true
    }

    // MARK: - In

    private struct Answer: Encodable {
        var message: String
        var files: Int
        var directories: Int
        var links: Int
        var bytes: Int
    }

    private func unpack(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        var query = FilesQuery(request)
        let path = query.required("path")
        try query.check()
        try requireAbsolute(path)
        let compression = try Self.compression(request.headers[values: .contentEncoding])
        let (work, files) = (files.work, files)
        let root = try await work.run(path) { try Self.target(path, files) }
        let unpacker = DiskState(
            Unpacker(TreeWriter(root, path: path, files), compression, limits: limits), work, path)
        do {
            try await work.holding(Self.memory) { try await take(request.body, unpacker) }
        } catch {
            // Here rather than where the last reference goes: it touches the disk.
            try? await unpacker.use { $0.abandon() }
            throw error
        }
        let (counts, written) = try await unpacker.use { ($0.counts, $0.written) }
        if let chat = context.chat, !written.isEmpty {
            files.paths.add(paths: written.map { LexicalPath.join(path, PathText.text($0)) }, for: chat)
        }
        return .json(
            Answer(
                message: "Successfully extracted the archive to \(quoted(path))",
                files: counts.files, directories: counts.directories, links: counts.links, bytes: counts.bytes))
    }

    private func take(_ body: RequestBody, _ unpacker: DiskState<Unpacker>) async throws {
        var piece = ByteBuffer()
        var total = 0
        func extract(_ piece: ByteBuffer) async throws {
            try await unpacker.use { try $0.feed(piece) }
            while try await unpacker.use({ try $0.step() }) {}
        }
        for try await more in body {
            total += more.readableBytes
            guard total <= limits.bytes else { throw limits.tooManyBytes }
            piece.writeImmutableBuffer(more)
            guard piece.readableBytes >= FilesLimits.chunkBytes else { continue }
            try await extract(piece)
            piece = ByteBuffer()
        }
        try await extract(piece)
        try await unpacker.use { try $0.finish() }
        while try await unpacker.use({ $0.settle() }) {}
    }

    /// - Throws: ``HTTPProblem`` 415 for a coding other than gzip.
    static func compression(_ codings: [String]) throws -> Unpacker.Compression {
        switch codings.joined(separator: ",").lowercased() {
        case "", "identity": .byContent
        case "gzip", "x-gzip": .gzip
        case let other:
            throw HTTPProblem(
                .unsupportedMediaType, "Content-Encoding \(goQuoted(other)) is not supported: send gzip, or none.")
        }
    }

    /// The directory to extract to; it is made when it is missing.
    private static func target(_ path: String, _ files: FilesContext) throws(FilesError) -> OpenDirectory {
        let clean = LexicalPath.clean(path)
        try Directories.make(clean, mask: files.fileMask)
        let opened = withPath(clean) { wa_open_directory($0) }
        guard opened >= 0 else { throw FilesError.system(opened, "open", path) }
        return OpenDirectory(OwnedDescriptor(opened))
    }
}

extension Packer.Source {
    /// - Parameter path: a link is followed. Names begin with its last element; when it ends with `/.`, with ".".
    init(_ path: String) throws(FilesError) {
        let clean = LexicalPath.clean(path)
        self.path = path
        let isContent = path.utf8.count > 1 && path.utf8.suffix(2).elementsEqual("/.".utf8)
        name = isContent || clean == "/" ? [UInt8(ascii: ".")] : PathText.bytes(LexicalPath.name(clean))
        let opened = withPath(clean) { wa_open($0, O_RDONLY | O_DIRECTORY, 0) }
        switch opened {
        case -ENOTDIR:
            name = PathText.bytes(LexicalPath.name(clean))
            content = .file(try RegularFile(clean))
        case 0...: content = .tree(OpenDirectory(OwnedDescriptor(opened)))
        default: throw FilesError.system(opened, "open", path)
        }
    }
}

/// What only disk work touches, one piece of it at a time: its one user awaits the end of each piece before the
/// next, so that the lock is never waited for while a disk holds it up.
final class DiskState<Value>: Sendable {
    private let value: Mutex<Value>
    private let work: DiskWork
    private let path: String

    init(_ value: sending Value, _ work: DiskWork, _ path: String) {
        self.value = Mutex(value)
        self.work = work
        self.path = path
    }

    func use<T: Sendable>(_ body: @escaping @Sendable (inout sending Value) throws -> T) async throws -> T {
        try await work.run(path) { [self] in try value.withLock { value in try body(&value) } }
    }
}
