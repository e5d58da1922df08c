import AgentCore
import AgentHTTP
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore

/// read-file and read-file-lines (docs/contracts/files.md#read-file, docs/contracts/files.md#read-file-lines).
struct ReadRoutes: Sendable {
    let files: FilesContext

    func add(to routes: AgentRoutes) {
        routes.get("\(FilesRoutes.base)/read-file", read)
        routes.on(.head, "\(FilesRoutes.base)/read-file", read)
        routes.get("\(FilesRoutes.base)/read-file-lines", lines)
    }

    private func read(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        var query = FilesQuery(request)
        let path = query.required("path")
        let offset = query.number("offset", default: 0)
        let limit = query.number("limit", default: 0)
        try query.check()
        return try await FilesRoutes.answering {
            try requireAbsolute(path)
            let file = try await files.work.run(path) { try RegularFile(path) }
            let type = MediaType.of(path)
            guard file.info.st_size > 0 else { return try await unsized(file, path, type, offset, limit) }
            let size = Int(file.info.st_size)
            let tag = EntityTag.of(file.info)
            var headers: HTTPFields = [.contentType: type, .eTag: tag, .acceptRanges: "bytes"]
            if let known = request.headers[.ifNoneMatch], known == "*" || EntityTag.list(known, names: tag) {
                headers[.contentType] = nil
                return Response(status: .notModified, headers: headers)
            }
            var range = ByteRange.wanted(offset, limit, of: size)
            var status = HTTPResponse.Status.ok
            if offset == 0, limit == 0, let text = request.headers[.range],
                request.headers[.ifRange].map({ EntityTag.list($0, names: tag) }) ?? true
            {
                switch ByteRange(text, size: size) {
                case .part(let part):
                    (range, status) = (part, .partialContent)
                    headers[.contentRange] = "bytes \(part.lowerBound)-\(part.upperBound - 1)/\(size)"
                case .unsatisfiable:
                    throw HTTPProblem(
                        .rangeNotSatisfiable, "Range \"\(text)\" is past the end.", detail: "There are \(size) bytes.",
                        headers: [.contentRange: "bytes */\(size)", .eTag: tag])
                case .ignored: break
                }
            }
            return Response(status: status, headers: headers, body: body(of: file, range, path))
        }
    }

    /// A file that says it is empty, as those of /proc do, whatever is in it.
    private func unsized(
        _ file: RegularFile, _ path: String, _ type: String, _ offset: Int, _ limit: Int
    ) async throws -> Response {
        let bytes = try await files.work.run(path) { try file.readAll(path, limit: FilesLimits.unsizedBytes) }
        let range = ByteRange.wanted(offset, limit, of: bytes.count)
        var headers: HTTPFields = [.contentType: type]
        // Without bytes it is an ordinary file.
        if bytes.isEmpty { headers[.eTag] = EntityTag.of(file.info) }
        return Response(
            status: .ok, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes[range])))
    }

    /// What the kernel has in memory is read at once; for the rest a thread waits, not the connection's loop.
    private func body(of file: RegularFile, _ range: Range<Int>, _ path: String) -> ResponseBody {
        let work = files.work
        return ResponseBody(contentLength: range.count) { writer in
            try await work.holding(min(range.count, 2 * FilesLimits.chunkBytes)) {
                // In turns: the connection may not be done with the one before, and one that it is done with is
                // filled again, which is much faster than new memory.
                var buffers = (ByteBuffer(), ByteBuffer())
                var position = range.lowerBound
                var pieces = 0
                while position < range.upperBound {
                    swap(&buffers.0, &buffers.1)
                    let count = min(FilesLimits.chunkBytes, range.upperBound - position)
                    buffers.0.clear(minimumCapacity: count)
                    // Now and then a thread reads in any case: a client that takes everything at once would keep the
                    // loop from all others.
                    pieces += 1
                    if pieces % 16 == 0 || !file.readCached(at: position, count: count, into: &buffers.0) {
                        let start = position
                        buffers.0 = try await work.run(path) { try file.read(at: start, count: count, path) }
                    }
                    // It was cut meanwhile: break the answer off rather than end it early.
                    guard buffers.0.readableBytes > 0 else { throw FilesError.system(EIO, "read", path) }
                    position += buffers.0.readableBytes
                    try await writer.write(buffers.0)
                }
            }
            try await writer.finish(nil)
        }
    }

    private struct LinesAnswer: Encodable {
        var success: Bool
        var file_size: Int?
        var total_lines: Int?
        var lines_read: Int?
        var content: String?
        var error: String?
    }

    private func lines(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        var query = FilesQuery(request)
        let path = query.required("path")
        var wanted = LineWindow.Request()
        wanted.first = max(1, query.number("offset", default: 1))
        let limit = query.number("limit", default: 0)
        if limit > 0 { wanted.limit = limit }
        let size = query.number("max_file_size", default: 1 << 20)
        wanted.lineBytes = query.number("max_line_bytes", default: wanted.lineBytes)
        wanted.lines = query.number("max_response_lines", default: wanted.lines)
        wanted.bytes = min(query.number("max_response_bytes", default: wanted.bytes), FilesLimits.lineAnswerBytes)
        try query.check()
        do {
            return .json(try await lines(path, wanted, maximumSize: size))
        } catch let error as FilesError where error.code == .notRegular {
            throw HTTPProblem(error)
        } catch let error as FilesError {
            return .json(LinesAnswer(success: false, error: error.message))
        }
    }

    private func lines(_ path: String, _ wanted: LineWindow.Request, maximumSize: Int) async throws -> LinesAnswer {
        try requireAbsolute(path)
        let file = try await files.work.run(path) { () throws(FilesError) in
            do throws(FilesError) {
                return try RegularFile(path)
            } catch {
                throw Self.explained(error, path)
            }
        }
        let size = Int(file.info.st_size)
        func refusal(_ count: Int) -> FilesError {
            FilesError(
                .tooLarge,
                "file is \(count) bytes which exceeds the maximum of \(maximumSize) bytes. Use grep, sed, or "
                    + "awk to extract the content you need, or use offset and limit to read a portion.")
        }
        guard size <= maximumSize else { throw refusal(size) }
        return try await files.work.holding(FilesLimits.chunkBytes + 2 * wanted.bytes) {
            var window = LineWindow(wanted)
            var position = 0
            while true {
                let start = position
                let piece = try await files.work.run(path) {
                    try file.read(at: start, count: FilesLimits.chunkBytes, path)
                }
                guard piece.readableBytes > 0 else { break }
                position += piece.readableBytes
                guard position <= maximumSize else { throw refusal(position) }
                piece.withUnsafeReadableBytes { window.take($0) }
            }
            let outcome = try window.finish()
            func present(_ number: Int) -> Int? { number == 0 ? nil : number }
            return LinesAnswer(
                success: true, file_size: present(size), total_lines: present(outcome.totalLines),
                lines_read: present(outcome.linesRead), content: outcome.content.isEmpty ? nil : outcome.content)
        }
    }

    private static func explained(_ error: FilesError, _ path: String) -> FilesError {
        switch error.code {
        case .notFound: FilesError(.notFound, "file does not exist: \(path)")
        case .denied: FilesError(.denied, "permission denied: \(path)")
        case .directory: FilesError(.directory, "not a file: \(path)")
        case .notRegular: error
        default: FilesError(error.code, "open file: \(error.message)")
        }
    }
}

/// Which bytes of a file are wanted.
enum ByteRange: Equatable {
    case part(Range<Int>)
    case unsatisfiable
    /// Several ranges, another unit, or what is no range: the whole file is answered (RFC 9110 section 14.2).
    case ignored

    /// - Parameters:
    ///   - text: of the `Range` header.
    ///   - size: of the file, at least 1.
    init(_ text: String, size: Int) {
        self = .ignored
        let unit = "bytes="
        guard text.lowercased().hasPrefix(unit) else { return }
        let ends = text.dropFirst(unit.count).split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count == 2 else { return }
        func number(_ text: Substring) -> Int? {
            text.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) } ? Int(text) : nil
        }
        if ends[0].isEmpty {
            guard let count = number(ends[1]) else { return }
            self = count > 0 ? .part(max(0, size - count)..<size) : .unsatisfiable
        } else if let first = number(ends[0]), let last = ends[1].isEmpty ? .some(.max) : number(ends[1]), last >= first
        {
            self = first < size ? .part(first..<min(last, size - 1) + 1) : .unsatisfiable
        }
    }

    /// As offset and limit have it; a limit of 0 is none.
    static func wanted(_ offset: Int, _ limit: Int, of size: Int) -> Range<Int> {
        let start = min(offset, size)
        return start..<(limit == 0 || limit > size - start ? size : start + limit)
    }
}
