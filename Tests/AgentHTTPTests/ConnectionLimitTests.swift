import AgentTestSupport
import CPlatform
import Foundation
import Glibc
import Testing

@testable import AgentHTTP

/// Each in a process of its own, which may open that many files.
@Suite(.serialized, .timeLimit(.minutes(5))) struct ConnectionLimitTests {
    /// A server and what the tests do with it.
    private struct World {
        static let plain = "GET /plain HTTP/1.1\r\nHost: x\r\n\r\n"
        static let busy = "POST /body HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
        let fixture: ServerFixture
        let most = HTTPLimits.connections

        init(firstRequestGrace: Int64 = 1000) async throws {
            wa_raise_nofile()
            var limits = HTTPLimits()
            limits.bodyTimeout = .hours(1)
            limits.headerTimeout = .hours(1)
            limits.idleTimeout = .hours(1)
            limits.webSocketPingInterval = .hours(1)
            limits.firstRequestGrace = .milliseconds(firstRequestGrace)
            fixture = try await ServerFixture(limits: limits)
        }

        var open: Int64 { fixture.server.openConnections["http_unix"] ?? 0 }

        /// Connects as often, and waits until all are accepted.
        func connect(_ count: Int, sending text: String = "") async throws -> [RawConnection] {
            let before = open
            let new = try (0..<count).map { _ in
                let connection = try RawConnection(unix: fixture.socket)
                if !text.isEmpty { try connection.send(text) }
                return connection
            }
            try await eventually("\(count) are accepted") { open == before + Int64(count) }
            return new
        }

        /// A connection with a request under way, whose last byte is missing.
        func connectBusy(_ count: Int) async throws -> [RawConnection] {
            let new = try await connect(count, sending: Self.busy)
            for connection in new { try await eventually("its header is read") { connection.isReadable } }
            return new
        }

        func connectWebSocket() async throws -> RawConnection {
            let connection = try await connect(
                1,
                sending: "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                    + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")[0]
            try await eventually("the WebSocket is open") { connection.isReadable }
            #expect(try connection.response().status == 101)
            return connection
        }

        func echoes(_ webSocket: RawConnection) throws -> Bool {
            try webSocket.send(Data([0x81, 0x81, 0, 0, 0, 0, 65]))
            return try webSocket.receive(exactly: 3) == Data([0x81, 1, 65])
        }

        func newcomer() async throws -> RawConnection {
            let connection = try RawConnection(unix: fixture.socket)
            try connection.send(Self.plain)
            try await eventually("an answer") { connection.isReadable }
            #expect(try connection.response().text == "plain")
            return connection
        }
    }

    @Test func theLongestIdleMakesRoomAtTheLimit() async throws {
        await #expect(processExitsWith: .success) {
            let world = try await World()
            let first = try await world.connect(1)[0]
            let second = try await world.connect(1)[0]
            let others = try await world.connect(world.most - 3)
            #expect(world.open == Int64(world.most - 1))
            let last = try await world.newcomer()
            #expect(world.open == Int64(world.most))
            #expect(!first.isReadable && !second.isReadable)
            // One too many.
            let newcomer = try await world.newcomer()
            try await eventually("the first makes room") { first.isReadable }
            #expect(try first.isAtEnd())
            try await eventually("it is gone") { world.open == Int64(world.most) }
            #expect(!second.isReadable && others.allSatisfy { !$0.isReadable })
            #expect(try last.exchange(World.plain).text == "plain" && newcomer.exchange(World.plain).text == "plain")
            // A request makes it young again: the next is another one.
            #expect(try second.exchange(World.plain).text == "plain")
            let next = try await world.newcomer()
            try await eventually("the third makes room") { others[0].isReadable }
            for connection in [second, last, newcomer, next] {
                #expect(try connection.exchange(World.plain).text == "plain")
            }
            await world.fixture.server.stop()
        }
    }

    /// Half a header, or a refused request, is no request under way; a body and a WebSocket are.
    @Test func busyConnectionsAreNeverChosen() async throws {
        await #expect(processExitsWith: .success) {
            let world = try await World()
            let busy = try await world.connectBusy(1)[0]
            let webSocket = try await world.connectWebSocket()
            let half = try await world.connect(1, sending: "GET /plain HTT")[0]
            let refused = try await world.connect(1, sending: "GET /plain HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")[0]
            try await eventually("the refusal") { refused.isReadable }
            #expect(try refused.response().status == 400)
            let others = try await world.connect(world.most - 4)
            let newcomers = [try await world.newcomer(), try await world.newcomer()]
            try await eventually("half a header makes room") { half.isReadable }
            try await eventually("the refused one makes room") { refused.isReadable }
            #expect(try half.isAtEnd() && refused.isAtEnd())
            #expect(!webSocket.isReadable && others.allSatisfy { !$0.isReadable })
            try busy.send("x")
            #expect(try busy.response().text == "1")
            #expect(try world.echoes(webSocket))
            for newcomer in newcomers { #expect(try newcomer.exchange(World.plain).text == "plain") }
            await world.fixture.server.stop()
        }
    }

    @Test func newcomersWaitWhileAllAreBusy() async throws {
        await #expect(processExitsWith: .success) {
            let world = try await World(firstRequestGrace: 1)
            let webSocket = try await world.connectWebSocket()
            let busy = try await world.connectBusy(world.most - 1)
            // The kernel takes it; it is not accepted.
            let waiting = try RawConnection(unix: world.fixture.socket)
            try waiting.send(World.plain)
            for _ in 0..<20 { #expect(try world.echoes(webSocket)) }
            #expect(world.open == Int64(world.most) && !waiting.isReadable)
            // One is done.
            try busy[0].send("x")
            try await eventually("its turn") { waiting.isReadable }
            #expect(try waiting.response().text == "plain")
            // So does a newcomer for the next, once it is done: all others are busy.
            var newcomers: [RawConnection] = []
            for _ in 0..<5 { newcomers.append(try await world.newcomer()) }
            #expect(try newcomers.last?.exchange(World.plain).text == "plain")
            #expect(try world.echoes(webSocket))
            for connection in busy.dropFirst().prefix(20) {
                try connection.send("x")
                #expect(try connection.response().text == "1")
            }
            await world.fixture.server.stop()
        }
    }

    @Test func aStreamOfNewcomersIsServedBesideHostileOnes() async throws {
        await #expect(processExitsWith: .success) {
            let world = try await World()
            var hostile = try await world.connect(world.most)
            var newcomers: [RawConnection] = []
            for number in 0..<200 {
                // Those that were thrown out come back, too.
                hostile.append(try RawConnection(unix: world.fixture.socket))
                if number % 2 == 0 { try hostile.last?.send("GET / HTTP/1.1\r\nX") }
                newcomers.append(try await world.newcomer())
            }
            #expect(try newcomers.allSatisfy { try $0.exchange(World.plain).text == "plain" })
            try await eventually("no more than may be") { world.open <= Int64(world.most) }
            await world.fixture.server.stop()
        }
    }
}
