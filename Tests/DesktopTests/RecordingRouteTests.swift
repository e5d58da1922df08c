import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// The routes, over a real connection.
@Suite(.serialized, .timeLimit(.minutes(15))) struct RecordingRouteTests {
    private static let base = "/api/v0/desktop/recording"

    private struct Part: Equatable {
        var type: String
        var bytes: Data
    }

    private func post(_ socket: String, _ path: String, _ body: String) async throws -> RawConnection.Response {
        try await offPool { try RawConnection(unix: socket).request("POST", "\(Self.base)/\(path)", body: body) }
    }

    private func stop(_ socket: String, _ id: String) async throws -> RawConnection.Response {
        try await post(socket, "stop", "{\"recording_id\":\"\(id)\"}")
    }

    /// The parts of a multipart body (RFC 2046, 5.1), written for these tests.
    private func parts(_ response: RawConnection.Response) throws -> [Part] {
        let type = try #require(response.headers["content-type"])
        let prefix = "multipart/mixed; boundary="
        try #require(type.hasPrefix(prefix))
        let delimiter = Data("--\(type.dropFirst(prefix.count))".utf8)
        var parts: [Part] = []
        var rest = response.body
        try #require(rest.starts(with: delimiter))
        rest = Data(rest.dropFirst(delimiter.count))
        while !rest.starts(with: Data("--\r\n".utf8)) {
            try #require(rest.starts(with: Data("\r\n".utf8)))
            rest = Data(rest.dropFirst(2))
            let headEnd = try #require(rest.range(of: Data("\r\n\r\n".utf8)))
            let head = String(decoding: rest[..<headEnd.lowerBound], as: UTF8.self)
            let end = try #require(
                rest.range(of: Data("\r\n".utf8) + delimiter, in: headEnd.upperBound..<rest.endIndex))
            parts.append(
                Part(
                    type: String(head.dropFirst("Content-Type: ".count)),
                    bytes: Data(rest[headEnd.upperBound..<end.lowerBound])))
            rest = Data(rest[end.upperBound...])
        }
        #expect(rest.count == 4)
        return parts
    }

    @Test func aRecordingComesInTwoParts() async throws {
        try await withWorld { world, display in
            let (socket, server) = try await world.serve()
            let id = UUID().uuidString
            let started = try await post(socket, "start", "{\"recording_id\":\"\(id)\"}")
            #expect(started.status == 200 && started.text == "{\"message\":\"Recording started.\"}")
            try await offPool { try display.wriggle(seconds: 1) }
            // Other spellings are the same recording.
            let again = try await post(socket, "start", "{\"recording_id\":\"{\(id.lowercased())}\"}")
            #expect(again.status == 200)
            #expect(world.manager.running == 1)
            let answer = try await stop(socket, id.lowercased().filter { $0 != "-" })
            #expect(answer.status == 200)
            let parts = try parts(answer)
            #expect(parts.map(\.type) == ["video/mp4", "image/jpeg"])
            let file = "\(world.directory.path)/answer.mp4"
            try parts[0].bytes.write(to: URL(fileURLWithPath: file))
            #expect(try await offPool { try Probed(file) }.frames > 0)
            #expect(try #require(jpegSize(Array(parts[1].bytes))) == (640, 480))
            #expect(try self.parts(try await stop(socket, "urn:uuid:\(id)")) == parts)
            await server.stop()
        }
    }

    @Test func badRequestsAreNamed() async throws {
        try await withWorld { world, _ in
            let (socket, server) = try await world.serve()
            for path in ["start", "stop"] {
                for body in ["{}", "{\"recording_id\":null}", "{\"recording_id\":\"\"}"] {
                    let answer = try await post(socket, path, body)
                    #expect(answer.status == 400 && answer.json["message"] as? String == "Missing recording_id.")
                }
                for id in [
                    "x", "0c5d1f2e-8a67-4b21-9f3d", "../../../etc/passwd", "0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f0",
                ] {
                    let answer = try await post(socket, path, "{\"recording_id\":\"\(id)\"}")
                    #expect(answer.status == 400)
                    #expect(answer.json["message"] as? String == "Invalid recording_id format.")
                }
                for body in [
                    "", "[", "[]", "\"x\"", "3", "null", "{", "{\"recording_id\":}", "{\"recording_id\":7}",
                    "{\"recording_id\":[]}", "{\"recording_id\":\"\\ud800\"}", "{\"recording_id\":\"x\"}}",
                ] {
                    let answer = try await post(socket, path, body)
                    #expect(answer.status == 400, "\(body)")
                    #expect(answer.json["message"] as? String == "Failed to decode request body.", "\(body)")
                    let detail = answer.json["detail"] as? String ?? ""
                    #expect(!detail.isEmpty, "\(body): \(answer.text)")
                    for word in ["Swift", "Decod", "Dictionary", "Array", "Codable", "Optional"] {
                        #expect(!detail.contains(word), "\(body): \(detail)")
                    }
                }
            }
            let unknown = try await stop(socket, UUID().uuidString)
            #expect(unknown.status == 404 && unknown.json["message"] as? String == "Recording not found.")
            #expect(world.kept.isEmpty && world.recorders.isEmpty)
            await server.stop()
        }
    }

    @Test func whatIsSentHasLimits() async throws {
        try await withWorld { world, _ in
            let id = UUID()
            try await world.manager.start(id)
            let video = try await world.manager.stop(id)
            for (videoLimit, status) in [
                (video.videoBytes - 1, 413), (video.videoBytes, 200), (video.videoBytes + 1, 200),
            ] {
                var limits = RecordingLimits()
                limits.videoBytes = videoLimit
                let (socket, server) = try await world.serve(limits)
                let answer = try await stop(socket, id.uuidString)
                #expect(answer.status == status)
                if status == 413 {
                    #expect(answer.json["message"] as? String == "Recording file exceeds maximum allowed size.")
                    #expect((answer.json["detail"] as? String)?.contains("\(video.videoBytes) bytes") == true)
                }
                await server.stop()
            }
            for (thumbnailLimit, count) in [
                (video.thumbnailBytes - 1, 1), (video.thumbnailBytes, 2), (video.thumbnailBytes + 1, 2),
            ] {
                var limits = RecordingLimits()
                limits.thumbnailBytes = thumbnailLimit
                let (socket, server) = try await world.serve(limits)
                let answer = try await stop(socket, id.uuidString)
                #expect(try parts(answer).count == count)
                await server.stop()
            }
        }
    }

    @Test func tooManyAndShuttingDownHaveTheirStatus() async throws {
        var limits = RecordingLimits()
        limits.running = 1
        try await withWorld(limits: limits) { world, _ in
            let (socket, server) = try await world.serve()
            let id = UUID()
            try await world.manager.start(id)
            let other = "{\"recording_id\":\"\(UUID().uuidString)\"}"
            #expect(try await post(socket, "start", other).status == 429)
            await world.manager.shutdown()
            for answer in [try await post(socket, "start", other), try await stop(socket, id.uuidString)] {
                #expect(answer.status == 503)
                #expect(answer.json["message"] as? String == DesktopSession.shuttingDown.message)
            }
            await server.stop()
        }
    }

    @Test func aFormerLifesFilesGoAndNothingIsThereBeforeTheFirstUse() async throws {
        try await withWorld { world, _ in
            await world.manager.removeLeftovers()
            #expect(access("\(world.directory.path)/state", F_OK) != 0)
        }
        try await withWorld { world, _ in
            let old = "\(world.recordings)/0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f-1"
            try createDirectories(old, mode: 0o700)
            try Data("old".utf8).write(to: URL(fileURLWithPath: "\(old)/video.mp4"))
            symlink("/etc", "\(old)/link")
            // The first start removes them at the latest.
            let id = UUID()
            try await world.manager.start(id)
            #expect(world.kept == ["\(id.lowercased)-1"])
            #expect(access("/etc/passwd", F_OK) == 0)
            _ = try await world.manager.stop(id)
        }
    }
}
