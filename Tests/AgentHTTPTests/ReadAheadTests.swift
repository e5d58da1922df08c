import AgentTestSupport
import Foundation
import Glibc
import NIOCore
import Testing

@testable import AgentHTTP

/// What arrives behind a request while it is answered.
@Suite struct ReadAheadTests {
    private let get = "GET /plain HTTP/1.1\r\nHost: x\r\n\r\n"

    private func fixture(_ may: AsyncEvent) async throws -> ServerFixture {
        try await ServerFixture { routes in
            routes.get("/held") { _, _ in
                await may.wait()
                return .text(ByteBuffer(string: "held"))
            }
        }
    }

    /// Bytes that the server has not read, as the kernel counts them.
    private func unread(_ connection: RawConnection) -> CInt {
        var count: CInt = -1
        // SIOCOUTQ
        return ioctl(connection.descriptor, 0x5411, &count) == 0 ? count : -1
    }

    /// A pause in reading would cost two system calls a request.
    @Test func readingGoesOn() async throws {
        let may = AsyncEvent()
        let fixture = try await fixture(may)
        let connection = try fixture.connect()
        try connection.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        try await eventually("the first is read") { unread(connection) == 0 }
        // In three parts: each is read for itself.
        for part in [get.prefix(10), get.dropFirst(10).prefix(10), get.dropFirst(20)] {
            try connection.send(String(part))
            try await eventually("what follows is read") { unread(connection) == 0 }
        }
        #expect(!connection.isReadable)
        may.signal()
        #expect(try connection.response().text == "held")
        #expect(try connection.response().text == "plain")
        await fixture.server.stop()
    }

    /// The sender is held up after some of it, and nothing is lost.
    @Test func whatIsReadIsBounded() async throws {
        let may = AsyncEvent()
        let fixture = try await fixture(may)
        let connection = try fixture.connect()
        try connection.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        // Large requests: so fast does a server read on that has no bound, also between two looks.
        let head = "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"
        let (bytes, most) = (Data(head.utf8) + Data(count: 60_000), 8 << 20)
        var (sent, quietLooks) = (0, 0)
        try await eventually("the sender is held up") {
            let before = sent
            while sent < most {
                let rest = Array(bytes[(sent % bytes.count)...])
                let count = send(connection.descriptor, rest, rest.count, CInt(MSG_DONTWAIT) | CInt(MSG_NOSIGNAL))
                guard count > 0 else { break }
                sent += count
            }
            quietLooks = sent == before ? quietLooks + 1 : 0
            return quietLooks >= 20 || sent >= most
        }
        #expect(sent < 1 << 20, "the kernel's buffers and some more")
        may.signal()
        #expect(try connection.response().text == "held")
        for _ in 0..<(sent / bytes.count) { #expect(try connection.response().text == "60000") }
        #expect(try fixture.connect().request("GET", "/plain").status == 200)
        await fixture.server.stop()
    }

    /// What comes behind an offer of another protocol waits for the route's decision.
    @Test func nothingIsReadBehindAnOffer() async throws {
        let may = AsyncEvent()
        let fixture = try await fixture(may)
        let connection = try fixture.connect()
        try connection.send("GET /held HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
        try await eventually("the offer is read") { unread(connection) == 0 }
        try connection.send(get)
        // A request on another connection of the same loop shows that it has been around.
        #expect(try fixture.connect().request("GET", "/plain").status == 200)
        #expect(unread(connection) > 0)
        may.signal()
        #expect(try connection.response().text == "held")
        await fixture.server.stop()
    }
}
