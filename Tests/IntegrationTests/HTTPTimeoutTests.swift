import AgentTestSupport
import Testing

@Suite(.blocking) struct HTTPTimeoutTests {
    /// Header and body time-out at once, so that the suite pays for the longer only.
    @Test func slowClientsAreAnsweredAndClosed() async throws {
        let daemon = try DaemonProcess()
        let (header, body) = (try daemon.connect(), try daemon.connect())
        let silent = try daemon.connect()
        let begin = ContinuousClock.now
        try header.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        try body.send("POST /api/v0/processes/start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        var (headerTook, bodyTook) = (Duration.zero, Duration.zero)
        var nextByte = begin
        try await eventually("both time out", within: .seconds(120)) {
            let now = ContinuousClock.now
            if headerTook == .zero, header.isReadable { headerTook = begin.duration(to: now) }
            if bodyTook == .zero, body.isReadable { bodyTook = begin.duration(to: now) }
            // A byte now and then must not buy time.
            if now >= nextByte {
                nextByte = now + .milliseconds(500)
                if headerTook == .zero { try? header.send("x") }
                if bodyTook == .zero { try? body.send(" ") }
            }
            return headerTook != .zero && bodyTook != .zero
        }
        for (connection, part) in [(header, "header"), (body, "body")] {
            let response = try connection.response()
            #expect(response.status == 408)
            #expect(response.json["message"] as? String == "The request \(part) did not arrive in time.")
            #expect(response.headers["connection"] == "close")
            #expect(try connection.isAtEnd())
        }
        #expect(headerTook > .seconds(9.5) && headerTook < .seconds(28))
        #expect(bodyTook > .seconds(29.5) && bodyTook < .seconds(90))
        // A connection that has not begun a request may take longer than that.
        #expect(try silent.request("GET", "/").status == 200)
        #expect(try await daemon.stop() == 0)
    }
}
