import AgentTestSupport
import Foundation
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore
import Testing

@testable import AgentHTTP

/// Routes that take a request's body as it comes.
@Suite struct StreamedBodyTests {
    /// A route that adds up its body's bytes, once it may.
    private func fixture(
        limits: HTTPLimits = HTTPLimits(), bodyLimit: Int = .max, began: AsyncEvent = AsyncEvent(),
        may: AsyncEvent? = nil, ended: Promise? = nil
    ) async throws -> ServerFixture {
        try await ServerFixture(limits: limits) { routes in
            routes.on(.post, "/sum", bodyLimit: bodyLimit, streamsBody: true) { request, _ in
                began.signal()
                await may?.wait()
                var (count, sum) = (0, 0)
                do {
                    for try await bytes in request.body {
                        count += bytes.readableBytes
                        sum += bytes.readableBytesView.reduce(0) { $0 + Int($1) }
                    }
                } catch {
                    ended?.fulfill(error as? HTTPProblem)
                    throw error
                }
                ended?.fulfill(nil)
                return .text(ByteBuffer(string: "\(count) \(sum)"))
            }
            routes.on(.post, "/refuse", bodyLimit: .max, streamsBody: true) { _, _ in
                throw HTTPProblem(.badRequest, "no")
            }
        }
    }

    /// What the route's body ended with.
    private typealias Promise = EndPromise

    private func head(_ path: String, _ fields: String) -> String {
        "POST \(path) HTTP/1.1\r\nHost: x\r\n\(fields)\r\n\r\n"
    }

    @Test func theRouteRunsWhileTheBodyComes() async throws {
        let began = AsyncEvent()
        let fixture = try await fixture(began: began)
        let connection = try fixture.connect()
        try connection.send(head("/sum", "Content-Length: 6"))
        await began.wait()
        try connection.send("abc")
        try connection.send("def" + "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nxy")
        #expect(try connection.response().text == "6 597")
        // The connection goes on, with what came behind the body.
        #expect(try connection.response().text == "2")
        try connection.send(head("/sum", "Content-Length: 0"))
        #expect(try connection.response().text == "0 0")
        await fixture.server.stop()
    }

    @Test func aSenderIsHeldUpWhileTheRouteIsBusy() async throws {
        let (began, may) = (AsyncEvent(), AsyncEvent())
        let fixture = try await fixture(began: began, may: may)
        let connection = try fixture.connect()
        let total = 32 << 20
        try connection.send(head("/sum", "Content-Length: \(total)"))
        await began.wait()
        let piece = Data(repeating: 1, count: 64 << 10)
        var (sent, quietLooks) = (0, 0)
        try await eventually("the sender is held up") {
            let before = sent
            while sent < total {
                let count = piece.withUnsafeBytes {
                    Glibc.send(
                        connection.descriptor, $0.baseAddress, min($0.count, total - sent),
                        Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL))
                }
                guard count > 0 else { break }
                sent += count
            }
            quietLooks = sent == before ? quietLooks + 1 : 0
            return quietLooks > 5
        }
        // What the kernel keeps, and nothing of what the route has not asked for.
        #expect(sent < HTTPLimits.streamedBytes + (4 << 20), "\(sent) bytes were taken")
        may.signal()
        while sent < total {
            let count = min(piece.count, total - sent)
            try connection.send(piece.prefix(count))
            sent += count
        }
        #expect(try connection.response().text == "\(total) \(total)")
        await fixture.server.stop()
    }

    @Test func continueIsSentWhenTheRouteAsks() async throws {
        let (began, may) = (AsyncEvent(), AsyncEvent())
        let fixture = try await fixture(began: began, may: may)
        let connection = try fixture.connect()
        try connection.send(head("/sum", "Content-Length: 3\r\nExpect: 100-continue"))
        await began.wait()
        #expect(!connection.isReadable)
        may.signal()
        let interim = "HTTP/1.1 100 Continue\r\n\r\n"
        #expect(String(decoding: try connection.receive(exactly: interim.utf8.count), as: UTF8.self) == interim)
        try connection.send("abc")
        let answer = try connection.response()
        #expect(answer.status == 200 && answer.text == "3 294")
        // One that is refused at once gets no 100, and the connection ends.
        let other = try fixture.connect()
        try other.send(head("/refuse", "Content-Length: 3000\r\nExpect: 100-continue"))
        var refusal = Data()
        while case let more = try other.receive(), !more.isEmpty { refusal += more }
        let text = String(decoding: refusal, as: UTF8.self)
        #expect(text.hasPrefix("HTTP/1.1 400") && text.lowercased().contains("connection: close"))
        await fixture.server.stop()
    }

    @Test func anEarlyAnswerArrivesThoughTheBodyDoesNot() async throws {
        let fixture = try await fixture()
        let connection = try fixture.connect()
        try connection.send(head("/refuse", "Content-Length: 4000000"))
        try connection.send(Data(count: 300_000))
        let answer = try connection.response()
        #expect(answer.status == 400 && answer.headers["connection"] == "close")
        connection.closeSending()
        #expect(try connection.isAtEnd())
        await fixture.server.stop()
    }

    @Test func aBodyThatBreaksOffIsAnErrorOfTheRoute() async throws {
        let ended = Promise()
        let fixture = try await fixture(ended: ended)
        let connection = try fixture.connect()
        try connection.send(head("/sum", "Content-Length: 10"))
        try connection.send("abc")
        connection.closeSending()
        let answer = try connection.response()
        #expect(answer.status == 400 && answer.text.contains("before it was complete"))
        #expect(await ended.value == .truncated)
        let vanished = Promise()
        let second = try await self.fixture(ended: vanished)
        var client: RawConnection? = try second.connect()
        try client?.send(head("/sum", "Transfer-Encoding: chunked") + "3\r\nabc\r\n")
        client = nil
        #expect(await vanished.value == .truncated)
        await fixture.server.stop()
        await second.server.stop()
    }

    @Test func aClientThatSendsNothingMoreIsGivenUp() async throws {
        var limits = HTTPLimits()
        limits.bodyTimeout = .milliseconds(100)
        let fixture = try await fixture(limits: limits)
        let connection = try fixture.connect()
        try connection.send(head("/sum", "Content-Length: 10") + "abc")
        let answer = try connection.response()
        #expect(answer.status == 408 && answer.text.contains("body did not arrive in time"))
        await fixture.server.stop()
    }

    @Test(arguments: [9, 10, 11]) func theLimitCountsWhatArrives(_ count: Int) async throws {
        let fixture = try await fixture(bodyLimit: 10)
        let connection = try fixture.connect()
        let size = String(count, radix: 16)
        try connection.send(head("/sum", "Transfer-Encoding: chunked"))
        try connection.send("\(size)\r\n\(String(repeating: "a", count: count))\r\n0\r\n\r\n")
        #expect(try connection.response().status == (count > 10 ? 413 : 200))
        await fixture.server.stop()
    }

    @Test func malformedChunksAreAnErrorOfTheRoute() async throws {
        let fixture = try await fixture()
        let connection = try fixture.connect()
        try connection.send(head("/sum", "Transfer-Encoding: chunked") + "3\r\nabcdef\r\n")
        #expect(try connection.response().status == 400)
        await fixture.server.stop()
    }
}

/// What a body ended with: nil is its proper end.
final class EndPromise: Sendable {
    private let (stream, continuation) = AsyncStream.makeStream(of: HTTPProblem?.self)

    func fulfill(_ problem: HTTPProblem?) { continuation.yield(problem) }

    var value: HTTPProblem? {
        get async {
            for await problem in stream { return problem }
            return nil
        }
    }
}
