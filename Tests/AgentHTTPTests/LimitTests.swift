import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import AgentHTTP

/// Limits that need many connections or much data: at them, below and above.
@Suite(.serialized, .timeLimit(.minutes(5))) struct LimitTests {
    /// A refused upload is read and discarded up to the limit, so that the client gets the answer.
    @Test func whatComesBehindARefusalIsReadUpToTheLimit() async throws {
        var limits = HTTPLimits()
        limits.lingerTimeout = .hours(1)
        let fixture = try await ServerFixture(limits: limits)
        for excess in [-1, 0, 1] {
            let connection = try RawConnection(unix: fixture.socket)
            try connection.send("POST /plain HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
            try await eventually("the refusal") { connection.isReadable }
            #expect((400..<500).contains(try connection.response().status))
            try? connection.send(Data(count: HTTPLimits.lingerBytes + excess))
            // The sending side is closed; the number of connections shows whether the other one is still open.
            let isThere: Int64 = excess > 0 ? 0 : 1
            try await eventually("\(excess) is dealt with") {
                unread(connection.descriptor) <= 0 && fixture.server.openConnections["http_unix"] == isThere
            }
            connection.closeSending()
            try await eventually("it is gone") { fixture.server.openConnections["http_unix"] == 0 }
        }
        await fixture.server.stop()
    }

    /// Bytes that the peer has not taken yet.
    private func unread(_ descriptor: CInt) -> CInt {
        var count: CInt = 0
        // SIOCOUTQ
        return ioctl(descriptor, 0x5411, &count) == 0 ? count : -1
    }

    /// A route that does not read has so many messages waiting; the sender is held up, and nothing is lost.
    @Test func messagesOfABusyRouteWait() async throws {
        let may = AsyncEvent()
        let fixture = try await ServerFixture { routes in
            routes.get("/busy") { request, context in
                try WebSocketUpgrade.respond(to: request, context: context) { webSocket in
                    await may.wait()
                    var count = 0
                    while case .binary(let data)? = await webSocket.next() {
                        count += 1
                        if data.readableBytes == 1 { break }
                    }
                    try? await webSocket.send("\(count)")
                }
            }
        }
        let connection = try RawConnection(unix: fixture.socket)
        try connection.send(
            "GET /busy HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        try await eventually("the answer") { connection.isReadable }
        #expect(try connection.response().status == 101)
        // Far more than is kept: the kernel's buffers fill up, until nothing is taken any more.
        let flags = fcntl(connection.descriptor, F_GETFL, 0)
        _ = fcntl(connection.descriptor, F_SETFL, flags | O_NONBLOCK)
        let frame: [UInt8] = [0x82, 0xfe, 0x40, 0x00, 0, 0, 0, 0] + [UInt8](repeating: 7, count: 0x4000)
        var (sent, rest) = (0, frame[...])
        let most = 2_000
        var quietLooks = 0
        try await eventually("the sender is held up") {
            let before = (sent, rest.count)
            while sent < most {
                let count = Array(rest).withUnsafeBytes {
                    send(connection.descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
                }
                guard count > 0 else { break }
                rest = rest.dropFirst(count)
                if rest.isEmpty { (sent, rest) = (sent + 1, frame[...]) }
            }
            quietLooks = before == (sent, rest.count) ? quietLooks + 1 : 0
            return sent == most || quietLooks > 100
        }
        // As many as are kept, in messages and in bytes, and on top what comes before reading pauses: four times
        // 64 KiB and a part of a frame.
        let taken = sent - Int(unread(connection.descriptor)) / frame.count
        let kept = HTTPLimits.webSocketInboundMessages
        #expect((kept...kept + 17).contains(taken))
        _ = fcntl(connection.descriptor, F_SETFL, flags)
        may.signal()
        try connection.send(Data(rest))
        try connection.send(Data([0x82, 0x81, 0, 0, 0, 0, 1]))
        try await eventually("the count") { connection.isReadable }
        let text = "\(sent + 2)"
        #expect(try connection.receive(exactly: 2 + text.utf8.count).dropFirst(2) == Data(text.utf8))
        await fixture.server.stop()
    }
}
