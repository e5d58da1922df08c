import AgentTestSupport
import Testing

@testable import AgentHTTP

/// A WebSocket whose client ended its side before there was one.
@Suite(.timeLimit(.minutes(2))) struct UpgradeEndTests {
    @Test func anEndBehindTheRequestEndsTheWebSocket() async throws {
        var limits = HTTPLimits()
        // A ping would find out as well, but late.
        limits.webSocketPingInterval = .hours(1)
        let fixture = try await ServerFixture(limits: limits)
        let connection = try RawConnection(unix: fixture.socket)
        try connection.send(
            "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        connection.closeSending()
        try await eventually("the answer") { connection.isReadable }
        #expect(try connection.response().status == 101)
        await fixture.echoClosed.wait()
        try await eventually("the end") { connection.isReadable }
        #expect(try connection.isAtEnd())
        await fixture.server.stop()
    }
}
