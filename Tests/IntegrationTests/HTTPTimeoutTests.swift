import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.blocking) struct HTTPTimeoutTests {
    private struct Answer {
        var took: Duration
        var status: Int
        var message: String?
        var closed: Bool
    }

    /// Header and body time-out at once, so that the suite pays for the longer only.
    @Test func slowClientsAreAnsweredAndClosed() async throws {
        let daemon = try DaemonProcess()
        let silent = try daemon.connect()
        let header = "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
        let body = "POST /api/v0/processes/start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
        async let headerAnswer = Self.drip(daemon, header)
        async let bodyAnswer = Self.drip(daemon, body)
        let answers = try await [(headerAnswer, "header", 10), (bodyAnswer, "body", 30)]
        for (answer, part, seconds) in answers {
            #expect(answer.status == 408)
            #expect(answer.message == "The request \(part) did not arrive in time.")
            #expect(answer.closed)
            #expect(answer.took > .seconds(seconds) - .milliseconds(500))
            #expect(answer.took < .seconds(seconds) + .seconds(60))
        }
        // A connection that has not begun a request may take longer than that.
        #expect(try silent.request("GET", "/").status == 200)
        #expect(try await daemon.stop() == 0)
    }

    /// Sends a byte now and then, which must not buy time. On a thread of its own, since it is the
    /// time that is measured.
    private static func drip(_ daemon: DaemonProcess, _ start: String) async throws -> Answer {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                continuation.resume(with: Result { try dripNow(daemon, start) })
            }
        }
    }

    private static func dripNow(_ daemon: DaemonProcess, _ start: String) throws -> Answer {
        let connection = try daemon.connect(timeout: 90)
        let begin = ContinuousClock.now
        try connection.send(start)
        while !connection.isReadable, begin.duration(to: .now) < .seconds(100) {
            var readable = pollfd(fd: connection.descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&readable, 1, 500) == 0 { try? connection.send(" ") }
        }
        let took = begin.duration(to: .now)
        let response = try connection.response()
        return Answer(
            took: took, status: response.status, message: response.json["message"] as? String,
            closed: try connection.isAtEnd())
    }
}
