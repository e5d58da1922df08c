import AgentTestSupport
import Foundation
import NIOCore
import Testing

@testable import AgentHTTP

@Suite struct WebSocketTests {
    private static let handshake =
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

    private func request(_ path: String = "/echo", _ fields: String = "") -> String {
        "GET \(path) HTTP/1.1\r\nHost: x\r\n\(fields)\(Self.handshake)"
    }

    private func frame(_ opcode: UInt8, _ payload: [UInt8], fin: Bool = true) -> Data {
        var data = Data([(fin ? 0x80 : 0) | opcode])
        switch payload.count {
        case ..<126: data.append(0x80 | UInt8(payload.count))
        case ..<65536: data += [0x80 | 126, UInt8(payload.count >> 8), UInt8(payload.count & 255)]
        default:
            data.append(0x80 | 127)
            for shift in stride(from: 56, through: 0, by: -8) { data.append(UInt8(payload.count >> shift & 255)) }
        }
        let key: [UInt8] = [1, 2, 3, 4]
        data += key
        data += payload.enumerated().map { $0.element ^ key[$0.offset % 4] }
        return data
    }

    private func receive(_ connection: RawConnection) throws -> (opcode: UInt8, payload: [UInt8]) {
        let head = [UInt8](try connection.receive(exactly: 2))
        var count = Int(head[1] & 0x7F)
        if count == 126 { count = [UInt8](try connection.receive(exactly: 2)).reduce(0) { $0 << 8 | Int($1) } }
        if count == 127 { count = [UInt8](try connection.receive(exactly: 8)).reduce(0) { $0 << 8 | Int($1) } }
        return (head[0] & 0x0F, [UInt8](try connection.receive(exactly: count)))
    }

    private func closeCode(_ connection: RawConnection) throws -> Int {
        while true {
            let (opcode, payload) = try receive(connection)
            if opcode == 8 { return payload.count >= 2 ? Int(payload[0]) << 8 | Int(payload[1]) : 0 }
        }
    }

    private func open(_ fixture: ServerFixture) throws -> RawConnection {
        let connection = try fixture.connect()
        try connection.send(request())
        let response = try connection.response()
        #expect(response.status == 101)
        #expect(response.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        #expect(response.headers["workspace-agent-instance"] != nil)
        #expect(response.headers["connection"]?.lowercased() == "upgrade")
        #expect(response.headers["upgrade"] == "websocket")
        return connection
    }

    @Test func aLongReasonOfARouteFitsTheFrame() async throws {
        let path = "/home/user/" + String(repeating: "日本語のとても長い名前/", count: 12)
        let fixture = try await ServerFixture { routes in
            routes.webSocket("/refuse", changes: false) { request, context in
                try WebSocketUpgrade.respond(to: request, context: context) {
                    await $0.close(.internalError, reason: "cannot watch \(path)")
                }
            }
        }
        let connection = try fixture.connect()
        try connection.send(request("/refuse"))
        #expect(try connection.response().status == 101)
        let (opcode, payload) = try receive(connection)
        #expect(opcode == 8 && payload.count <= 125)
        let reason = try #require(String(validating: payload.dropFirst(2), as: UTF8.self))
        #expect(reason.hasPrefix("cannot watch /home/user/日本語") && reason.utf8.count > 120)
        await fixture.server.stop()
    }

    /// A server that sends nothing on its own while a test takes its time.
    private var withoutPings: HTTPLimits {
        var limits = HTTPLimits()
        limits.webSocketPingInterval = .hours(1)
        return limits
    }

    @Test func echoesMessagesOfAllSizes() async throws {
        let fixture = try await ServerFixture(limits: withoutPings)
        let connection = try open(fixture)
        for count in [0, 1, 125, 126, 65535, 65536, 1 << 20, 4 << 20] {
            let payload = [UInt8](repeating: 97, count: count)
            try connection.send(frame(count % 2 == 0 ? 2 : 1, payload))
            let echo = try receive(connection)
            #expect(echo.payload == payload)
        }
        try connection.send(frame(8, [0x03, 0xE8]))
        #expect(try closeCode(connection) == 1000)
        #expect(try connection.isAtEnd())
        await fixture.echoClosed.wait()
        await fixture.server.stop()
    }

    /// Frames that come in the same packet as the handshake, and a handshake behind other requests.
    @Test func nothingIsLostAroundTheSwitch() async throws {
        let fixture = try await ServerFixture(limits: withoutPings)
        let connection = try fixture.connect()
        try connection.send(Data("GET /plain HTTP/1.1\r\nHost: x\r\n\r\n\(request())".utf8) + frame(1, [104, 105]))
        #expect(try connection.response().text == "plain")
        #expect(try connection.response().status == 101)
        #expect(try receive(connection).payload == [104, 105])
        await fixture.server.stop()
    }

    @Test func refusalsAreOrdinaryAnswers() async throws {
        let fixture = try await ServerFixture()
        let cases: [(String, Int)] = [
            (request("/nope"), 404), (request("/echo", "Origin: http://evil.example\r\n"), 403),
            (request().replacingOccurrences(of: "Version: 13", with: "Version: 8"), 426),
            (request().replacingOccurrences(of: "dGhlIHNhbXBsZSBub25jZQ==", with: "short"), 400),
            ("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", 426),
        ]
        for (text, status) in cases {
            let connection = try fixture.connect()
            try connection.send(text)
            let response = try connection.response()
            #expect(response.status == status)
            #expect(response.json["message"] != nil)
            // NIO's decoder is blind after an upgrade that did not happen.
            if text.contains("Upgrade") { #expect(response.headers["connection"] == "close") }
        }
        // An upgrade that no route asked for is an ordinary request.
        let connection = try fixture.connect()
        try connection.send("GET /plain HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        #expect(try connection.response().text == "plain")
        #expect(try connection.isAtEnd())
        await fixture.server.stop()
    }

    @Test func tooLargeClosesWith1009() async throws {
        let fixture = try await ServerFixture(limits: withoutPings)
        let whole = try open(fixture)
        try? whole.send(frame(2, [UInt8](repeating: 0, count: (4 << 20) + 1)))
        #expect(try closeCode(whole) == 1009)
        let pieces = try open(fixture)
        try pieces.send(frame(2, [UInt8](repeating: 0, count: 4 << 20), fin: false))
        try pieces.send(frame(0, [0]))
        #expect(try closeCode(pieces) == 1009)
        await fixture.server.stop()
    }

    /// Through the decoder, as the peer sees it.
    @Test(
        arguments: [
            ([0x03, 0xE8], 1000), ([0x13, 0x87], 4999), ([], 1000), ([0x03, 0xED], 1002), ([0x03, 0xE7], 1002),
            ([0, 0], 1002), ([0x13, 0x88], 1002), ([3], 1002), ([0x03, 0xE8, 0xFF], 1007),
        ] as [([UInt8], Int)])
    func closeFramesAreAnsweredByTheirCode(payload: [UInt8], code: Int) async throws {
        let fixture = try await ServerFixture(limits: withoutPings)
        let connection = try open(fixture)
        try connection.send(frame(8, payload))
        #expect(try closeCode(connection) == code)
        #expect(try connection.isAtEnd())
        await fixture.echoClosed.wait()
        await fixture.server.stop()
    }

    private func pinging(within timeout: TimeAmount) -> HTTPLimits {
        var limits = HTTPLimits()
        limits.webSocketPingInterval = .milliseconds(50)
        limits.webSocketPongTimeout = timeout
        return limits
    }

    @Test func aPeerThatAnswersPingsStays() async throws {
        // The time for a pong is that between pings too. On a busy machine our answer may take longer than the
        // shortest; the longest is enough for any.
        for (timeout, pings) in [(.milliseconds(50), 10), (.seconds(1), 10), (.seconds(15), 3)] as [(TimeAmount, Int)] {
            if try await stays(within: timeout, pings: pings) { return }
        }
        Issue.record("a peer that answers was closed")
    }

    private func stays(within timeout: TimeAmount, pings: Int) async throws -> Bool {
        let fixture = try await ServerFixture(limits: pinging(within: timeout))
        var stayed = true
        do {
            let connection = try open(fixture)
            for _ in 0..<pings where stayed {
                stayed = (try? receive(connection).opcode) == 9 && (try? connection.send(frame(10, []))) != nil
            }
            // The one that shows that the last answer counted.
            if stayed { stayed = (try? receive(connection).opcode) == 9 }
        }
        await fixture.echoClosed.wait()
        await fixture.server.stop()
        return stayed
    }

    @Test func silenceClosesWith1001() async throws {
        let fixture = try await ServerFixture(limits: pinging(within: .milliseconds(50)))
        let connection = try open(fixture)
        #expect(try receive(connection).opcode == 9)
        #expect(try closeCode(connection) == 1001)
        await fixture.echoClosed.wait()
        await fixture.server.stop()
    }

    @Test func shutdownClosesWith1001() async throws {
        let fixture = try await ServerFixture()
        let connection = try open(fixture)
        let stop = fixture.beginStop()
        #expect(try closeCode(connection) == 1001)
        // The server waits for it for a moment only and may be gone.
        try? connection.send(frame(8, [0x03, 0xE9]))
        #expect(try connection.isAtEnd())
        await stop.value
    }

    @Test func aPeerThatVanishesEndsTheRoute() async throws {
        let fixture = try await ServerFixture()
        do { _ = try open(fixture) }
        await fixture.echoClosed.wait()
        await fixture.server.stop()
    }
}
