import AgentTestSupport
import Foundation
import NIOCore
import Testing

@testable import AgentHTTP

@Suite struct ServerTests {
    @Test func pipelinedRequestsAreAnsweredInOrder() async throws {
        let fixture = try await ServerFixture()
        let connection = try fixture.connect()
        let get = "GET /plain HTTP/1.1\r\nHost: x\r\n\r\n"
        let post = "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        try connection.send(get + post + get + "GET /nope HTTP/1.1\r\nHost: x\r\n\r\n" + post)
        #expect(try (0..<5).map { _ in try connection.response().status } == [200, 200, 200, 404, 200])
        await fixture.server.stop()
    }

    /// All that was whole when the sender closed its side is answered.
    @Test func pipelinedRequestsBeforeAHalfClose() async throws {
        let fixture = try await ServerFixture()
        let connection = try fixture.connect()
        let get = "GET /plain HTTP/1.1\r\nHost: x\r\n\r\n"
        try connection.send(String(repeating: get, count: 5) + "GET /pl")
        connection.closeSending()
        #expect(try (0..<6).map { _ in try connection.response().status } == [200, 200, 200, 200, 200, 400])
        #expect(try connection.isAtEnd())
        await fixture.server.stop()
    }

    @Test func answersToHEADHaveNoBody() async throws {
        let fixture = try await ServerFixture()
        let connection = try fixture.connect()
        try connection.send("HEAD /nope HTTP/1.1\r\nHost: x\r\n\r\nGET /plain HTTP/1.1\r\nHost: x\r\n\r\n")
        let text = try readHead(connection)
        #expect(text.hasPrefix("HTTP/1.1 404"))
        #expect(text.contains("Content-Length: "))
        #expect(try connection.response().text == "plain")
        await fixture.server.stop()
    }

    private func readHead(_ connection: RawConnection) throws -> String {
        var bytes = Data()
        while !bytes.suffix(4).elementsEqual([13, 10, 13, 10]) { bytes += try connection.receive(exactly: 1) }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// NIO's decoder stores what follows an upgrade offer that was refused; it must not get it. In a process of
    /// its own, whose memory no other test takes.
    @Test func nothingIsStoredBehindARefusedUpgrade() async throws {
        await #expect(processExitsWith: .success) {
            let fixture = try await ServerFixture()
            let connection = try fixture.connect()
            try connection.send("GET /nope HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
            let before = Self.residentPages()
            let flood = Data(repeating: 65, count: 1 << 20)
            // More than is read away: the connection ends in the middle.
            for _ in 0..<64 { if (try? connection.send(flood)) == nil { break } }
            #expect(Self.residentPages() - before < 8192, "pages of 4 KiB")
            #expect(try fixture.connect().request("GET", "/plain").status == 200)
            await fixture.server.stop()
        }
    }

    private static func residentPages() -> Int {
        let text = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8)) ?? ""
        return text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
    }

    @Test func oneByteAtATime() async throws {
        let fixture = try await ServerFixture()
        let connection = try fixture.connect()
        for byte in "POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".utf8 {
            try connection.send(Data([byte]))
        }
        #expect(try connection.response().text == "3")
        await fixture.server.stop()
    }

    @Test func causesStayInside() async throws {
        let fixture = try await ServerFixture()
        let response = try fixture.connect().request("GET", "/fail")
        #expect(response.status == 500)
        #expect(response.text == #"{"message":"Internal server error."}"#)
        await fixture.server.stop()
    }

    @Test func slowHeadersAndBodiesTimeOut() async throws {
        var limits = HTTPLimits()
        limits.headerTimeout = .milliseconds(50)
        limits.bodyTimeout = .milliseconds(50)
        let fixture = try await ServerFixture(limits: limits)
        for start in ["GET /plain HT", "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"] {
            let connection = try fixture.connect()
            try connection.send(start)
            let response = try connection.response()
            #expect(response.status == 408)
            #expect(response.headers["connection"] == "close")
            #expect(try connection.isAtEnd())
        }
        await fixture.server.stop()
    }

    @Test func idleConnectionsEnd() async throws {
        var limits = HTTPLimits()
        limits.idleTimeout = .seconds(1)
        let fixture = try await ServerFixture(limits: limits)
        let idle = try fixture.connect()
        #expect(try idle.isAtEnd())
        // On a busy machine a connection may be idle for too long before its first request comes.
        var used: RawConnection?
        try await eventually("an answer") {
            let connection = try fixture.connect()
            used = connection
            return (try? connection.request("GET", "/plain").status) == 200
        }
        #expect(try used?.isAtEnd() == true)
        await fixture.server.stop()
    }

    @Test func aRefusedUploadGetsItsAnswer() async throws {
        let fixture = try await ServerFixture()
        let connection = try fixture.connect()
        try connection.send("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n")
        // More than the socket buffers hold: the server has to read it away for us to get here.
        for _ in 0..<40 { try? connection.send(Data(repeating: 65, count: 100_000)) }
        #expect(try connection.response().status == 413)
        await fixture.server.stop()
    }

    @Test func streamedAnswersFollowTheReader() async throws {
        let chunk = ByteBuffer(repeating: 7, count: 1 << 16)
        let fixture = try await ServerFixture { routes in
            routes.get("/large") { _, _ in
                .init(
                    status: .ok,
                    body: .init { writer in
                        for _ in 0..<256 { try await writer.write(chunk) }
                        try await writer.finish(nil)
                    })
            }
        }
        let connection = try fixture.connect()
        let response = try connection.request("GET", "/large")
        #expect(response.body.count == 16 << 20)
        #expect(try connection.request("GET", "/plain").status == 200)
        // A client that disconnects in the middle costs nothing but its connection.
        let leaver = try fixture.connect()
        try leaver.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        _ = try leaver.receive(exactly: 1000)
        #expect(try fixture.connect().request("GET", "/plain").status == 200)
        await fixture.server.stop()
    }

    @Test func readersThatNeverReadAreDropped() async throws {
        var limits = HTTPLimits()
        limits.writeTimeout = .milliseconds(100)
        let done = AsyncEvent()
        let fixture = try await ServerFixture(limits: limits) { routes in
            routes.get("/endless") { _, _ in
                .init(
                    status: .ok,
                    body: .init { writer in
                        defer { done.signal() }
                        while true { try await writer.write(ByteBuffer(repeating: 7, count: 1 << 16)) }
                    })
            }
        }
        let connection = try fixture.connect()
        try connection.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        await done.wait()
        await fixture.server.stop()
    }

    @Test func shutdownAnswersWhatRunsAndRefusesTheRest() async throws {
        let (entered, release) = (AsyncEvent(), AsyncEvent())
        var limits = HTTPLimits()
        limits.shutdownGrace = .seconds(60)
        let fixture = try await ServerFixture(limits: limits) { routes in
            routes.get("/slow") { _, _ in
                entered.signal()
                await release.wait()
                return .text(ByteBuffer(string: "done"))
            }
        }
        let (busy, idle) = (try fixture.connect(), try fixture.connect())
        #expect(try idle.request("GET", "/plain").status == 200)
        try busy.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await entered.wait()
        let stop = fixture.beginStop()
        #expect(try idle.isAtEnd())
        release.signal()
        let response = try busy.response()
        #expect(response.text == "done")
        #expect(response.headers["connection"] == "close")
        await stop.value
        #expect(throws: RawConnection.Failure.self) { try fixture.connect() }
    }

    @Test func shutdownAbortsWhatOverstaysItsGrace() async throws {
        var limits = HTTPLimits()
        limits.shutdownGrace = .milliseconds(50)
        let (entered, release) = (AsyncEvent(), AsyncEvent())
        let fixture = try await ServerFixture(limits: limits) { routes in
            routes.get("/slow") { _, _ in
                entered.signal()
                await release.wait()
                return .text(ByteBuffer())
            }
        }
        let connection = try fixture.connect()
        try connection.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await entered.wait()
        await fixture.server.stop()
        #expect(try connection.isAtEnd())
        release.signal()
    }
}
