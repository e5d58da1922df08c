import AgentCore
import AgentHTTP
import FoundationEssentials
import HTTPTypes
import Hummingbird
import NIOCore

/// The routes below /api/v0/desktop/recording (docs/contracts/desktop.md#recording).
package struct RecordingRoutes: Sendable {
    static let base = "/api/v0/desktop/recording"
    /// Bytes that are read and sent at a time.
    private static let chunk = 256 << 10

    private let manager: RecordingManager
    private let pool: BlockingPool
    private let limits: RecordingLimits

    /// - Parameters:
    ///   - pool: where recordings are read.
    ///   - limits: of what is sent.
    package init(manager: RecordingManager, pool: BlockingPool, limits: RecordingLimits = RecordingLimits()) {
        self.manager = manager
        self.pool = pool
        self.limits = limits
    }

    package func add(to routes: AgentRoutes) {
        routes.post("\(Self.base)/start", start)
        routes.post("\(Self.base)/stop", stop)
    }

    private func start(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        struct Answer: Encodable { var message: String }
        let id = try await recordingID(request)
        try await answering { try await manager.start(id) }
        return .json(Answer(message: "Recording started."))
    }

    private func stop(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let id = try await recordingID(request)
        let video = try await answering { try await manager.stop(id) }
        guard video.videoBytes <= limits.videoBytes else {
            throw HTTPProblem(
                .contentTooLarge, "Recording file exceeds maximum allowed size.",
                detail: "It has \(video.videoBytes) bytes; at most \(limits.videoBytes) are sent.")
        }
        return multipart(video)
    }

    private func recordingID(_ request: Request) async throws -> UUID {
        struct Body: Decodable { var recording_id: String? }
        _ = try Query(request, allowed: [])
        let body: Body
        let invalid = "Failed to decode request body."
        do {
            body = try await request.decodeJSON(Body.self, invalid: invalid)
        } catch let problem as HTTPProblem where !problem.validations.isEmpty {
            // Of the one field.
            throw HTTPProblem(.badRequest, invalid, detail: "\"recording_id\" must be a string.")
        }
        guard let text = body.recording_id, !text.isEmpty else {
            throw HTTPProblem(.badRequest, "Missing recording_id.")
        }
        guard let id = RecordingID.parse(text) else {
            throw HTTPProblem(
                .badRequest, "Invalid recording_id format.", detail: "It must be a UUID, not \"\(text.prefix(100))\".")
        }
        return id
    }

    /// RFC 2046 section 5.1. The boundary is random, so that no part contains it.
    private func multipart(_ video: RecordedVideo) -> Response {
        let boundary = "\(UUID().lowercased)\(UUID().lowercased)".filter { $0 != "-" }
        let hasThumbnail = video.thumbnailBytes > 0 && video.thumbnailBytes <= limits.thumbnailBytes
        let head = ByteBuffer(string: "--\(boundary)\r\nContent-Type: video/mp4\r\n\r\n")
        let between = ByteBuffer(string: "\r\n--\(boundary)\r\nContent-Type: image/jpeg\r\n\r\n")
        let tail = ByteBuffer(string: "\r\n--\(boundary)--\r\n")
        var length = head.readableBytes + video.videoBytes + tail.readableBytes
        if hasThumbnail { length += between.readableBytes + video.thumbnailBytes }
        let pool = pool
        let body = ResponseBody(contentLength: length) { writer in
            try await writer.write(head)
            try await Self.send(video.videoBytes, to: &writer, pool) { try video.readVideo(at: $0, count: $1) }
            if hasThumbnail {
                try await writer.write(between)
                try await Self.send(video.thumbnailBytes, to: &writer, pool) {
                    try video.readThumbnail(at: $0, count: $1)
                }
            }
            try await writer.write(tail)
            try await writer.finish(nil)
        }
        return Response(
            status: .ok, headers: [.contentType: "multipart/mixed; boundary=\(boundary)"], body: body)
    }

    private static func send(
        _ bytes: Int, to writer: inout any ResponseBodyWriter, _ pool: BlockingPool,
        _ read: @escaping @Sendable (_ offset: Int, _ count: Int) throws -> ByteBuffer
    ) async throws {
        for offset in stride(from: 0, to: bytes, by: chunk) {
            try await writer.write(pool.run { try read(offset, min(chunk, bytes - offset)) })
        }
    }
}

/// The spellings of a UUID that clients send: with hyphens in any case (RFC 9562 section 4), as a URN,
/// in braces, or as 32 hexadecimal digits.
enum RecordingID {
    static func parse(_ text: String) -> UUID? {
        var text = Substring(text)
        if text.prefix(9).lowercased() == "urn:uuid:" {
            text = text.dropFirst(9)
        } else if text.first == "{", text.last == "}" {
            text = text.dropFirst().dropLast()
        } else if text.utf8.count == 32, text.utf8.allSatisfy(isHex) {
            let digits = Array(text)
            return UUID(
                uuidString: [0..<8, 8..<12, 12..<16, 16..<20, 20..<32].map { String(digits[$0]) }.joined(separator: "-")
            )
        }
        guard text.utf8.count == 36 else { return nil }
        return UUID(uuidString: String(text))
    }

    private static func isHex(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
            UInt8(ascii: "A")...UInt8(ascii: "F"):
            true
        default: false
        }
    }
}
